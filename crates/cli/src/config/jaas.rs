//! The value of `sasl.jaas.config`: a login module, a flag, and options.

/// What the value says.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Jaas {
    /// The class name without its package: `PlainLoginModule`.
    pub(crate) module: String,
    /// `username="…"` and the like.
    pub(crate) options: Vec<(String, String)>,
}

impl std::fmt::Debug for Jaas {
    /// Names only: the values hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jaas").field("module", &self.module).finish_non_exhaustive()
    }
}

impl Jaas {
    /// Reads one entry; the error says what is missing and never quotes the value, which holds a secret.
    ///
    /// Source: `org.apache.kafka.common.security.JaasConfig`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut words = Words { rest: text };
        let module = words.next()?.ok_or("is empty: a login module is expected")?;
        let flag = words.next()?.ok_or("ends before its control flag (`required`)")?;
        if !["required", "requisite", "sufficient", "optional"].contains(&flag.to_ascii_lowercase().as_str())
        {
            return Err("has no control flag (`required`) after the login module");
        }
        let mut options = Vec::new();
        loop {
            match words.next()?.as_deref() {
                None => return Err("lacks the semicolon at its end"),
                Some(";") => break,
                Some("=") => return Err("has a `=` without a name before it"),
                Some(name) => {
                    if words.next()?.as_deref() != Some("=") {
                        return Err("has an option without `=`");
                    }
                    let value = words.next()?.ok_or("has an option without a value")?;
                    options.push((name.to_owned(), value));
                }
            }
        }
        if words.next()?.is_some() {
            return Err("holds more than one login module");
        }
        let module = module.rsplit('.').next().unwrap_or_default().to_owned();
        Ok(Self { module, options })
    }

    /// The value of an option.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(option, _)| option == name).map(|(_, value)| value.as_str())
    }
}

/// Words as Java's `StreamTokenizer` cuts them here: quoted text, `=`, `;`, and runs of anything else.
struct Words<'a> {
    rest: &'a str,
}

impl Words<'_> {
    fn next(&mut self) -> Result<Option<String>, &'static str> {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        if matches!(first, '=' | ';') {
            self.rest = &self.rest[1..];
            return Ok(Some(first.to_string()));
        }
        if matches!(first, '"' | '\'') {
            return self.quoted(first).map(Some);
        }
        let end = self.rest.find(|c: char| c.is_whitespace() || matches!(c, '=' | ';' | '"' | '\''));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Ok(Some(word.to_owned()))
    }

    fn quoted(&mut self, quote: char) -> Result<String, &'static str> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, 'r')) => text.push('\r'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                c if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err("has a quote that is never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_entries_are_read() {
        let jaas = Jaas::parse(
            "org.apache.kafka.common.security.plain.PlainLoginModule required\n  username=\"api key\" password='a\\'b;=\" c' ;",
        )
        .unwrap();
        assert_eq!(jaas.module, "PlainLoginModule");
        assert_eq!(jaas.option("username"), Some("api key"));
        assert_eq!(jaas.option("password"), Some("a'b;=\" c"));
        assert_eq!(jaas.option("serviceName"), None);
    }

    #[test]
    fn a_broken_entry_is_explained_without_its_secret() {
        for bad in [
            "",
            "Module",
            "Module username=\"u\";",
            "Module required username=\"u\"",
            "Module required username;",
            "Module required username=;",
            "Module required password=\"hunter2;",
            "Module required a=b; Other required;",
        ] {
            let error = Jaas::parse(bad).map(|_| ()).unwrap_err();
            assert!(!error.contains("hunter2"), "{bad}: {error}");
        }
        let secret = Jaas::parse("Module required password=\"hunter2\";").unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
