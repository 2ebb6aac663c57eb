//! Java's `.properties` form, as `java.util.Properties#load` reads it.

/// A key with its value and the line it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A line that cannot be read: its number and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadLine {
    pub(crate) line: usize,
    pub(crate) reason: String,
}

/// Reads a whole file. `#` and `!` begin comments; a backslash at a line's end joins the next line; `=`, `:` or
/// white space ends a key; `\t \n \r \f \uXXXX` are escapes, any other escaped character is itself.
///
/// Source: `java.util.Properties#load(Reader)`.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, BadLine> {
    let mut entries = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let trimmed = first.trim_start();
        if trimmed.is_empty() || trimmed.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = trimmed.to_owned();
        while ends_with_odd_backslashes(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start()),
                None => break,
            }
        }
        let line = index + 1;
        let (key, value) = split(&logical);
        let unescaped = |text: &str| unescape(text).map_err(|reason| BadLine { line, reason });
        let key = unescaped(key)?;
        if key.is_empty() {
            return Err(BadLine { line, reason: "a key is missing before the value".to_owned() });
        }
        entries.push(Entry { line, key, value: unescaped(value)? });
    }
    Ok(entries)
}

fn ends_with_odd_backslashes(text: &str) -> bool {
    text.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// Key and value of a logical line, still escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if matches!(c, '=' | ':' | ' ' | '\t' | '\u{c}') {
            let rest = line[at..].trim_start_matches([' ', '\t', '\u{c}']);
            let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (&line[..at], rest.trim_start_matches([' ', '\t', '\u{c}']));
        }
    }
    (line, "")
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('f') => plain.push('\u{c}'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = (digits.len() == 4).then(|| u32::from_str_radix(&digits, 16).ok()).flatten();
                plain
                    .push(code.and_then(char::from_u32).ok_or("a \\u escape needs four hexadecimal digits")?);
            }
            Some(other) => plain.push(other),
            None => {}
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_as_java_reads_it() {
        let text = "# a comment\n! another\n\n  bootstrap.servers = a:9092,\\\n     b:9092  \nclient.id:x y\nflag\nsasl.jaas.config=org.Module required \\\n  username=\"u\" \\\n  password=\"p#=:\";\nk\\=ey v\\u0041\\tl\n";
        let entries: Vec<String> = parse(text)
            .unwrap()
            .into_iter()
            .map(|entry| format!("{} {:?} = {:?}", entry.line, entry.key, entry.value))
            .collect();
        insta::assert_snapshot!(entries.join("\n"), @r#"
        4 "bootstrap.servers" = "a:9092,b:9092  "
        6 "client.id" = "x y"
        7 "flag" = ""
        8 "sasl.jaas.config" = "org.Module required username=\"u\" password=\"p#=:\";"
        11 "k=ey" = "vA\tl"
        "#);
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(parse("a=1\n=2\n").unwrap_err().line, 2);
        assert_eq!(parse("a=1\n\nb=\\u12\n").unwrap_err().line, 3);
    }
}
