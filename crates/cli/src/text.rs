//! Text for people: sizes, counts, and foreign text made harmless.

use std::borrow::Cow;

/// How sizes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// In IEC units: `1.5 GiB`.
    Iec,
    /// To the byte (`--bytes`).
    Exact,
}

impl Sizes {
    /// `bytes` as a person wants to read it.
    pub(crate) fn show(self, bytes: i64) -> String {
        if self == Self::Exact || bytes.unsigned_abs() < 1024 {
            return if self == Self::Exact { bytes.to_string() } else { format!("{bytes} B") };
        }
        let mut value = bytes as f64;
        let mut unit = "B";
        for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
            if value.abs() < 1023.95 {
                break;
            }
            value /= 1024.0;
            unit = larger;
        }
        format!("{value:.1} {unit}")
    }
}

/// `1 segment`, `2 segments`, `12 345 segments`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}

/// A number with a space between groups of three digits.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Text from a cluster or a store, with everything that could steer a terminal written as an escape.
///
/// Control characters (C0, DEL, C1) and the characters that are not seen, reorder text or end a line (Unicode's format
/// controls, tags included) become `\u{…}`; the rest stays.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| {
        let format_control = matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}');
        c.is_control() || format_control
    };
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if harmful(c) { safe.extend(c.escape_unicode()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// Like [`escape`], but keeps line ends: for text of our own that quotes foreign text.
pub(crate) fn escape_lines(text: &str) -> String {
    text.split('\n').map(escape).collect::<Vec<_>>().join("\n")
}

/// The name among `names` that is nearest to `wanted`, if it is near enough to be a slip.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + wanted.chars().count() / 4;
    names
        .map(|name| (distance(wanted, name, limit), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// How many letters have to be added, dropped, changed or swapped with their neighbour; above `limit` only "more".
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_in_iec_units_or_to_the_byte() {
        let shown = [0, 1023, 1024, 1536, 1_048_524, 1_048_576, i64::MAX, -2048].map(|n| Sizes::Iec.show(n));
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1023.9 KiB", "1.0 MiB", "8.0 EiB", "-2.0 KiB"]
        );
        assert_eq!(Sizes::Exact.show(1536), "1536");
    }

    #[test]
    fn counts_read_well() {
        assert_eq!(count(1, "segment"), "1 segment");
        assert_eq!(count(0, "segment"), "0 segments");
        assert_eq!(count(1_234_567, "segment"), "1 234 567 segments");
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(escape("orders"), "orders");
        assert_eq!(escape("a\x1b[31mb\nc\u{9b}d\u{202e}e"), "a\\u{1b}[31mb\\u{a}c\\u{9b}d\\u{202e}e");
        assert_eq!(
            escape("a\u{61c}b\u{2067}c\u{2060}d\u{ad}e\u{e0041}\u{e007f}"),
            "a\\u{61c}b\\u{2067}c\\u{2060}d\\u{ad}e\\u{e0041}\\u{e007f}"
        );
        assert_eq!(escape("größe"), "größe");
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let names = ["orders", "payments", "clicks"];
        assert_eq!(nearest("ordres", names.into_iter()), Some("orders"));
        assert_eq!(nearest("payment", names.into_iter()), Some("payments"));
        assert_eq!(nearest("inventory", names.into_iter()), None);
    }
}
