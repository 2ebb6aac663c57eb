//! What can be asked of a broker.

use std::fmt;

/// The versions of a message from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionRange {
    /// The oldest version.
    pub first: i16,
    /// The newest version, `first` or higher.
    pub last: i16,
}

impl VersionRange {
    /// True if the range has this version.
    pub const fn contains(self, version: i16) -> bool {
        self.first <= version && version <= self.last
    }

    /// The versions that both ranges have; `None` if there are none.
    pub fn intersect(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }

    /// Every version, the oldest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = i16> {
        self.first..=self.last
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first} to {last}"),
        }
    }
}

/// The rows are generated: `messages/api_keys.rs`.
macro_rules! api_keys {
    ($($code:literal $name:ident $versions:tt $flexible:tt $listeners:tt;)*) => {
        /// Every API of Kafka 4.4, whether or not this crate has its messages.
        ///
        /// Prints as Kafka names it, `ListOffsets`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $(#[doc = concat!("`", stringify!($name), "`, key ", stringify!($code), ".")] $name = $code,)*
        }

        impl ApiKey {
            /// Every key, in the order of the numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The key of a number; `None` for one that Kafka 4.4 does not know.
            pub fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name as Kafka writes it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The versions that Kafka 4.4 has; `None` for an API that is gone from it.
            pub const fn versions(self) -> Option<VersionRange> {
                match self {
                    $(Self::$name => api_keys!(@versions $versions),)*
                }
            }

            /// The first version with compact lengths and tagged fields (KIP-482); `None` if no version has them.
            pub const fn flexible_from(self) -> Option<i16> {
                match self {
                    $(Self::$name => api_keys!(@flexible $flexible),)*
                }
            }

            /// True if brokers answer it (a broker that is a controller too has a listener for each role).
            pub const fn served_by_brokers(self) -> bool {
                match self {
                    $(Self::$name => api_keys!(@brokers $listeners),)*
                }
            }

            /// True if controllers answer it.
            pub const fn served_by_controllers(self) -> bool {
                match self {
                    $(Self::$name => api_keys!(@controllers $listeners),)*
                }
            }
        }
    };
    (@versions none) => { None };
    (@versions ($first:literal - $last:literal)) => { Some(VersionRange { first: $first, last: $last }) };
    (@flexible none) => { None };
    (@flexible ($first:literal +)) => { Some($first) };
    (@brokers (broker $($others:tt)*)) => { true };
    (@brokers ($($others:tt)*)) => { false };
    (@controllers (controller)) => { true };
    (@controllers (broker controller)) => { true };
    (@controllers ($($others:tt)*)) => { false };
}

pub(crate) use api_keys;

impl crate::ApiKey {
    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The version of the request header in front of a request of this version.
    ///
    /// Source: `ApiMessageType#requestHeaderVersion`.
    pub const fn request_header_version(self, version: i16) -> i16 {
        match self.flexible_from() {
            Some(flexible) if version >= flexible => 2,
            _ => 1,
        }
    }

    /// The version of the response header in front of a response of this version. ApiVersions always has the oldest
    /// one, so that a client can read it before anything is negotiated (KIP-511).
    ///
    /// Source: `ApiMessageType#responseHeaderVersion`.
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self.flexible_from() {
            Some(flexible) if version >= flexible && !matches!(self, Self::ApiVersions) => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for crate::ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
