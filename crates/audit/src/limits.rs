use std::fmt;

/// How long things may take before a rule speaks. All in milliseconds; set by name with [`Limits::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `copy-stuck`: how long a copy may stay started. 30 minutes.
    pub copy_stuck_ms: i64,
    /// `delete-stuck`: how long a deletion may stay started. 30 minutes.
    pub delete_stuck_ms: i64,
    /// `no-upload`: how long a partition with waiting segments may go without a finished copy. 1 hour.
    pub no_upload_ms: i64,
    /// `overdue-slack`: how long after its due time retention may come. 1 hour.
    pub overdue_slack_ms: i64,
    /// `copy-lag`: how old the newest record of a waiting segment may be. 1 hour.
    pub copy_lag_ms: i64,
    /// `silent-broker`: how long a broker with waiting segments may write no event. 6 hours.
    pub silent_broker_ms: i64,
    /// `clock-skew`: how far ahead of now a record's time may lie. 5 minutes.
    pub clock_skew_ms: i64,
}

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

impl Default for Limits {
    fn default() -> Self {
        Self {
            copy_stuck_ms: 30 * MINUTE,
            delete_stuck_ms: 30 * MINUTE,
            no_upload_ms: HOUR,
            overdue_slack_ms: HOUR,
            copy_lag_ms: HOUR,
            silent_broker_ms: 6 * HOUR,
            clock_skew_ms: 5 * MINUTE,
        }
    }
}

/// There is no limit of that name, or the value is below zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// No such limit; the message lists those there are.
    UnknownName(String),
    /// A limit cannot be negative.
    Negative(String),
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => {
                write!(f, "no limit is called {name:?}; there are {}", Limits::NAMES.join(", "))
            }
            Self::Negative(name) => write!(f, "limit {name} cannot be negative"),
        }
    }
}

impl std::error::Error for LimitError {}

impl Limits {
    /// The names that [`Limits::set`] knows.
    pub const NAMES: [&'static str; 7] = [
        "copy-stuck",
        "delete-stuck",
        "no-upload",
        "overdue-slack",
        "copy-lag",
        "silent-broker",
        "clock-skew",
    ];

    /// Sets the limit of that name to `value_ms` milliseconds.
    pub fn set(&mut self, name: &str, value_ms: i64) -> Result<(), LimitError> {
        let field = match name {
            "copy-stuck" => &mut self.copy_stuck_ms,
            "delete-stuck" => &mut self.delete_stuck_ms,
            "no-upload" => &mut self.no_upload_ms,
            "overdue-slack" => &mut self.overdue_slack_ms,
            "copy-lag" => &mut self.copy_lag_ms,
            "silent-broker" => &mut self.silent_broker_ms,
            "clock-skew" => &mut self.clock_skew_ms,
            _ => return Err(LimitError::UnknownName(name.chars().take(64).collect())),
        };
        if value_ms < 0 {
            return Err(LimitError::Negative(name.to_owned()));
        }
        *field = value_ms;
        Ok(())
    }
}
