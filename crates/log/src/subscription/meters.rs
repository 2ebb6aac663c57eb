//! What the readings count for the facade `metrics`. Without the feature of that name nothing is counted.

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

#[cfg(feature = "metrics")]
const LAG: &str = "strandline_log_lag_offsets";
#[cfg(feature = "metrics")]
const RECORDS: &str = "strandline_log_records_total";
#[cfg(feature = "metrics")]
const RETRIES: &str = "strandline_log_retries_total";
#[cfg(feature = "metrics")]
const STOPS: &str = "strandline_log_stops_total";

/// Describes the metrics of followed partitions to the recorder that is installed now. The one label is `partition`, the number
/// of the metadata partition.
#[cfg(feature = "metrics")]
pub fn describe_metrics() {
    describe_gauge!(LAG, "Offsets between a followed partition's reading and the end of its log");
    describe_counter!(RECORDS, "Records put into the queues of subscribers");
    describe_counter!(RETRIES, "Failures of followed partitions after which it was tried again");
    describe_counter!(STOPS, "Followed partitions that stopped for good");
}

/// Those of one partition.
#[cfg(feature = "metrics")]
#[derive(Clone, Debug)]
pub(super) struct Meters {
    lag: Gauge,
    records: Counter,
    retries: Counter,
    stops: Counter,
}

#[cfg(feature = "metrics")]
impl Meters {
    pub(super) fn of(partition: i32) -> Self {
        let partition = partition.to_string();
        Self {
            lag: gauge!(LAG, "partition" => partition.clone()),
            records: counter!(RECORDS, "partition" => partition.clone()),
            retries: counter!(RETRIES, "partition" => partition.clone()),
            stops: counter!(STOPS, "partition" => partition),
        }
    }

    pub(super) fn lag(&self, offsets: i64) {
        self.lag.set(offsets as f64);
    }

    pub(super) fn record(&self) {
        self.records.increment(1);
    }

    pub(super) fn retry(&self) {
        self.retries.increment(1);
    }

    pub(super) fn stop(&self) {
        self.stops.increment(1);
    }
}

/// Nothing.
#[cfg(not(feature = "metrics"))]
#[derive(Clone, Debug)]
pub(super) struct Meters;

#[cfg(not(feature = "metrics"))]
impl Meters {
    pub(super) fn of(_partition: i32) -> Self {
        Self
    }

    pub(super) fn lag(&self, _offsets: i64) {}

    pub(super) fn record(&self) {}

    pub(super) fn retry(&self) {}

    pub(super) fn stop(&self) {}
}
