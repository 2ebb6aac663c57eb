use std::collections::BTreeMap;
use std::fmt;

use strandline_protocol::{ApiKey, VersionRange};

/// Which requests a broker answers, each in which versions, as its ApiVersions answer says.
///
/// Keys that Kafka 4.4 does not know are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerVersions(BTreeMap<ApiKey, VersionRange>);

impl BrokerVersions {
    /// From key, oldest and newest version of each entry. An entry whose range is empty counts as absent.
    pub(crate) fn new(entries: impl IntoIterator<Item = (i16, i16, i16)>) -> Self {
        let known = entries.into_iter().filter_map(|(key, first, last)| {
            let key = ApiKey::from_code(key)?;
            (first <= last).then_some((key, VersionRange { first, last }))
        });
        Self(known.collect())
    }

    /// The broker's versions of `api`; `None` if it does not answer it at all.
    pub fn range(&self, api: ApiKey) -> Option<VersionRange> {
        self.0.get(&api).copied()
    }

    /// Every API the broker answers, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (ApiKey, VersionRange)> + '_ {
        self.0.iter().map(|(api, range)| (*api, *range))
    }

    /// The highest version of `api` within `ours`, the broker's range, and `at_most`.
    ///
    /// # Errors
    /// There is none, or the broker does not answer `api` at all.
    pub fn pick(
        &self,
        api: ApiKey,
        ours: VersionRange,
        at_most: Option<i16>,
    ) -> Result<i16, NoCommonVersion> {
        let broker = self.range(api);
        let capped =
            VersionRange { first: ours.first, last: at_most.map_or(ours.last, |cap| cap.min(ours.last)) };
        let common = broker.and_then(|broker| broker.intersect(capped));
        common.map(|common| common.last).ok_or(NoCommonVersion { api, ours, at_most, broker })
    }
}

/// Broker and client have no version of a request in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCommonVersion {
    /// The request.
    pub api: ApiKey,
    /// The versions this client has.
    pub ours: VersionRange,
    /// The highest version that would do for this request's data; `None` if any will.
    pub at_most: Option<i16>,
    /// The versions the broker answers; `None` if it does not know the request.
    pub broker: Option<VersionRange>,
}

impl fmt::Display for NoCommonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no version that both sides speak: this client {}", self.api, self.ours)?;
        if let Some(cap) = self.at_most {
            write!(f, " (here at most {cap})")?;
        }
        match self.broker {
            Some(broker) => write!(f, ", the broker {broker}"),
            None => f.write_str(", the broker none at all"),
        }
    }
}

impl std::error::Error for NoCommonVersion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_picked_and_none_is_an_error_with_both_ranges() {
        let range = |first, last| VersionRange { first, last };
        let versions = BrokerVersions::new([(1, 4, 13), (3, 0, 9), (2, 5, 4), (9_999, 0, 0)]);
        let pick =
            |ours, at_most| versions.pick(ApiKey::Fetch, ours, at_most).map_err(|error| error.to_string());
        let none = |text: &str| Err(format!("Fetch has no version that both sides speak: {text}"));
        assert_eq!(pick(range(4, 18), None), Ok(13));
        assert_eq!(pick(range(4, 11), None), Ok(11));
        assert_eq!(pick(range(4, 18), Some(12)), Ok(12));
        assert_eq!(pick(range(14, 18), None), none("this client 14 to 18, the broker 4 to 13"));
        assert_eq!(
            pick(range(14, 18), Some(13)),
            none("this client 14 to 18 (here at most 13), the broker 4 to 13")
        );
        let absent = versions.pick(ApiKey::ListOffsets, range(1, 1), None).unwrap_err().to_string();
        assert_eq!(
            absent,
            "ListOffsets has no version that both sides speak: this client 1, the broker none at all"
        );
    }
}
