//! The jars of Apache Kafka, fetched once with Maven.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use super::run::run_well;

/// Maven needs some ten seconds on a good line.
const FETCH_WITHIN: Duration = Duration::from_secs(600);

/// The jars of one version, on this machine.
#[derive(Clone, Debug)]
pub struct Distribution {
    libs: PathBuf,
}

impl Distribution {
    /// Fetches the jars into `$STRANDLINE_KAFKA_CACHE` (default: `strandline/kafka` in the user's cache folder),
    /// unless they are there. Processes that ask at the same time fetch once.
    ///
    /// `tiered` adds the test jars that hold LocalTieredStorage.
    pub fn fetch(version: &str, tiered: bool) -> anyhow::Result<Self> {
        let cache = cache_folder()?;
        let name = if tiered { version.to_owned() } else { format!("{version}-without-tiering") };
        let libs = cache.join(&name);
        if libs.is_dir() {
            return Ok(Self { libs });
        }
        fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
        let lock = File::create(cache.join(format!("{name}.lock")))?;
        lock.lock().context("cannot lock the cache of Kafka's jars")?;
        if !libs.is_dir() {
            fetch_into(&libs, &cache.join(format!("{name}.partial")), version, tiered)?;
        }
        Ok(Self { libs })
    }

    /// A Java process with Kafka's classes, in a small heap and quick to start.
    pub(crate) fn java(&self, heap_mib: u32) -> Command {
        Self::java_with(heap_mib, &self.libs.join("*"))
    }

    /// Like [`java`](Self::java), with the classes in a folder besides, if it is there.
    pub(crate) fn java_and(&self, classes: &Path, heap_mib: u32) -> Command {
        let class_path = [classes.as_os_str(), self.libs.join("*").as_os_str()].join(OsStr::new(":"));
        Self::java_with(heap_mib, Path::new(&class_path))
    }

    fn java_with(heap_mib: u32, class_path: &Path) -> Command {
        let mut java = Command::new("java");
        java.arg(format!("-Xmx{heap_mib}m"))
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
            .arg(class_path);
        java
    }
}

/// Fetches beside the final place and renames, so that a folder with that name is always whole.
fn fetch_into(libs: &Path, partial: &Path, version: &str, tiered: bool) -> anyhow::Result<()> {
    match fs::remove_dir_all(partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(partial)?,
    }
    let pom = partial.join("pom.xml");
    fs::write(&pom, pom_xml(version, tiered))?;
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]).arg(&pom).arg("dependency:copy-dependencies");
    maven.arg(format!("-DoutputDirectory={}", partial.display()));
    run_well(&mut maven, FETCH_WITHIN).with_context(|| format!("cannot fetch Apache Kafka {version}"))?;
    fs::rename(partial, libs).with_context(|| format!("cannot make {}", libs.display()))
}

fn pom_xml(version: &str, tiered: bool) -> String {
    let mut dependencies = String::new();
    let mut add = |group: &str, artifact: &str, version: &str, classifier: &str| {
        let classifier = match classifier {
            "" => String::new(),
            name => format!("<classifier>{name}</classifier>"),
        };
        dependencies += &format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version>{classifier}</dependency>\n"
        );
    };
    for artifact in ["kafka_2.13", "kafka-tools", "kafka-storage"] {
        add("org.apache.kafka", artifact, version, "");
    }
    if tiered {
        for artifact in ["kafka-storage", "kafka-clients"] {
            add("org.apache.kafka", artifact, version, "test");
        }
    }
    add("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5", "");
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\n\
         <groupId>strandline</groupId><artifactId>apache-kafka</artifactId><version>1</version>\n\
         <dependencies>\n{dependencies}</dependencies></project>\n"
    )
}

pub(super) fn cache_folder() -> anyhow::Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("STRANDLINE_KAFKA_CACHE")
        .or_else(|| Some(from("XDG_CACHE_HOME")?.join("strandline/kafka")))
        .or_else(|| Some(from("HOME")?.join(".cache/strandline/kafka")))
        .context("set STRANDLINE_KAFKA_CACHE to a folder for Kafka's jars and the like: HOME is not set")
}

/// What a machine lacks, in words.
pub(super) fn lacking() -> Option<String> {
    let runs = |program: &str, argument: &str| {
        let mut command = Command::new(program);
        command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let lacks: Vec<&str> = [("java", "-version"), ("mvn", "-version")]
        .into_iter()
        .filter(|(program, argument)| !runs(program, argument))
        .map(|(program, _)| program)
        .collect();
    (!lacks.is_empty()).then(|| format!("no {} on the PATH", lacks.join(" and no ")))
}
