//! The one table of rules: code, severity, meaning, effect, causes, what to do, and the facts each needs.

use crate::finding::Severity;
use crate::finding::Severity::{Cost, Damage, Info, Risk};

/// What a rule speaks of; also the file that holds its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Single records of the metadata topic.
    Events,
    /// One segment of the tier.
    Segments,
    /// One user partition, or a topic.
    Partitions,
    /// The store's objects.
    Objects,
    /// The metadata topic itself.
    MetadataTopic,
}

impl Group {
    /// The group's name, as a heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Events => "Events",
            Self::Segments => "Segments",
            Self::Partitions => "Partitions and topics",
            Self::Objects => "Objects",
            Self::MetadataTopic => "The metadata topic",
        }
    }
}

/// A fact that a rule cannot do without. Where it is absent the rule is *not checked*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// The metadata topic's partition count.
    MetadataPartitionCount,
    /// The metadata topic's configs.
    MetadataConfigs,
    /// The metadata topic's replication factor and the number of brokers.
    MetadataReplication,
    /// Which replicas of the metadata topic are in sync and online.
    MetadataReplicas,
    /// The metadata topic's log start offsets.
    MetadataLogStarts,
    /// The metadata topic's files.
    MetadataFiles,
    /// Every event of the topic, not those of some partitions.
    AllEvents,
    /// The topic's configs.
    TopicConfigs,
    /// Which topics the cluster has.
    TopicIds,
    /// The leader's log start offset.
    LogStart,
    /// The leader's local start offset.
    LocalStart,
    /// The leader's log end offset.
    LogEnd,
    /// The leader of each partition.
    Leader,
    /// The leader's epochs.
    LeaderEpochs,
    /// The segment files of local logs, or at least their bytes.
    LocalSegments,
    /// The store's listing.
    Listing,
    /// A listing that came to its end.
    WholeListing,
}

impl Need {
    /// The fact in words, after "needs".
    pub fn words(self) -> &'static str {
        match self {
            Self::MetadataPartitionCount => "the metadata topic's partition count",
            Self::MetadataConfigs => "the metadata topic's configs",
            Self::MetadataReplication => "the metadata topic's replication factor and the number of brokers",
            Self::MetadataReplicas => "the metadata topic's replicas in sync",
            Self::MetadataLogStarts => "the metadata topic's log start offsets",
            Self::MetadataFiles => "the metadata topic's files",
            Self::AllEvents => "every event of the metadata topic",
            Self::TopicConfigs => "the topic's configs",
            Self::TopicIds => "the cluster's topics and their ids",
            Self::LogStart => "the leader's log start offset",
            Self::LocalStart => "the leader's local start offset",
            Self::LogEnd => "the leader's log end offset",
            Self::Leader => "the partition's leader",
            Self::LeaderEpochs => "the leader's epochs",
            Self::LocalSegments => "the local logs' segments or bytes (log directories)",
            Self::Listing => "the store's listing",
            Self::WholeListing => "a listing of the store that came to its end",
        }
    }
}

/// What to read again before a finding is believed, because a change between two readings could explain it.
///
/// The order of the first reading: for orphans list first, then read metadata to end offsets taken after the
/// listing; for missing objects metadata first, then the listing. The local start before the metadata's end
/// offsets, log start and epoch ends after them. A candidate is then read once more as its rule says, judged
/// again, and kept where both agree ([`Report::retain_confirmed`](crate::Report::retain_confirmed)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recheck {
    /// Nothing: no race explains it.
    Nothing,
    /// The partition's newest events, up to a new end of its metadata partition.
    NewestEvents,
    /// The partition's log start, local start, log end and epochs, then its newest events.
    LogOffsetsAndNewestEvents,
    /// Each object of the finding by its key, and the segment's newest events.
    ObjectsAndNewestEvents,
    /// The cluster's topics, by name, and the topic's newest events.
    TopicIdsAndNewestEvents,
}

/// One row of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The code that findings carry.
    pub code: &'static str,
    /// What it speaks of.
    pub group: Group,
    /// How bad it is as a rule; the definition says where it is milder or worse.
    pub severity: Severity,
    /// A few words.
    pub title: &'static str,
    /// Exactly when it speaks.
    pub definition: &'static str,
    /// What the state of affairs does to readers, brokers or the bill.
    pub effect: &'static str,
    /// How it comes about.
    pub causes: &'static str,
    /// What to do.
    pub next: &'static str,
    /// The facts it cannot do without.
    pub needs: &'static [Need],
    /// What to read again before it is believed.
    pub recheck: Recheck,
}

/// The rule of that code.
pub fn rule(code: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.code == code)
}

macro_rules! rules {
    ($($group:ident {$(
        $code:literal $severity:ident $title:literal
            means $definition:literal
            effect $effect:literal
            causes $causes:literal
            next $next:literal
            needs [$($need:ident)*]
            recheck $recheck:ident;
    )*})*) => {
        /// Every rule, by group, in the order of the catalogue.
        pub const RULES: &[Rule] = &[$($(Rule {
            code: $code,
            group: Group::$group,
            severity: $severity,
            title: $title,
            definition: $definition,
            effect: $effect,
            causes: $causes,
            next: $next,
            needs: &[$(Need::$need),*],
            recheck: Recheck::$recheck,
        },)*)*];
    };
}

rules! {
Events {
    "event.undecodable" Damage "A record that no reader can decode"
        means "The bytes of a record's value are not an event in any known form."
        effect "A Java broker that reads this metadata partition stops reading metadata for good: stale reads, failing copies, and the same record again after a restart."
        causes "A foreign producer wrote to the topic, or the bytes were damaged before they were stored."
        next "Find and stop the writer. Brokers need the record skipped or its partition's log trimmed beyond it before they can read on; look at it with `strandline events --from PARTITION:OFFSET` first."
        needs [] recheck Nothing;
    "event.unknown-api" Damage "An event of a kind that nobody knows"
        means "The api key or version of a record is known neither here nor to Kafka 4.4."
        effect "A Java broker that does not know it stops reading the metadata partition for good."
        causes "A newer or modified broker, or another program, writes to the topic."
        next "Find out who wrote it (`strandline events`). If a newer broker did, finish the upgrade of the others before they restart."
        needs [] recheck Nothing;
    "event.poison" Damage "An event that ends a Java broker's reading"
        means "Decodable, yet no Java broker survives it: a null value, a snapshot record, key 0 in a state other than COPY_SEGMENT_STARTED, an update to COPY_SEGMENT_STARTED of a segment in that state, a record that the checks refuse, or DELETE_PARTITION_FINISHED that is followed by events of the partition or whose topic id the cluster still has."
        effect "A Java broker that meets it stops reading metadata for good: stale reads, every write times out, new partitions never become ready, and a restart meets the same record again."
        causes "A writer other than the broker's own manager, or a broker with a fault."
        next "Stop the writer. Brokers need the record skipped or its partition's log trimmed beyond it; keep a copy of the events first (`strandline events -o jsonl`)."
        needs [] recheck Nothing;
    "event.misplaced" Damage "Events in the wrong metadata partition"
        means "An event lies in a metadata partition other than the one that the partitioner gives for its topic id and partition."
        effect "A broker that happens to read that partition applies it, others never see it, and its offset can make a reader skip rightly placed events."
        causes "A writer with another partitioner or another idea of the partition count."
        next "Find the writer by broker id and time. Publish the missing events to the right partition, after checking each against the segment's state."
        needs [MetadataPartitionCount AllEvents] recheck Nothing;
    "event.base-missing" Damage "Updates of a segment that was never introduced"
        means "A segment id has updates and no event that introduces it."
        effect "No reader knows the segment's offsets: it can be neither read nor deleted, and its objects stay."
        causes "The metadata topic was trimmed or compacted, or the first record was lost."
        next "Check the retention of the metadata topic (`meta.retention`, `meta.trimmed`). The object store still has the segment; rebuild its metadata from there."
        needs [] recheck NewestEvents;
    "event.id-mismatch" Damage "An update that names another topic, id or partition than its base"
        means "An update's topic, topic id or partition differs from that of the event which introduced the segment."
        effect "Readers look for the segment under the update's partition, do not find it, and ignore the update."
        causes "A writer that builds the ids itself, or a topic that was created anew between the two."
        next "Find the writer. Publish the update again under the right partition."
        needs [] recheck Nothing;
    "event.invalid-transition" Risk "A state that cannot follow the one before"
        means "As updates: CF to CS, CF to DF, CS to DF, DS to CF, DS to CS, CS, CF or DS after DF, or an update before the segment is introduced."
        effect "Every reader drops the event, so its writer believes something that nobody else does."
        causes "Two brokers that act on one segment, or a writer that does not keep the order."
        next "Compare the segment's timeline with the leader changes at that time (`strandline explain`)."
        needs [] recheck Nothing;
    "event.duplicate-base" Risk "A segment introduced twice with different content"
        means "Key 0 twice for one segment id with different content, or again after DELETE_SEGMENT_FINISHED."
        effect "Which content counts depends on the segment's state when the second one is read; old epochs of the first stay listed."
        causes "A segment id used twice."
        next "See which content the objects have, and delete the segment that is not the right one."
        needs [] recheck Nothing;
    "event.custom-metadata-lost" Risk "A deletion without the custom metadata that the copy had"
        means "An update to DELETE_SEGMENT_STARTED or DELETE_SEGMENT_FINISHED drops custom metadata that COPY_SEGMENT_FINISHED had."
        effect "The storage plugin may not find the object to delete, which then stays for ever."
        causes "A writer that builds the update anew instead of copying the custom metadata."
        next "Check whether the segment's objects are gone; delete them by hand if not."
        needs [] recheck Nothing;
    "event.repeat" Info "The same state again"
        means "An event repeats the state that its segment is in."
        effect "None."
        causes "A retry whose first attempt was stored."
        next "Nothing."
        needs [] recheck Nothing;
    "event.time-regress" Info "Event times run backwards"
        means "An event of a user partition is more than a minute older than the one before it."
        effect "None for readers, which go by offsets. Ages shown here may be wrong by as much."
        causes "A broker's clock is off, or was set back."
        next "Check the clocks of the brokers that wrote the two events."
        needs [] recheck Nothing;
    "event.transactional" Info "Transactional or control records in the metadata topic"
        means "A control or transactional record in the topic: info. A control record at the end of a partition: risk."
        effect "A control record at the end of a partition keeps a starting broker from becoming ready until another event arrives."
        causes "A transactional producer writes to the topic; no broker does."
        next "Find that producer and stop it. Any further event in the partition lifts the block."
        needs [] recheck Nothing;
}
Segments {
    "seg.bad-range" Damage "A segment that ends before it starts"
        means "The segment's end lies before its start, or an offset is negative."
        effect "No reader accepts the event; see `event.poison`."
        causes "A writer other than the broker's own manager."
        next "As for `event.poison`."
        needs [] recheck Nothing;
    "seg.epochs-empty" Damage "A segment without leader epochs"
        means "The segment names no leader epochs."
        effect "No reader accepts the event; see `event.poison`."
        causes "A writer other than the broker's own manager."
        next "As for `event.poison`."
        needs [] recheck Nothing;
    "seg.epochs-not-monotonic" Damage "Offsets fall as leader epochs rise"
        means "In a live segment a higher leader epoch starts at a lower offset."
        effect "Look-ups at the lower epoch find nothing, or the wrong range."
        causes "A damaged leader epoch checkpoint on the broker that copied."
        next "Compare with the leader's `leader-epoch-checkpoint`; read the offsets concerned with a consumer."
        needs [] recheck Nothing;
    "seg.epochs-outside-range" Risk "A leader epoch that starts below its segment"
        means "In a live segment a leader epoch's start lies below the segment's start; beyond its end + 1 it is seg.epoch-overrun."
        effect "Look-ups below the segment's start return the segment, which does not hold those offsets."
        causes "Epochs that were not clipped to the segment."
        next "Compare with the leader's `leader-epoch-checkpoint`."
        needs [] recheck Nothing;
    "seg.epoch-overrun" Damage "A leader epoch that starts beyond its segment"
        means "In a live segment a leader epoch's start lies beyond the segment's end + 1."
        effect "A Java broker's search for the next transaction index never returns: a fetch thread spins."
        causes "Epochs that were not clipped to the segment."
        next "Delete the segment through the broker once its offsets are not needed, or before consumers with read_committed reach it."
        needs [] recheck Nothing;
    "seg.zero-size" Risk "A readable segment without bytes"
        means "A readable segment's size is zero or negative."
        effect "Size retention counts it wrongly, and a reader finds nothing in it."
        causes "An upload of an empty file, or a size beyond 2 GiB that wrapped around."
        next "Check the size of its data object."
        needs [] recheck Nothing;
    "seg.copy-stuck" Risk "A copy that was started and never finished"
        means "COPY_SEGMENT_STARTED older than `copy-stuck`, no later event, and no finished copy covers the segment's offsets. Not below the log start offset."
        effect "Uploads of the partition may stand still; local disk fills, since what is not copied is not deleted."
        causes "The broker stopped or lost leadership during the copy, or the store refuses it."
        next "Look at the log of the broker that started it, at the time given. If the partition copies on, the next retention run removes the leftover."
        needs [] recheck NewestEvents;
    "seg.copy-abandoned" Cost "A copy that another one replaced"
        means "As seg.copy-stuck, but finished copies cover the segment's offsets."
        effect "Objects of the abandoned copy may be left in the store."
        causes "A failed upload that was retried under a new id, or a leader change during the copy."
        next "Usually nothing: retention removes it with its offsets. Compare with the store (`--store`) for objects left."
        needs [] recheck NewestEvents;
    "seg.delete-stuck" Cost "A deletion that was started and never finished"
        means "DELETE_SEGMENT_STARTED older than `delete-stuck`, and no DELETE_SEGMENT_FINISHED."
        effect "The objects may still be there and are paid for; the segment stays listed."
        causes "The store refuses the deletion, or the broker stopped and the partition has no leader with tiering on."
        next "Look at the leader's log for the deletion's error; rights to delete are the usual cause."
        needs [] recheck NewestEvents;
    "seg.delete-retrying" Info "A deletion that was started more than once"
        means "More than one DELETE_SEGMENT_STARTED for the segment."
        effect "None, if it ends."
        causes "A failed attempt, repeated at the next retention run."
        next "Nothing, unless seg.delete-stuck speaks as well."
        needs [] recheck Nothing;
    "seg.shadowed" Cost "A finished copy that nothing finds"
        means "Finished, but neither a look-up nor a per-epoch list returns it."
        effect "Neither reads nor retention ever find it: it is paid for until the topic is deleted."
        causes "A later, shorter upload with the same start offset took its place."
        next "Check that its offsets are served by others (`part.hole-in-epoch` says if not)."
        needs [] recheck NewestEvents;
    "seg.duplicate" Cost "The same offsets stored twice"
        means "Two finished segments hold exactly the same offsets at the same leader epochs."
        effect "The bytes are paid for twice."
        causes "A copy that succeeded although its writer saw an error, or a leader change during the copy."
        next "Nothing urgent: retention removes both in time."
        needs [] recheck NewestEvents;
    "seg.contained" Cost "A segment inside another"
        means "All offsets of a finished segment are held by one other finished segment, at the same leader epochs."
        effect "The bytes are paid for twice."
        causes "A leader change: replicas roll their segments at different offsets."
        next "Nothing urgent: retention removes both in time."
        needs [] recheck NewestEvents;
    "seg.overlap" Cost "Segments that overlap"
        means "Two finished segments share some offsets at the same leader epoch, and each has others."
        effect "The shared bytes are paid for twice."
        causes "A leader change: replicas roll their segments at different offsets."
        next "Nothing urgent: retention removes both in time."
        needs [] recheck NewestEvents;
    "seg.not-in-lineage" Info "A segment of an abandoned lineage"
        means "No leader epoch of a finished segment is in the leader's lineage. Not for a segment below the log start whose epochs are all older than the leader's earliest."
        effect "No consumer reads it; retention removes it in time."
        causes "An unclean leader election."
        next "Nothing. It may be the only copy of what the election lost; it is never proposed for deletion."
        needs [LeaderEpochs] recheck LogOffsetsAndNewestEvents;
    "seg.timestamp-future" Risk "A segment with records from the future"
        means "The newest record of a live segment lies beyond now by more than `clock-skew`."
        effect "Retention by time does not remove it, nor anything after it."
        causes "A producer with a wrong clock or unit of time."
        next "Find the producer. `message.timestamp.after.max.ms` refuses such records; retention by bytes or deleting records gets past the segment."
        needs [] recheck Nothing;
}
Partitions {
    "part.gap" Damage "Offsets missing between two segments"
        means "Offsets between two readable segments, at or above the log start offset, that no finished segment of the lineage holds. Risk where the leader's local log still holds them."
        effect "Where the leader's local log does not hold them, or no longer, a consumer that reaches these offsets fails with OFFSET_OUT_OF_RANGE or a storage error, and resets or stops."
        causes "Metadata lost, a segment deleted out of turn, or an upload skipped."
        next "Look for objects of these offsets in the store, and keep those; if a replica still has them locally, keep it from deleting them: raise local.retention.ms and local.retention.bytes of the topic."
        needs [] recheck LogOffsetsAndNewestEvents;
    "part.gap-to-local" Damage "Offsets missing between the tier and the local log"
        means "Offsets at or above the log start, above the tier's end and below the leader's local start: in neither."
        effect "A consumer that reaches these offsets fails with OFFSET_OUT_OF_RANGE or a storage error, and resets or stops."
        causes "Local segments deleted before they were copied, or a leader whose local log starts later than that of the broker that copied."
        next "See whether another replica still holds them locally, and make it leader before it deletes them."
        needs [LogStart LocalStart] recheck LogOffsetsAndNewestEvents;
    "part.start-mismatch" Risk "The log starts below the first readable offset"
        means "The leader's log start offset is below the first readable offset of the tier. A log start that a broker's files tell is older than the log's own: there, segments whose deletion has begun count as passed."
        effect "Consumers that start at the beginning ask for offsets that the tier does not have."
        causes "A segment at the low end lost or deleted without moving the log start offset."
        next "If the offsets are gone, move the log start with `kafka-delete-records` so that consumers begin where data is."
        needs [LogStart] recheck LogOffsetsAndNewestEvents;
    "part.hole-in-epoch" Damage "Offsets that a segment holds and no look-up returns"
        means "A finished segment of the lineage holds the offset, yet no look-up at its leader epoch returns it. At or above the log start offset. Risk where the leader's local log still holds it."
        effect "A consumer that reaches these offsets fails, although the object store has them."
        causes "A later, shorter upload displaced the longer segment from the index."
        next "The data is there: it can be read from the object. A repeated COPY_SEGMENT_FINISHED of the longer segment brings it back into the index."
        needs [] recheck LogOffsetsAndNewestEvents;
    "part.diverged-tail" Risk "The tier goes beyond the leader's end of an epoch"
        means "The highest copied offset of a leader epoch lies beyond the leader's end of that epoch."
        effect "The tier holds records that the leader does not have; a new leader may serve either."
        causes "An unclean leader election after the copy."
        next "Compare the records at those offsets before consumers rely on them."
        needs [LeaderEpochs] recheck LogOffsetsAndNewestEvents;
    "part.retention-blocked" Cost "Retention is due and one segment stops it"
        means "Retention by time is due, for longer than `overdue-slack`, for segments that lie behind one that is not due, in the order in which the leader walks them."
        effect "What is due stays, and is paid for, until that segment goes."
        causes "A record with a time in the future, or a leftover copy, in the segment named."
        next "Look at the named segment. Retention by bytes or deleting records gets past it."
        needs [TopicConfigs LeaderEpochs] recheck LogOffsetsAndNewestEvents;
    "part.retention-overdue" Cost "A segment that retention should have removed"
        means "A segment of the leader's lineage that is still there although retention has been due for longer than `overdue-slack`, counted from the later of its due time and its copy. Not where part.retention-blocked explains it."
        effect "It is paid for longer than wanted."
        causes "The leader's remote log manager does not run, or its deletions fail."
        next "Look at the leader's log for errors of the remote log manager."
        needs [TopicConfigs LeaderEpochs] recheck LogOffsetsAndNewestEvents;
    "part.no-upload" Risk "Nothing is uploaded although segments wait"
        means "Tiering is on, copying is not disabled, segments wait to be copied, and no copy was finished for longer than `no-upload`."
        effect "Local disk fills, since what is not copied is not deleted."
        causes "A failing store, an open transaction, a missing producer snapshot, or a metadata manager that stopped."
        next "Look at the leader's log for errors of the remote log manager; `strandline explain TOPIC:P` says what holds it."
        needs [TopicConfigs LocalSegments] recheck LogOffsetsAndNewestEvents;
    "part.copy-lag" Risk "Copying lags behind"
        means "The newest record of the oldest segment that waits to be copied is older than `copy-lag`. Not where copying is disabled."
        effect "Local disk holds more than wanted."
        causes "Uploads slower than the producers, or stopped."
        next "Look at the copy quota and at the store's throughput."
        needs [TopicConfigs LocalSegments] recheck LogOffsetsAndNewestEvents;
    "part.replica-not-purging" Cost "A replica keeps what is copied and past local retention"
        means "A replica keeps rolled local segments that the tier holds and that local retention should have removed more than `overdue-slack` ago."
        effect "Local disk is used for nothing."
        causes "A follower that does not learn the tier's end, or a broker whose cleaner stopped."
        next "Look at that broker's log; moving leadership away and back makes it look again."
        needs [TopicConfigs LocalSegments] recheck LogOffsetsAndNewestEvents;
    "part.delete-stuck" Cost "The deletion of a partition never finished"
        means "DELETE_PARTITION_MARKED or DELETE_PARTITION_STARTED older than `delete-stuck` and no DELETE_PARTITION_FINISHED."
        effect "Objects of the partition may be left."
        causes "The program that deletes stopped."
        next "Compare with the store (`--store`) for objects left."
        needs [] recheck NewestEvents;
    "topic.id-unknown" Cost "Live segments of a topic that is gone"
        means "Live segments of a topic id that the cluster does not have, and no event of it younger than `delete-stuck`."
        effect "Nobody will ever delete them; they are paid for until someone does."
        causes "The topic was deleted while brokers could not delete its remote data."
        next "Make sure that this is the right cluster, then delete the topic's objects by its id."
        needs [TopicIds AllEvents] recheck TopicIdsAndNewestEvents;
    "topic.recreated" Info "Two topic ids under one name"
        means "The events name a topic under more than one id."
        effect "None."
        causes "The topic was deleted and created again."
        next "Nothing."
        needs [] recheck Nothing;
    "topic.disabled-with-data" Risk "Tiering is off and segments are left"
        means "Tiering is switched off for a topic that has live segments, and none was deleted within the limit `delete-stuck`."
        effect "Their offsets cannot be read while it is off."
        causes "Tiering was disabled without deleting the remote data."
        next "Switch it on again to read or to let retention run, or disable it with `remote.log.delete.on.disable=true`."
        needs [TopicConfigs] recheck NewestEvents;
}
Objects {
    "obj.missing" Damage "The data object of a readable segment is gone"
        means "The data object of a segment whose last state is COPY_SEGMENT_FINISHED is not in the store."
        effect "A consumer that reaches the segment's offsets fails."
        causes "A lifecycle rule of the bucket, a deletion by hand, or an upload that did not reach the store."
        next "Look for an older version of the object in the store, or for a replica that still has the offsets locally."
        needs [Listing WholeListing] recheck ObjectsAndNewestEvents;
    "obj.partial-set" Damage "A required object beside the data is gone"
        means "A required object other than the data object is not in the store, while the data object is: damage where the segment is finished, cost for a copy or deletion that is stuck. A transaction index is never required."
        effect "Fetches from a finished segment fail or have to scan it."
        causes "A lifecycle rule of the bucket, a deletion by hand, or an interrupted copy."
        next "Indexes can be rebuilt from the data object."
        needs [Listing WholeListing] recheck ObjectsAndNewestEvents;
    "obj.size-mismatch" Damage "The data object's size is not the event's"
        means "The data object's size differs from the size in the event, in a layout that stores segments as they are."
        effect "Reads end early or find foreign bytes."
        causes "A truncated upload, or an object overwritten."
        next "Compare the object with a replica's segment file."
        needs [Listing] recheck ObjectsAndNewestEvents;
    "obj.orphan" Cost "An object that no live segment claims"
        means "The key parses in the layout, and no live segment has this id."
        effect "It is paid for and nobody deletes it."
        causes "A copy whose events were lost, or a deletion that failed halfway."
        next "Kafka never deletes it. Where its offsets are missing in the tier (its proof says so), keep it: it may be their only copy. Else make sure that nothing uses it (`strandline explain key:KEY` says whose it is), then remove it with the store's own tools."
        needs [Listing AllEvents] recheck ObjectsAndNewestEvents;
    "obj.deleted-but-present" Cost "An object of a deleted segment"
        means "The key parses in the layout, and the segment's last state is DELETE_SEGMENT_FINISHED."
        effect "It is paid for and nobody deletes it."
        causes "The plugin reported a deletion that did not happen, or the store keeps a retention lock."
        next "Where its offsets are missing in the tier (its proof says so), keep it: it may be their only copy. Else check the plugin's rights to delete, then delete the object."
        needs [Listing AllEvents] recheck ObjectsAndNewestEvents;
    "obj.unknown-key" Info "An object that is not of this layout"
        means "The key does not parse in the layout."
        effect "None."
        causes "Other data under the same prefix, or another layout."
        next "Check layout and prefix if there are many."
        needs [Listing] recheck Nothing;
    "obj.foreign-cluster" Info "An object of a topic id that this metadata never named"
        means "The key parses in the layout, and no event names its topic id."
        effect "None here. It may belong to another cluster that uses the same bucket."
        causes "Two clusters share a prefix, or the metadata topic was created anew."
        next "Never delete it on this finding alone; ask which cluster owns the topic id."
        needs [Listing AllEvents] recheck ObjectsAndNewestEvents;
}
MetadataTopic {
    "meta.partition-count" Damage "The metadata topic's partition count does not fit"
        means "Events sit where another partition count would put them, or the real count differs from `--metadata-partitions`."
        effect "Brokers look for events where they are not; a starting broker ends itself when the count differs from its setting."
        causes "The number of partitions was changed after the topic was created, or brokers are configured differently."
        next "Set `remote.log.metadata.topic.num.partitions` to the real count on all brokers; the count of a topic can never change while it has live segments."
        needs [MetadataPartitionCount] recheck Nothing;
    "meta.trimmed" Damage "Events trimmed that live segments need"
        means "A partition's log start offset is above 0 and live segments of it have no base event."
        effect "These segments can be neither read nor deleted once brokers restart."
        causes "A finite retention on the metadata topic, or records deleted from it."
        next "Set retention.ms=-1 and retention.bytes=-1 at once. Brokers that have run since before may still know the segments: do not restart them first."
        needs [MetadataLogStarts] recheck Nothing;
    "meta.retention" Damage "The metadata topic forgets"
        means "retention.ms or retention.bytes of the metadata topic is finite."
        effect "Live segments will lose their metadata, silently, when a broker restarts."
        causes "A cluster-wide default or a change by hand."
        next "Set retention.ms=-1 and retention.bytes=-1 on the topic."
        needs [MetadataConfigs] recheck Nothing;
    "meta.cleanup-policy" Damage "The metadata topic is compacted although its keys are null"
        means "cleanup.policy of the metadata topic has compact, and its records have no keys."
        effect "The cleaner fails on records without keys, or drops them; brokers refuse to append."
        causes "A change by hand, or a topic created before the broker did."
        next "Set cleanup.policy=delete on the topic, with retention.ms=-1 and retention.bytes=-1."
        needs [MetadataConfigs] recheck Nothing;
    "meta.rf" Risk "Too few replicas of the metadata topic"
        means "The replication factor is below 3, or below the number of brokers where that is smaller."
        effect "The loss of few disks loses the tier's metadata."
        causes "`remote.log.metadata.topic.replication.factor` was lower when the topic was created."
        next "Reassign the topic's partitions to 3 replicas."
        needs [MetadataReplication] recheck Nothing;
    "meta.min-isr" Risk "One replica is enough to acknowledge metadata"
        means "min.insync.replicas is below 2 while the replication factor is 3 or more."
        effect "An acknowledged event can be lost with one broker."
        causes "The cluster's default, or Kafka before 4.1, which does not set it."
        next "Set min.insync.replicas=2 on the topic."
        needs [MetadataConfigs MetadataReplication] recheck Nothing;
    "meta.unclean-election" Risk "Unclean leader election is allowed on the metadata topic"
        means "unclean.leader.election.enable is true."
        effect "Events can vanish and offsets be used again; running brokers do not notice."
        causes "The cluster's default."
        next "Set unclean.leader.election.enable=false on the topic."
        needs [MetadataConfigs] recheck Nothing;
    "meta.under-replicated" Risk "Replicas of the metadata topic are out of sync"
        means "A replica of a metadata partition is out of sync or offline."
        effect "One more failure can stop or lose metadata."
        causes "A broker is down or slow."
        next "Bring the broker back."
        needs [MetadataReplicas] recheck Nothing;
    "meta.silent-broker" Risk "A broker that should copy writes no events"
        means "A broker leads partitions with segments that wait to be copied and has written no event for longer than `silent-broker`."
        effect "Its partitions are not copied; its local disk fills."
        causes "Its metadata consumer ended on a bad record, or its remote log manager did not start."
        next "Look at its log for the remote log metadata manager; a restart helps where no poison record is left."
        needs [Leader LocalSegments] recheck LogOffsetsAndNewestEvents;
    "meta.truncated-file" Risk "A file of the metadata topic ends inside a batch"
        means "A segment file read offline ends inside a batch: risk for the last one of its partition, damage below it."
        effect "Events at its end are missing here, and for a broker that starts from it."
        causes "The broker was killed (it repairs the last file at its next start), the disk was full, or the copy of the directory was cut."
        next "For the last file: read another replica, or start the broker. Below it: restore the file from another replica."
        needs [MetadataFiles] recheck Nothing;
    "meta.dead-share" Info "How much of the metadata topic speaks of deleted segments"
        means "Events about deleted segments, their share, and the bytes that each broker start reads for nothing."
        effect "A longer start of each broker."
        causes "The topic is never compacted: four records for each segment's life."
        next "Nothing."
        needs [] recheck Nothing;
    "meta.null-keys" Info "The metadata topic's records have no keys"
        means "Records without a key, as Kafka's own brokers write them."
        effect "The topic cannot be compacted."
        causes "Kafka's design."
        next "Nothing. Never set cleanup.policy=compact."
        needs [] recheck Nothing;
    "meta.tiered" Info "Tiering is configured on the metadata topic"
        means "remote.storage.enable is true on the metadata topic itself."
        effect "None: Kafka ignores it there."
        causes "The cluster's default, or a change by hand."
        next "Set it to false, so that nobody is misled."
        needs [MetadataConfigs] recheck Nothing;
}
}
