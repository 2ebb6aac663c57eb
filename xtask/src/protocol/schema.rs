//! Kafka's schema language: the JSON files under `common/message/` of the kafka-clients jar.
//!
//! Source: `org.apache.kafka.message.MessageSpec` and the classes around it. An unknown key, type or kind is an
//! error, so that a new word in a later Kafka is noticed and not skipped.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// A message as its file says it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Message {
    pub(crate) api_key: Option<i16>,
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) valid_versions: Versions,
    #[serde(default)]
    pub(crate) flexible_versions: Versions,
    #[serde(default)]
    pub(crate) latest_version_unstable: bool,
    #[serde(default)]
    pub(crate) listeners: Vec<Listener>,
    #[serde(default)]
    pub(crate) fields: Vec<Field>,
    #[serde(default)]
    pub(crate) common_structs: Vec<CommonStruct>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Request,
    Response,
    Header,
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Listener {
    Broker,
    Controller,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CommonStruct {
    pub(crate) name: String,
    /// The versions are those of the fields that use it.
    #[serde(rename = "versions")]
    _versions: Versions,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Field {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) of: Type,
    pub(crate) versions: Versions,
    #[serde(default)]
    pub(crate) nullable_versions: Versions,
    #[serde(default)]
    pub(crate) tagged_versions: Versions,
    pub(crate) flexible_versions: Option<Versions>,
    pub(crate) tag: Option<u32>,
    #[serde(default)]
    pub(crate) ignorable: bool,
    pub(crate) default: Option<serde_json::Value>,
    #[serde(default)]
    pub(crate) map_key: bool,
    pub(crate) entity_type: Option<EntityType>,
    /// A hint for Java's generator; here all `bytes` are slices of the frame.
    #[serde(default, rename = "zeroCopy")]
    _zero_copy: bool,
    /// Prose, not used.
    #[serde(default, rename = "about")]
    _about: String,
    #[serde(default)]
    pub(crate) fields: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum EntityType {
    TransactionalId,
    ProducerId,
    GroupId,
    TopicName,
    BrokerId,
}

/// `none`, `3`, `3-5` or `3+`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Versions(Option<(i16, i16)>);

impl TryFrom<String> for Versions {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        let number =
            |part: &str| part.parse::<i16>().with_context(|| format!("{text:?} is not a version range"));
        let range = if text == "none" {
            return Ok(Self(None));
        } else if let Some(first) = text.strip_suffix('+') {
            (number(first)?, i16::MAX)
        } else if let Some((first, last)) = text.split_once('-') {
            (number(first)?, number(last)?)
        } else {
            (number(&text)?, number(&text)?)
        };
        ensure!(0 <= range.0 && range.0 <= range.1, "the version range {text:?} is empty");
        Ok(Self(Some(range)))
    }
}

impl Versions {
    pub(crate) fn contains(self, version: i16) -> bool {
        self.0.is_some_and(|(first, last)| (first..=last).contains(&version))
    }

    /// The first and the last version of a range with an end.
    pub(crate) fn bounds(self) -> Option<(i16, i16)> {
        self.0
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Struct(String),
    Array(Box<Self>),
}

impl TryFrom<String> for Type {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        Ok(match text.as_str() {
            "bool" => Self::Bool,
            "int8" => Self::Int8,
            "int16" => Self::Int16,
            "uint16" => Self::Uint16,
            "int32" => Self::Int32,
            "uint32" => Self::Uint32,
            "int64" => Self::Int64,
            "float64" => Self::Float64,
            "uuid" => Self::Uuid,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "records" => Self::Records,
            other => match other.strip_prefix("[]") {
                Some(element) => match Self::try_from(element.to_owned())? {
                    Self::Array(_) => bail!("an array of arrays, {other}"),
                    element => Self::Array(Box::new(element)),
                },
                None if other.starts_with(|c: char| c.is_ascii_uppercase()) => Self::Struct(other.to_owned()),
                None => bail!("unknown type {other}"),
            },
        })
    }
}

impl Type {
    /// As the schema writes it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Struct(name) => name.clone(),
            Self::Array(element) => format!("array of {}", element.text()),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// The structure that the type, or its element, is.
    pub(crate) fn structure(&self) -> Option<&str> {
        match self {
            Self::Struct(name) => Some(name),
            Self::Array(element) => element.structure(),
            _ => None,
        }
    }

    fn may_be_null(&self) -> bool {
        matches!(self, Self::String | Self::Bytes | Self::Records | Self::Struct(_) | Self::Array(_))
    }
}

impl EntityType {
    fn base(self) -> Type {
        match self {
            Self::TransactionalId | Self::GroupId | Self::TopicName => Type::String,
            Self::ProducerId => Type::Int64,
            Self::BrokerId => Type::Int32,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::TransactionalId => "a transactional id",
            Self::ProducerId => "a producer id",
            Self::GroupId => "a group id",
            Self::TopicName => "a topic name",
            Self::BrokerId => "a broker id",
        }
    }
}

/// Reads a schema: JSON with lines of `//` comments.
pub(crate) fn parse(text: &str) -> Result<Message> {
    let json: String = text
        .lines()
        .map(|line| if line.trim_start().starts_with("//") { "\n".to_owned() } else { format!("{line}\n") })
        .collect();
    let message: Message = serde_json::from_str(&json)?;
    message.check().with_context(|| message.name.clone())?;
    Ok(message)
}

impl Message {
    /// The valid versions, the oldest first; empty for a message that is gone.
    pub(crate) fn versions(&self) -> BTreeSet<i16> {
        self.valid_versions.bounds().map(|(first, last)| (first..=last).collect()).unwrap_or_default()
    }

    /// Every structure by its name, in the order in which they are needed, the innermost last: the fields of the
    /// message itself, nested ones, common ones.
    pub(crate) fn structures(&self) -> Result<Vec<(&str, &[Field])>> {
        let common: BTreeMap<&str, &[Field]> = self
            .common_structs
            .iter()
            .map(|common| (common.name.as_str(), common.fields.as_slice()))
            .collect();
        ensure!(common.len() == self.common_structs.len(), "two common structures have one name");
        let mut found: Vec<(&str, &[Field])> = vec![(&self.name, &self.fields)];
        let mut index = 0;
        while let Some(&(_, fields)) = found.get(index) {
            index += 1;
            for field in fields {
                let Some(name) = field.of.structure() else { continue };
                let inner = match (field.fields.as_slice(), common.get(name)) {
                    ([], Some(fields)) => fields,
                    ([], None) => match found.iter().find(|(known, _)| *known == name) {
                        Some((_, fields)) => *fields,
                        None => bail!("{}: no structure is called {name}", field.name),
                    },
                    (_, Some(_)) => bail!("{}: {name} is a common structure and has fields", field.name),
                    (fields, None) => fields,
                };
                match found.iter().find(|(known, _)| *known == name) {
                    None => found.push((name, inner)),
                    Some((_, known)) => ensure!(
                        std::ptr::eq(*known, inner),
                        "{}: two structures are called {name}",
                        field.name
                    ),
                }
            }
        }
        Ok(found)
    }

    fn check(&self) -> Result<()> {
        let versions = self.versions();
        let structures = self.structures()?;
        for (name, fields) in &structures {
            for field in *fields {
                field.check(self, &versions).with_context(|| format!("{name}.{}", field.name))?;
            }
            let tags: Vec<u32> = fields.iter().filter_map(|field| field.tag).collect();
            let expected: BTreeSet<u32> = (0..tags.len() as u32).collect();
            ensure!(tags.into_iter().collect::<BTreeSet<_>>() == expected, "{name}: the tags have gaps");
        }
        // The decoders recurse as structures nest; a cycle would let the bytes decide how deep.
        let edges: BTreeMap<&str, Vec<&str>> = structures
            .iter()
            .map(|(name, fields)| (*name, fields.iter().filter_map(|field| field.of.structure()).collect()))
            .collect();
        for (name, _) in &structures {
            let mut next = edges[name].clone();
            let mut seen = BTreeSet::new();
            while let Some(inner) = next.pop() {
                ensure!(inner != *name, "the structure {name} contains itself");
                if seen.insert(inner) {
                    next.extend(&edges[inner]);
                }
            }
        }
        Ok(())
    }
}

impl Field {
    fn check(&self, message: &Message, versions: &BTreeSet<i16>) -> Result<()> {
        ensure!(
            self.name.starts_with(|c: char| c.is_ascii_alphabetic())
                && self.name.chars().all(|c| c.is_ascii_alphanumeric()),
            "the name is not a field name"
        );
        ensure!(self.tag.is_some() == self.tagged_versions.bounds().is_some(), "tag without tagged versions");
        for &version in versions {
            if self.tagged_versions.contains(version) {
                ensure!(
                    message.flexible_versions.contains(version),
                    "tagged in version {version}, not flexible"
                );
                ensure!(self.versions.contains(version), "tagged in version {version}, not present");
            }
        }
        if self.nullable_versions.bounds().is_some() {
            ensure!(self.of.may_be_null(), "{} cannot be null", self.of.text());
        }
        if let Some(entity) = self.entity_type {
            let base = match &self.of {
                Type::Array(element) => element,
                other => other,
            };
            ensure!(*base == entity.base(), "{} has the type {}", entity.text(), self.of.text());
        }
        ensure!(self.fields.is_empty() || self.of.structure().is_some(), "fields in a {}", self.of.text());
        if self.flexible_versions.is_some() {
            ensure!(matches!(self.of, Type::String | Type::Bytes), "own flexible versions");
        }
        self.default_value().map(drop)
    }

    /// What the field is where nothing says otherwise.
    pub(crate) fn default_value(&self) -> Result<DefaultValue> {
        let text = match &self.default {
            None => None,
            Some(serde_json::Value::String(text)) => Some(text.clone()),
            Some(serde_json::Value::Null) => Some("null".to_owned()),
            Some(value @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_))) => {
                Some(value.to_string())
            }
            Some(other) => bail!("the default {other} is neither text, a number nor a boolean"),
        };
        let text = text.filter(|text| !text.is_empty());
        if text.as_deref() == Some("null") {
            ensure!(
                self.nullable_versions.bounds().is_some(),
                "null is the default of a field that is never null"
            );
            return Ok(DefaultValue::Null);
        }
        let integer = |text: Option<String>, first: i64, last: i64| -> Result<DefaultValue> {
            let Some(text) = text else { return Ok(DefaultValue::Integer(0)) };
            let value = match text.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            let value = value.with_context(|| format!("the default {text:?} is not an integer"))?;
            ensure!((first..=last).contains(&value), "the default {value} is out of range");
            Ok(DefaultValue::Integer(value))
        };
        match (&self.of, text) {
            (Type::Bool, None) => Ok(DefaultValue::Bool(false)),
            (Type::Bool, Some(text)) => {
                Ok(DefaultValue::Bool(text.parse().with_context(|| format!("the default {text:?}"))?))
            }
            (Type::Int8, text) => integer(text, i8::MIN.into(), i8::MAX.into()),
            (Type::Int16, text) => integer(text, i16::MIN.into(), i16::MAX.into()),
            (Type::Uint16, text) => integer(text, 0, u16::MAX.into()),
            (Type::Int32, text) => integer(text, i32::MIN.into(), i32::MAX.into()),
            (Type::Uint32, text) => integer(text, 0, u32::MAX.into()),
            (Type::Int64, text) => integer(text, i64::MIN, i64::MAX),
            (Type::Float64, None) => Ok(DefaultValue::Float(0.0)),
            (Type::Float64, Some(text)) => {
                Ok(DefaultValue::Float(text.parse().with_context(|| format!("the default {text:?}"))?))
            }
            (Type::String, text) => Ok(DefaultValue::Text(text.unwrap_or_default())),
            // Java has no empty records: they begin as null.
            (Type::Records, None) if self.nullable_versions.bounds().is_some() => Ok(DefaultValue::Null),
            (Type::Uuid | Type::Bytes | Type::Records | Type::Struct(_) | Type::Array(_), None) => {
                Ok(DefaultValue::Empty)
            }
            (of, Some(text)) => bail!("the default {text:?} of a {}", of.text()),
        }
    }
}

/// A default value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DefaultValue {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// Zero, no bytes, no elements, or a structure of defaults.
    Empty,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error, with its causes, of a request with these fields.
    fn error(fields: &str) -> String {
        let text = format!(
            r#"{{ "apiKey": 1, "type": "request", "name": "ARequest", "validVersions": "0-3",
                 "flexibleVersions": "2+", "fields": [{fields}] }}"#
        );
        match parse(&text) {
            Ok(message) => panic!("no error: {message:?}"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn a_schema_is_read_with_its_comments() {
        let text = r#"
            // A line.
            { "type": "data", "name": "A", "validVersions": "0-3", "flexibleVersions": "2+",
              // Another.
              "fields": [
                { "name": "Uri", "type": "string", "versions": "0+", "default": "http://a//b" },
                { "name": "Size", "type": "int32", "versions": "1-2", "default": "0x7f" },
                { "name": "Inner", "type": "[]Pair", "versions": "3" }
              ],
              "commonStructs": [{ "name": "Pair", "versions": "0+", "fields": [
                { "name": "Left", "type": "uuid", "versions": "0+" } ]}] }"#;
        let message = parse(text).unwrap();
        assert_eq!(message.versions().into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        let defaults: Vec<_> = message.fields.iter().map(|field| field.default_value().unwrap()).collect();
        assert_eq!(
            defaults,
            [DefaultValue::Text("http://a//b".to_owned()), DefaultValue::Integer(127), DefaultValue::Empty]
        );
        let names: Vec<_> = message.structures().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["A", "Pair"]);
    }

    #[test]
    fn what_a_later_kafka_might_add_is_an_error_and_not_skipped() {
        for (fields, expected) in [
            (r#"{ "name": "A", "type": "int128", "versions": "0+" }"#, "unknown type int128"),
            (r#"{ "name": "A", "type": "int8", "versions": "0+", "scale": 3 }"#, "unknown field `scale`"),
            (
                r#"{ "name": "A", "type": "int8", "versions": "0+", "entityType": "planet" }"#,
                "unknown variant `planet`",
            ),
            (r#"{ "name": "A", "type": "int8", "versions": "3-1" }"#, "the version range \"3-1\" is empty"),
        ] {
            let error = error(fields);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_schema_that_contradicts_itself_is_an_error() {
        for (fields, expected) in [
            (
                r#"{ "name": "A", "type": "B", "versions": "0+", "fields": [
                     { "name": "C", "type": "[]B", "versions": "0+" } ] }"#,
                "the structure B contains itself",
            ),
            (r#"{ "name": "A", "type": "B", "versions": "0+" }"#, "no structure is called B"),
            (
                r#"{ "name": "A", "type": "int8", "versions": "0+", "nullableVersions": "0+" }"#,
                "int8 cannot be null",
            ),
            (
                r#"{ "name": "A", "type": "int8", "versions": "0+", "default": "300" }"#,
                "the default 300 is out of range",
            ),
            (
                r#"{ "name": "A", "type": "string", "versions": "0+", "default": "null" }"#,
                "null is the default of a field that is never null",
            ),
            (
                r#"{ "name": "A", "type": "int8", "versions": "0+", "taggedVersions": "1+", "tag": 0 }"#,
                "tagged in version 1, not flexible",
            ),
            (
                r#"{ "name": "A", "type": "int8", "versions": "2+", "taggedVersions": "2+", "tag": 1 }"#,
                "the tags have gaps",
            ),
            (
                r#"{ "name": "A", "type": "int64", "versions": "0+", "entityType": "brokerId" }"#,
                "a broker id has the type int64",
            ),
        ] {
            let error = error(fields);
            assert!(error.contains(expected), "{error}");
        }
    }
}
