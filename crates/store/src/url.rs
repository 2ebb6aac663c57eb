//! The URL of a store.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a store is: `file://DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// A directory. What follows `file://` is its path, percent-encoded as in any URL: `%20` is a space, `%25` a
    /// percent sign; other characters may stand as they are. A relative path begins at the working directory.
    Directory(PathBuf),
}

/// The text names no store that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// Not a URL, or one of no known scheme. A mistake of usage.
    #[error("{text:?} is not the URL of a store: file://DIR is expected")]
    Malformed {
        /// What was given; what may be a password in front of an `@` is left out.
        text: String,
    },
    /// A user name or password in front of the path. A mistake of usage; the text is not repeated.
    #[error(
        "the URL of a store holds a user name or password, which no directory needs: file://DIR is expected \
         (file://./DIR where the name of a directory begins so)"
    )]
    Credentials,
    /// A percent sign that begins no escape, or escapes that are no path. A mistake of usage.
    #[error(
        "the URL of a store has a wrong escape at byte {position}: %20 is a space, and %25 a percent sign"
    )]
    Escape {
        /// Where in the URL's path, in bytes behind `file://`.
        position: usize,
    },
    /// `file://` without a directory. A mistake of usage.
    #[error("file:// lacks its directory: file://DIR is expected")]
    NoDirectory,
    /// A store that this version cannot read. Nothing to correct: it is not supported.
    #[error("stores of the kind {scheme}:// are not supported yet; file://DIR is")]
    NotSupported {
        /// The URL's scheme.
        scheme: &'static str,
    },
}

/// Stores that Strandline is to read and cannot yet.
const NOT_YET: [&str; 3] = ["s3", "gs", "az"];

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed =
            || StoreUrlError::Malformed { text: without_password(text).chars().take(256).collect() };
        let (scheme, rest) = text.split_once("://").ok_or_else(malformed)?;
        if let Some(scheme) = NOT_YET.into_iter().find(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(StoreUrlError::NotSupported { scheme });
        }
        if !scheme.eq_ignore_ascii_case("file") {
            return Err(malformed());
        }
        if rest.is_empty() {
            return Err(StoreUrlError::NoDirectory);
        }
        let first = rest.split('/').next().unwrap_or_default();
        if first.contains('@') || (first.contains(':') && rest.contains('@')) {
            return Err(StoreUrlError::Credentials);
        }
        Ok(Self::Directory(PathBuf::from(unescape(rest)?)))
    }
}

/// The text without what stands between its first `:` and a later `@`.
fn without_password(text: &str) -> String {
    match (text.find(':'), text.rfind('@')) {
        (Some(colon), Some(at)) if colon < at => format!("{}…{}", &text[..=colon], &text[at..]),
        _ => text.to_owned(),
    }
}

fn unescape(path: &str) -> Result<String, StoreUrlError> {
    let bytes = path.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while let Some(&byte) = bytes.get(position) {
        if byte != b'%' {
            plain.push(byte);
            position += 1;
            continue;
        }
        let digit = |at: usize| bytes.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        let code = digit(position + 1).zip(digit(position + 2)).map(|(high, low)| high * 16 + low);
        match code.and_then(|code| u8::try_from(code).ok()) {
            Some(code) if code != 0 => plain.push(code),
            _ => return Err(StoreUrlError::Escape { position }),
        }
        position += 3;
    }
    let first_escape = path.find('%').unwrap_or_default();
    String::from_utf8(plain).map_err(|_| StoreUrlError::Escape { position: first_escape })
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => {
                write!(f, "file://{}", path.display().to_string().replace('%', "%25"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_url_names_a_directory() {
        for (text, path) in [
            ("file:///var/tier", "/var/tier"),
            ("FILE:///var/my tier/50%25", "/var/my tier/50%"),
            ("file:///a%20b/gr%C3%b6%2fx", "/a b/grö/x"),
            ("file:///data/me@home:1", "/data/me@home:1"),
            ("file://./me@home", "./me@home"),
            ("file://tier", "tier"),
            ("file://./tier/", "./tier/"),
        ] {
            assert_eq!(text.parse(), Ok(StoreUrl::Directory(path.into())), "{text}");
        }
        for text in ["file:///var/tier", "file:///var/50%2520"] {
            assert_eq!(text.parse::<StoreUrl>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_escape_is_refused_with_its_place() {
        for (text, position) in [
            ("file:///50%", 3),
            ("file:///a%2", 2),
            ("file:///%zz", 1),
            ("file:///%00", 1),
            ("file:///%ff", 1),
        ] {
            assert_eq!(text.parse::<StoreUrl>(), Err(StoreUrlError::Escape { position }), "{text}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        for text in [
            "file://user:secret@host/tier",
            "file://secret@host/tier",
            "file://user:se/secret@host/tier",
            "http://user:secret@host/tier",
            "user:secret@host",
            "s3://user:secret@bucket/",
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_text_that_is_no_store_is_refused_with_the_form_that_is() {
        for text in ["", "/var/tier", "file:/var/tier", "http://host/", "://x"] {
            let error = text.parse::<StoreUrl>().unwrap_err();
            assert_eq!(error, StoreUrlError::Malformed { text: text.to_owned() });
        }
        assert_eq!("file://".parse::<StoreUrl>(), Err(StoreUrlError::NoDirectory));
    }

    #[test]
    fn a_bucket_is_told_apart_from_a_typing_error() {
        for (text, scheme) in [("s3://bucket/prefix", "s3"), ("gs://bucket", "gs"), ("az://container", "az")]
        {
            assert_eq!(text.parse::<StoreUrl>(), Err(StoreUrlError::NotSupported { scheme }));
        }
    }
}
