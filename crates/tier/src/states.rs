//! The state machines of KIP-405, one row per state.

use std::fmt;

macro_rules! states {
    ($(
        $(#[$doc:meta])*
        enum $name:ident {
            $( $(#[$state_doc:meta])* $id:literal $variant:ident $text:ident => [$($next:ident)*]; )*
        }
        starts with $first:ident
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i8)]
        pub enum $name {
            $(
                $(#[$state_doc])*
                $variant = $id,
            )*
        }

        impl $name {
            /// Every state, by ascending id.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The number that stands for the state in a record.
            pub fn id(self) -> i8 {
                self as i8
            }

            /// The state that a record's number stands for; `None` for a number without a state.
            pub fn from_id(id: i8) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The state's name as Kafka spells it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($text),)*
                }
            }

            /// The state of that name; `None` when there is none.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|state| state.name() == name)
            }

            /// True when Kafka's table lets `next` follow `current`; `None` is "nothing known yet".
            pub fn is_valid_transition(current: Option<Self>, next: Self) -> bool {
                match current {
                    None => next == Self::$first,
                    $(Some(Self::$variant) => matches!(next, $(Self::$next)|*),)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}

states! {
    /// Where a remote log segment is in its life.
    ///
    /// Source: KIP-405, `org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState`.
    enum RemoteLogSegmentState {
        /// The copy has begun; nothing can be read yet.
        0 CopySegmentStarted COPY_SEGMENT_STARTED
            => [CopySegmentStarted CopySegmentFinished DeleteSegmentStarted];
        /// The copy is complete and can be read.
        1 CopySegmentFinished COPY_SEGMENT_FINISHED => [CopySegmentFinished DeleteSegmentStarted];
        /// The deletion has begun; nothing can be read any more.
        2 DeleteSegmentStarted DELETE_SEGMENT_STARTED => [DeleteSegmentStarted DeleteSegmentFinished];
        /// The segment is gone.
        3 DeleteSegmentFinished DELETE_SEGMENT_FINISHED => [DeleteSegmentFinished];
    }
    starts with CopySegmentStarted

    /// How far the deletion of a partition's remote data is.
    ///
    /// Kafka's brokers accept these events in any order: the transitions are a statement of intent.
    /// Source: KIP-405, `org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState`.
    enum RemotePartitionDeleteState {
        /// The partition is to be deleted.
        0 DeletePartitionMarked DELETE_PARTITION_MARKED => [DeletePartitionMarked DeletePartitionStarted];
        /// The deletion has begun.
        1 DeletePartitionStarted DELETE_PARTITION_STARTED
            => [DeletePartitionStarted DeletePartitionFinished];
        /// Everything of the partition is gone.
        2 DeletePartitionFinished DELETE_PARTITION_FINISHED => [DeletePartitionFinished];
    }
    starts with DeletePartitionMarked
}
