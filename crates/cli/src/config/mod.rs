//! Where settings come from, which one wins, and what they say about the connection to Kafka.
//!
//! [`Settings::collect`] layers the sources; [`Settings::client`] turns the winners into [`ClientSettings`].
//! The keys are one table, [`keys::KEYS`].

mod client;
mod jaas;
mod keys;
mod oauthbearer;
mod properties;
mod used;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

pub(crate) use client::ClientSettings;

use crate::exit::Failure;
use crate::text::nearest;
use keys::{KEYS, Use, look_up};

/// Where a setting stands; a later variant wins over an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The file of `-F`, with the line.
    File(String, usize),
    /// An environment variable.
    Environment(String),
    /// `-X key=value`, by its place on the command line.
    X(usize, String),
    /// A flag of its own.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(f, "{path} line {line}"),
            Self::Environment(name) => write!(f, "${name}"),
            Self::X(_, key) => write!(f, "-X {key}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// A value with its origin.
#[derive(Clone)]
struct Setting {
    value: String,
    origin: Origin,
}

/// What the user may have said, raw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given<'a> {
    /// `-b`.
    pub(crate) bootstrap: Option<&'a str>,
    /// `-X`, in order.
    pub(crate) x: &'a [String],
    /// `-F`.
    pub(crate) file: Option<&'a Path>,
    /// The environment.
    pub(crate) environment: Vec<(String, String)>,
    /// `--strict-config`: an unknown key is an error.
    pub(crate) strict: bool,
}

/// The winning settings under Kafka's names.
#[derive(Default)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, Setting>,
    /// What the user should know: unknown keys.
    pub(crate) warnings: Vec<String>,
    /// What is good to know at `-v`: ignored keys.
    pub(crate) notes: Vec<String>,
}

impl Settings {
    /// Reads all sources and keeps the winner of each key.
    ///
    /// A malformed source is exit 3, as is an unknown key under `--strict-config`; a key that asks for something
    /// unsupported is exit 7.
    pub(crate) fn collect(given: &Given<'_>) -> Result<Self, Failure> {
        let mut settings = Self::default();
        if let Some(path) = given.file {
            let name = path.display().to_string();
            let text = read_small(path)
                .map_err(|error| Failure::configuration(format!("{name} cannot be read: {error}")))?;
            let entries = properties::parse(&text)
                .map_err(|bad| Failure::configuration(format!("{name} line {}: {}", bad.line, bad.reason)))?;
            for entry in entries {
                settings.set(
                    &entry.key,
                    entry.value,
                    Origin::File(name.clone(), entry.line),
                    given.strict,
                )?;
            }
        }
        for (name, value) in &given.environment {
            if name == "STRANDLINE_BOOTSTRAP_SERVER" {
                let origin = Origin::Environment(name.clone());
                settings.set("bootstrap.servers", value.clone(), origin, given.strict)?;
            } else if let Some(key) = name.strip_prefix("STRANDLINE_X_") {
                let key = key.to_ascii_lowercase().replace('_', ".");
                settings.set(&key, value.clone(), Origin::Environment(name.clone()), given.strict)?;
            }
        }
        for (index, pair) in given.x.iter().enumerate() {
            let (key, value) = pair
                .split_once('=')
                .filter(|(key, _)| !key.trim().is_empty())
                .ok_or_else(|| Failure::usage("-X needs key=value".to_owned()))?;
            let origin = Origin::X(index, key.trim().to_owned());
            settings.set(key.trim(), value.to_owned(), origin, given.strict)?;
        }
        if let Some(bootstrap) = given.bootstrap {
            settings.set("bootstrap.servers", bootstrap.to_owned(), Origin::Flag("-b"), given.strict)?;
        }
        settings.refuse_unsupported()?;
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: String, origin: Origin, strict: bool) -> Result<(), Failure> {
        let Some(key) = look_up(name) else {
            let known = KEYS.iter().flat_map(|key| std::iter::once(&key.name).chain(key.aliases)).copied();
            let guess =
                nearest(name, known).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            let message = format!("{origin}: unknown key {name:?}{guess}");
            if strict {
                return Err(Failure::configuration(message).hint("without --strict-config this is a warning"));
            }
            self.warnings.push(message);
            return Ok(());
        };
        if key.used == Use::Ignored {
            self.notes.push(format!("{origin}: {name} means nothing here and is ignored"));
            return Ok(());
        }
        match self.values.get(key.name) {
            Some(standing) if standing.origin > origin => {}
            _ => {
                self.values.insert(key.name, Setting { value, origin });
            }
        }
        Ok(())
    }

    fn refuse_unsupported(&self) -> Result<(), Failure> {
        for key in KEYS {
            let (Use::UnsupportedUnless(allowed), Some(setting)) = (key.used, self.values.get(key.name))
            else {
                continue;
            };
            if setting.value.trim() != allowed {
                let message = format!("{}: {} is not supported", setting.origin, key.name);
                return Err(Failure::unsupported(message));
            }
        }
        Ok(())
    }

    /// The value of a key by its Kafka name; blank counts as absent.
    fn value(&self, name: &str) -> Option<&str> {
        debug_assert!(look_up(name).is_some_and(|key| key.name == name && key.used == Use::Heard));
        self.values.get(name).map(|setting| setting.value.trim()).filter(|value| !value.is_empty())
    }

    /// Where the value of a key stands.
    fn origin(&self, name: &str) -> Option<&Origin> {
        self.values.get(name).map(|setting| &setting.origin)
    }

    /// True when some source names a cluster.
    pub(crate) fn names_a_cluster(&self) -> bool {
        self.value("bootstrap.servers").is_some()
    }
}

/// The largest settings file that is read; inline certificates are the longest values.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads a file that is not without end, as a device can be, and in which nobody has to be waited for. A pipe that the
/// shell has opened (`-F <(…)`) has somebody who writes.
fn read_small(path: &Path) -> io::Result<String> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    let of_the_shell = path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd");
    if kind.is_fifo() && !of_the_shell && path != Path::new("/dev/stdin") {
        return Err(io::Error::other("it is a pipe, and nobody may ever write to it; a file is needed"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is longer than 64 MiB"));
    }
    text_of(&bytes)
}

/// The text, without the mark that some editors put before it. What is not UTF-8 is Latin-1, as Java takes every file.
fn text_of(bytes: &[u8]) -> io::Result<String> {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Err(io::Error::other("it is UTF-16: save it as UTF-8")),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => {
            let text = std::str::from_utf8(rest).map(str::to_owned);
            Ok(text.unwrap_or_else(|_| rest.iter().copied().map(char::from).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_file_without_end_is_exit_3() {
        let given = Given { file: Some(Path::new("/dev/zero")), ..Given::default() };
        let failure = Settings::collect(&given).map(|_| ()).unwrap_err();
        assert_eq!(failure.exit.code(), 3);
        assert_eq!(failure.to_string(), "/dev/zero cannot be read: it is longer than 64 MiB");
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_and_a_directory_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (path, told) in [(pipe.as_path(), "it is a pipe"), (dir.path(), "it is a directory")] {
            let given = Given { file: Some(path), ..Given::default() };
            let failure = Settings::collect(&given).map(|_| ()).unwrap_err();
            assert_eq!(failure.exit.code(), 3);
            assert!(failure.to_string().contains(told), "{failure}");
        }
    }

    #[test]
    fn a_file_with_a_mark_before_it_or_in_latin_1_is_read_as_it_is_meant() {
        let password = |bytes: &[u8]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            let given = Given { file: Some(file.path()), strict: true, ..Given::default() };
            let settings = Settings::collect(&given).map_err(|failure| failure.to_string())?;
            Ok(settings.value("sasl.password").unwrap().to_owned())
        };
        for bytes in [&b"\xef\xbb\xbfsasl.password=caf\xc3\xa9\r\n"[..], b"sasl.password=caf\xe9\n"] {
            assert_eq!(password(bytes), Ok("caf\u{e9}".to_owned()));
        }
        let refused: Result<String, String> = password(b"\xff\xfes\0a\0");
        assert!(refused.unwrap_err().ends_with("it is UTF-16: save it as UTF-8"));
    }

    #[test]
    fn a_flag_wins_over_x_over_the_environment_over_the_file() {
        let file =
            write("bootstrap.servers=file:1\nclient.id=file\nrequest.timeout.ms=1\nsasl.username=file\n");
        let x = ["bootstrap.servers=x:1".to_owned(), "client.id=first".to_owned(), "client.id=x".to_owned()];
        let mut given = Given {
            bootstrap: Some("flag:1"),
            x: &x,
            file: Some(file.path()),
            environment: vec![
                ("STRANDLINE_BOOTSTRAP_SERVER".to_owned(), "env:1".to_owned()),
                ("STRANDLINE_X_CLIENT_ID".to_owned(), "env".to_owned()),
                ("STRANDLINE_X_REQUEST_TIMEOUT_MS".to_owned(), "2".to_owned()),
                ("HOME".to_owned(), "/root".to_owned()),
            ],
            strict: true,
        };
        let settings = Settings::collect(&given).unwrap();
        let all = ["bootstrap.servers", "client.id", "request.timeout.ms", "sasl.username"];
        assert_eq!(all.map(|key| settings.value(key).unwrap()), ["flag:1", "x", "2", "file"]);
        assert_eq!(
            settings.origin("request.timeout.ms").unwrap().to_string(),
            "$STRANDLINE_X_REQUEST_TIMEOUT_MS"
        );
        given.bootstrap = None;
        assert_eq!(Settings::collect(&given).unwrap().value("bootstrap.servers"), Some("x:1"));
    }

    #[test]
    fn an_unknown_key_warns_and_is_an_error_when_strict_and_an_idle_one_is_noted() {
        let file = write("sasl.mechansm=PLAIN\nkey.serializer=x\n");
        let mut given = Given { file: Some(file.path()), ..Given::default() };
        let settings = Settings::collect(&given).unwrap();
        assert_eq!(settings.warnings.len(), 1);
        assert!(
            settings.warnings[0]
                .ends_with("line 1: unknown key \"sasl.mechansm\"; did you mean sasl.mechanism?")
        );
        assert_eq!(settings.notes.len(), 1);
        given.strict = true;
        assert_eq!(Settings::collect(&given).err().unwrap().exit.code(), 3);
    }

    #[test]
    fn what_is_not_supported_says_so() {
        let x = ["enable.ssl.certificate.verification=false".to_owned()];
        let given = Given { x: &x, ..Given::default() };
        assert_eq!(Settings::collect(&given).err().unwrap().exit.code(), 7);
        let x = ["enable.ssl.certificate.verification=true".to_owned()];
        assert!(Settings::collect(&Given { x: &x, ..Given::default() }).is_ok());
    }
}
