//! Times: how they are read from the command line and how they are printed.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Milliseconds since 1970.
pub(crate) type Millis = i64;

/// The clock of one run: the same answer from start to end, so that a run is repeatable.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// When this run is, in milliseconds since 1970.
    pub(crate) now_ms: Millis,
    /// The zone that screens show times in.
    zone: Option<TimeZone>,
}

impl Clock {
    /// The clock at `now` (RFC 3339, else the system's), showing times in `tz` (a zone name, else UTC).
    pub(crate) fn new(now: Option<&str>, tz: Option<&str>) -> Result<Self, String> {
        let now_ms = match now {
            Some(text) => {
                parse_rfc3339(text).ok_or_else(|| format!("--now {text:?} is not an RFC 3339 time"))?
            }
            None => Timestamp::now().as_millisecond(),
        };
        let zone = match tz {
            None => None,
            Some(name) if name.eq_ignore_ascii_case("utc") => None,
            Some("local") => Some(TimeZone::system()),
            Some(name) => Some(
                TimeZone::get(name)
                    .map_err(|_| format!("--tz {name:?} is not a time zone of this system"))?,
            ),
        };
        Ok(Self { now_ms, zone })
    }

    /// A TIME of the command line: RFC 3339, or a span back from now such as `2h` or `1d12h`.
    pub(crate) fn parse(&self, text: &str) -> Result<Millis, String> {
        if let Some(ms) = parse_rfc3339(text) {
            return Ok(ms);
        }
        match parse_span(text) {
            Some(span) => Ok(self.now_ms.saturating_sub(span)),
            None => Err(format!(
                "{text:?} is not a TIME: RFC 3339 such as 2026-01-31T12:00:00Z, or a span back from now such as 2h"
            )),
        }
    }

    /// A time for people, to the second, in the zone of `--tz`.
    pub(crate) fn show(&self, ms: Millis) -> String {
        let Ok(time) = Timestamp::from_millisecond(ms) else { return format!("{ms} ms since 1970") };
        match &self.zone {
            None => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            Some(zone) => time.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%:z").to_string(),
        }
    }

    /// When `ms` was, seen from now: `3 h 20 min ago`, or `in 5 min` for a time to come.
    pub(crate) fn ago(&self, ms: Millis) -> String {
        if ms > self.now_ms { self.age(ms) } else { format!("{} ago", self.age(ms)) }
    }

    /// How long before now `ms` is, in words: `3 h 20 min`, or `in 5 min` for a time to come.
    pub(crate) fn age(&self, ms: Millis) -> String {
        let age = self.now_ms.saturating_sub(ms);
        if age < 0 { format!("in {}", show_span(age.saturating_neg())) } else { show_span(age) }
    }
}

/// RFC 3339 with a zone or `Z`, as milliseconds since 1970.
fn parse_rfc3339(text: &str) -> Option<Millis> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

const UNITS: [(&str, i64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// A span such as `30m`, `2h` or `1d12h`, in milliseconds; `min` is heard as `m`.
pub(crate) fn parse_span(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    let mut total = 0_i64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "min" => "m",
            unit => unit,
        };
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.checked_mul(*factor)?)?;
        rest = rest[letters..].trim_start();
    }
    Some(total)
}

/// A span in its two largest units: `3 h 20 min`.
pub(crate) fn show_span(ms: i64) -> String {
    let seconds = ms / 1_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    if days > 0 {
        pair(days, "d", hours, "h")
    } else if hours > 0 {
        pair(hours, "h", minutes, "min")
    } else if minutes > 0 {
        pair(minutes, "min", seconds % 60, "s")
    } else if seconds > 0 {
        format!("{seconds} s")
    } else {
        format!("{ms} ms")
    }
}

/// A time for machines: RFC 3339, UTC, milliseconds. `None` where the number is no time that has a date.
pub(crate) fn rfc3339(ms: Millis) -> Option<String> {
    Some(Timestamp::from_millisecond(ms).ok()?.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rfc_3339_or_a_span_back_from_now() {
        let clock = Clock::new(Some("2026-01-02T00:00:00Z"), None).unwrap();
        let shown = |text| clock.parse(text).map(|ms| rfc3339(ms).unwrap());
        assert_eq!(shown("2h").unwrap(), "2026-01-01T22:00:00.000Z");
        assert_eq!(shown("1d12h").unwrap(), "2025-12-31T12:00:00.000Z");
        assert_eq!(shown("500ms").unwrap(), "2026-01-01T23:59:59.500Z");
        assert_eq!(shown("2026-01-01T03:00:00.25+02:00").unwrap(), "2026-01-01T01:00:00.250Z");
        for bad in ["", "2", "h", "2 fortnights", "2026-01-01", "-2h", "9223372036854775807w"] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_zone_changes_what_people_see_and_nothing_else() {
        let clock = Clock::new(Some("2026-07-01T00:00:00Z"), Some("Europe/Berlin")).unwrap();
        assert_eq!(clock.show(clock.now_ms), "2026-07-01 02:00:00+02:00");
        assert!(Clock::new(None, Some("Middle/Earth")).is_err());
        let clock = Clock::new(Some("2026-07-01T00:00:00Z"), None).unwrap();
        assert_eq!(clock.show(clock.now_ms), "2026-07-01 00:00:00Z");
        assert_eq!(clock.show(i64::MAX), "9223372036854775807 ms since 1970");
    }

    #[test]
    fn ages_are_told_in_their_two_largest_units() {
        let clock = Clock::new(Some("2026-01-02T00:00:00Z"), None).unwrap();
        let ages = [0, 999, 61_000, 3_600_000, 12_060_000, 90_000_000, -300_000]
            .map(|age| clock.age(clock.now_ms - age));
        assert_eq!(clock.ago(clock.now_ms - 61_000), "1 min 1 s ago");
        assert_eq!(clock.ago(clock.now_ms + 61_000), "in 1 min 1 s");
        assert_eq!(ages, ["0 ms", "999 ms", "1 min 1 s", "1 h", "3 h 21 min", "1 d 1 h", "in 5 min"]);
    }
}
