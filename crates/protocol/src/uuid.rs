use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A 16-byte UUID that prints as Kafka prints it: URL-safe base64 without padding, 22 characters.
///
/// Source: `org.apache.kafka.common.Uuid`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// The text is not a UUID in Kafka's form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a Kafka UUID: 22 characters of URL-safe base64 are expected")]
pub struct ParseUuidError {
    text: String,
}

impl Uuid {
    /// All zero: Kafka's way to say "none".
    pub const ZERO: Self = Self([0; 16]);

    /// True for the all-zero id, which names nothing.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// The first eight bytes as a big-endian integer (Java's most significant bits).
    pub fn most_significant(self) -> i64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The last eight bytes as a big-endian integer (Java's least significant bits).
    pub fn least_significant(self) -> i64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The 22 ASCII characters of the text form, without an allocation.
    pub fn encode(self) -> [u8; 22] {
        let mut out = [0; 22];
        let written = URL_SAFE_NO_PAD.encode_slice(self.0, &mut out);
        debug_assert_eq!(written, Ok(22), "16 bytes are 22 characters");
        out
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.encode();
        f.pad(std::str::from_utf8(&text).expect("base64 is ASCII"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseUuidError { text: text.chars().take(64).collect() };
        if text.len() != 22 {
            return Err(error());
        }
        // The decoder asks for room for whole groups of three bytes.
        let mut bytes = [0; 18];
        match (URL_SAFE_NO_PAD.decode_slice(text, &mut bytes), bytes.first_chunk()) {
            (Ok(16), Some(bytes)) => Ok(Self(*bytes)),
            _ => Err(error()),
        }
    }
}

/// The id of a topic (KIP-516): a topic that is deleted and created again has another one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub Uuid);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TopicId {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl From<Uuid> for TopicId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prints_and_parses_as_kafka_does() {
        let id: Uuid = "vaZwr6blSEWMAbm7z-tW-w".parse().unwrap();
        assert_eq!(id.most_significant() as u64, 0xbda6_70af_a6e5_4845);
        assert_eq!(id.least_significant() as u64, 0x8c01_b9bb_cfeb_56fb);
        assert_eq!(id.to_string(), "vaZwr6blSEWMAbm7z-tW-w");
        assert!("vaZwr6blSEWMAbm7z-tW-".parse::<Uuid>().is_err());
        assert!("vaZwr6blSEWMAbm7z+tW/w".parse::<Uuid>().is_err());
    }
}
