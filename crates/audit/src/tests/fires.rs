//! What each rule finds.

use super::{LEGAL_SCRIPTS, findings, scripts};
use crate::*;

scripts! { findings, FIRES:
    bytes_that_are_no_event_are_undecodable: "
        undecodable keyed
    " => ["damage event.undecodable"];
    an_api_that_nobody_knows_is_not_called_undecodable: "
        unknown-api keyed
    " => ["damage event.unknown-api"];
    a_record_without_value_is_poison: "
        null keyed
    " => ["damage event.poison"];
    a_snapshot_record_is_poison: "
        snapshot a keyed
    " => ["damage event.poison a"];
    a_segment_introduced_in_a_later_state_is_poison: "
        copy-started a 0..=99 state 1 keyed
    " => ["damage event.poison orders:0 a 0..=99"];
    an_update_to_copy_started_of_a_segment_in_that_state_is_poison: "
        copy-started a 0..=99 keyed
        update a 0 keyed
    " => ["damage event.poison orders:0 a 0..=99"];
    an_update_to_a_state_that_does_not_exist_is_poison: "
        copy-started a 0..=99 keyed
        update a 9 keyed
    " => ["damage event.poison orders:0 a 0..=99"];
    a_segment_that_ends_before_it_starts_is_poison_too: "
        copy-started a 10..=9 keyed
    " => ["damage event.poison orders:0 a 10..=9", "damage seg.bad-range orders:0 a 10..=9"];
    a_negative_offset_is_poison_too: "
        copy-started a -1..=9 keyed
    " => ["damage event.poison orders:0 a -1..=9", "damage seg.bad-range orders:0 a -1..=9"];
    a_segment_without_epochs_is_poison_too: "
        copy-started a 0..=9 epochs , keyed
    " => ["damage event.poison orders:0 a 0..=9", "damage seg.epochs-empty orders:0 a 0..=9"];
    a_refused_record_is_poison_for_a_topic_that_is_gone_as_well: "
        topic orders absent
        update a 9 keyed
    " => ["damage event.poison orders:0 a"];
    a_partition_delete_that_is_followed_by_events_is_poison: "
        partition-delete finished keyed
        copy-started a 0..=9 keyed
    " => ["damage event.poison orders:0"];
    a_partition_delete_of_a_topic_that_is_still_there_is_poison: "
        topic orders
        partition-delete finished keyed
    " => ["damage event.poison orders:0"];
    events_in_the_wrong_metadata_partition_are_misplaced: "
        metadata-partitions 50
        copy-started a 0..=99 keyed
        copy-finished a in 49 keyed
    " => ["damage event.misplaced orders:0"];
    an_update_without_introduction_has_no_base: "
        copy-finished a keyed
        delete-started a keyed
    " => ["damage event.base-missing orders:0 a"];
    an_update_under_another_partition_does_not_match: "
        copy-started a 0..=99 keyed
        partition orders:1
        copy-finished a keyed
    " => ["damage event.id-mismatch orders:1 a"];
    an_update_under_another_name_does_not_match: "
        copy-started a 0..=99 keyed
        partition payments:0
        copy-finished a keyed
    " => ["damage event.id-mismatch payments:0 a"];
    a_finished_copy_does_not_start_again: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        update a 0 keyed
    " => ["risk event.invalid-transition orders:0 a 0..=99"];
    a_finished_copy_is_not_deleted_at_once: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        delete-finished a keyed
    " => ["risk event.invalid-transition orders:0 a 0..=99", "info meta.dead-share"];
    a_started_copy_is_not_deleted_at_once: "
        copy-started a 0..=99 keyed
        delete-finished a keyed
    " => ["risk event.invalid-transition orders:0 a 0..=99", "info meta.dead-share"];
    a_deletion_does_not_turn_back: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        delete-started a keyed
        copy-finished a keyed
    " => ["risk event.invalid-transition orders:0 a 0..=99"];
    a_deleted_segment_stays_deleted: "
        copy-started a 0..=99 keyed
        delete-started a keyed
        delete-finished a keyed
        copy-finished a keyed
    " => ["risk event.invalid-transition orders:0 a 0..=99"];
    an_update_before_the_introduction_is_dropped: "
        copy-finished a keyed
        copy-started a 0..=99 keyed
    " => ["risk event.invalid-transition orders:0 a 0..=99"];
    one_id_with_two_contents_is_a_duplicate_base: "
        copy-started a 0..=99 keyed
        copy-started a 0..=199 keyed
    " => ["risk event.duplicate-base orders:0 a 0..=199"];
    an_id_that_comes_back_after_its_deletion_is_a_duplicate_base: "
        copy-started a 0..=99 keyed
        delete-started a keyed
        delete-finished a keyed
        copy-started a 0..=99 keyed
    " => ["risk event.duplicate-base orders:0 a 0..=99"];
    a_deletion_that_forgets_the_custom_metadata_is_told_once: "
        copy-started a 0..=99 keyed
        copy-finished a custom 2a keyed
        delete-started a keyed
        delete-finished a keyed
    " => ["risk event.custom-metadata-lost orders:0 a 0..=99", "info meta.dead-share"];
    a_repeated_state_is_told: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-finished a keyed
    " => ["info event.repeat orders:0 a 0..=99"];
    event_times_that_run_backwards_are_told: "
        copy-started a 0..=99 at 5m keyed
        copy-finished a at 2m keyed
    " => ["info event.time-regress orders:0"];
    transactional_records_are_told: "
        copy-started a 0..=99 transactional keyed
        control
        copy-finished a keyed
    " => ["info event.transactional"];
    a_control_record_at_the_end_of_a_partition_is_a_risk: "
        meta ends=2
        copy-started a 0..=99 transactional keyed
        control
    " => ["risk event.transactional"];

    offsets_that_fall_as_epochs_rise_are_damage: "
        copy-started a 0..=99 epochs 0:50,1:0 keyed
    " => ["damage seg.epochs-not-monotonic orders:0 a 0..=99"];
    an_epoch_below_the_segment_is_outside_its_range: "
        copy-started a 100..=199 epochs 3:40 keyed
    " => ["risk seg.epochs-outside-range orders:0 a 100..=199"];
    an_epoch_beyond_the_segment_is_an_overrun_and_only_that: "
        copy-started a 0..=10 epochs 0:0,1:1000 keyed
    " => ["damage seg.epoch-overrun orders:0 a 0..=10"];
    a_readable_segment_has_bytes: "
        copy-started a 0..=99 size 0 keyed
        copy-finished a keyed
    " => ["risk seg.zero-size orders:0 a 0..=99"];
    a_copy_that_nothing_replaced_is_stuck: "
        now 40m
        copy-started a 0..=99 at 1m keyed
    " => ["risk seg.copy-stuck orders:0 a 0..=99"];
    a_copy_that_others_replaced_is_abandoned: "
        now 40m
        copy-started a 0..=99 at 1m keyed
        copy-started b 0..=49 keyed
        copy-finished b keyed
        copy-started c 50..=120 keyed
        copy-finished c keyed
    " => ["cost seg.copy-abandoned orders:0 a 0..=99"];
    a_deletion_without_end_is_stuck_since_its_first_start: "
        now 40m
        copy-started a 0..=99 at 0m keyed
        delete-started a at 1m keyed
        delete-started a at 39m keyed
    " => [
        "cost seg.delete-stuck orders:0 a 0..=99",
        "info event.repeat orders:0 a 0..=99",
        "info seg.delete-retrying orders:0 a 0..=99",
    ];
    a_copy_that_a_shorter_one_overwrote_is_shadowed: "
        copy-started a 0..=100 keyed
        copy-finished a keyed
        copy-started b 0..=50 keyed
        copy-finished b keyed
        log orders:0 start=0 local=0 end=200 epochs=0:0
    " => [
        "risk part.hole-in-epoch orders:0 a 51..=100",
        "cost seg.contained orders:0 b 0..=50",
        "cost seg.shadowed orders:0 a 0..=100",
    ];
    the_same_offsets_twice_are_a_duplicate: "
        copy-started a 0..=99 epochs 0:0,1:50 keyed
        copy-finished a keyed
        copy-started b 0..=99 epochs 0:0,1:50 keyed
        copy-finished b keyed
    " => ["cost seg.duplicate orders:0 b 0..=99"];
    offsets_of_two_epochs_are_not_the_same_offsets: "
        copy-started a 0..=99 epochs 0:0 keyed
        copy-finished a keyed
        copy-started b 0..=99 epochs 1:0 keyed
        copy-finished b keyed
    " => [];
    a_segment_inside_another_is_contained: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 0..=199 keyed
        copy-finished b keyed
    " => ["cost seg.contained orders:0 a 0..=99"];
    segments_that_share_offsets_overlap: "
        copy-started a 0..=100 keyed
        copy-finished a keyed
        copy-started b 50..=150 keyed
        copy-finished b keyed
    " => ["cost seg.overlap orders:0 b 50..=100"];
    a_segment_of_epochs_that_the_leader_lacks_is_of_another_lineage: "
        copy-started a 0..=99 epochs 1:0 keyed
        copy-finished a keyed
        log orders:0 start=100 local=100 end=200 epochs=0:0,2:100
    " => ["info seg.not-in-lineage orders:0 a 0..=99"];
    records_from_the_future_are_a_risk: "
        copy-started a 0..=99 max 2h keyed
    " => ["risk seg.timestamp-future orders:0 a 0..=99"];

    offsets_that_no_segment_holds_are_a_gap: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 200..=299 keyed
        copy-finished b keyed
    " => ["damage part.gap orders:0 100..=199"];
    a_gap_that_the_local_log_holds_in_part_is_cut_there: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 200..=299 keyed
        copy-finished b keyed
        log orders:0 start=0 local=150 end=400
    " => ["damage part.gap orders:0 100..=149", "risk part.gap orders:0 150..=199"];
    a_gap_is_told_by_the_leaders_lineage: "
        copy-started a 0..=99 epochs 0:0 keyed
        copy-finished a keyed
        copy-started b 100..=199 epochs 1:100 keyed
        copy-finished b keyed
        copy-started c 200..=299 epochs 2:200 keyed
        copy-finished c keyed
        log orders:0 start=0 local=300 end=400 epochs=0:0,2:100
    " => ["damage part.gap orders:0 100..=199", "info seg.not-in-lineage orders:0 b 100..=199"];
    a_segment_lost_in_the_middle_leaves_a_gap: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 100..=199 keyed
        copy-finished b keyed
        copy-started c 200..=299 keyed
        copy-finished c keyed
        delete-started b keyed
        log orders:0 start=50 local=300 end=400
    " => ["damage part.gap orders:0 100..=199"];
    offsets_between_tier_and_local_log_are_lost: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        log orders:0 start=0 local=150 end=200
    " => ["damage part.gap-to-local orders:0 100..=149"];
    offsets_below_the_local_log_are_lost_where_the_tier_is_empty: "
        log orders:0 start=0 local=150 end=200
    " => ["damage part.gap-to-local orders:0 0..=149"];
    a_log_that_starts_below_the_tier_does_not_match: "
        copy-started a 100..=199 keyed
        copy-finished a keyed
        log orders:0 start=20 local=200 end=300
    " => ["risk part.start-mismatch orders:0 20..=99"];
    a_leader_that_still_starts_at_a_deleted_segment_does_not_match: "
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 100..=199 keyed
        copy-finished b keyed
        delete-started a keyed
        log orders:0 start=50 local=200 end=300
    " => ["risk part.start-mismatch orders:0 50..=99"];
    a_log_start_of_a_file_is_explained_by_finished_segments_only: "
        copy-started a 0..=89 keyed
        copy-finished a keyed
        copy-started b 90..=99 keyed
        copy-started c 100..=199 keyed
        copy-finished c keyed
        delete-started a keyed
        delete-started b keyed
        log orders:0 start=50 local=200 end=300 of-file
    " => ["risk part.start-mismatch orders:0 50..=99"];
    offsets_that_a_shorter_upload_displaced_are_a_hole: "
        copy-started a 0..=100 keyed
        copy-finished a keyed
        copy-started b 40..=60 keyed
        copy-finished b keyed
    " => ["damage part.hole-in-epoch orders:0 a 61..=100", "cost seg.contained orders:0 b 40..=60"];
    a_tier_beyond_the_leaders_epoch_has_diverged: "
        copy-started a 0..=99 epochs 0:0 keyed
        copy-finished a keyed
        log orders:0 start=0 local=80 end=300 epochs=0:0,1:80
    " => ["risk part.diverged-tail orders:0 80..=99"];
    retention_by_time_is_overdue: "
        now 10h
        topic orders remote.storage.enable=true retention.ms=3600000 retention.bytes=-1
        copy-started a 0..=99 max 0m keyed
        copy-finished a keyed
        log orders:0 start=0 local=100 end=300 epochs=0:0
    " => ["cost part.retention-overdue orders:0 a 0..=99"];
    retention_by_bytes_is_overdue: "
        now 10h
        topic orders remote.storage.enable=true retention.ms=-1 retention.bytes=1500
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 100..=199 keyed
        copy-finished b keyed
        copy-started c 200..=299 keyed
        copy-finished c keyed
        log orders:0 start=0 local=300 end=300 epochs=0:0
    " => ["cost part.retention-overdue orders:0 a 0..=99"];
    one_segment_blocks_retention: "
        now 10h
        topic orders remote.storage.enable=true retention.ms=3600000 retention.bytes=-1
        copy-started a 0..=99 max 10h keyed
        copy-finished a keyed
        copy-started b 100..=199 max 1m keyed
        copy-finished b keyed
        log orders:0 start=0 local=200 end=300 epochs=0:0
    " => ["cost part.retention-blocked orders:0 a 0..=99"];
    segments_wait_and_nothing_is_uploaded: "
        now 10h
        topic orders remote.storage.enable=true segment.bytes=1000
        copy-started a 0..=99 keyed
        copy-finished a keyed
        log orders:0 start=0 local=0 end=300 epochs=0:0 leader=1
        local orders:0 broker=1 segments=0:1000:0m,100:1000:9h,200:500:9h
    " => ["risk meta.silent-broker", "risk part.no-upload orders:0 100..="];
    bytes_beyond_a_segment_prove_that_segments_wait: "
        now 5h
        topic orders remote.storage.enable=true segment.bytes=1000
        copy-started a 0..=99 keyed
        copy-finished a keyed
        log orders:0 start=0 local=0 end=300 epochs=0:0 leader=1
        local orders:0 broker=1 size=2001
    " => ["risk part.no-upload orders:0 100..="];
    bytes_prove_nothing_where_the_tier_has_a_hole_in_what_is_local: "
        now 5h
        topic orders remote.storage.enable=true segment.bytes=1000
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 200..=299 keyed
        copy-finished b keyed
        log orders:0 start=0 local=0 end=350 epochs=0:0 leader=1
        local orders:0 broker=1 size=3500
    " => ["risk part.gap orders:0 100..=199"];
    a_partition_that_never_uploaded_is_seen_without_any_event: "
        now 5h
        topic orders remote.storage.enable=true segment.bytes=1000
        log orders:0 start=0 local=0 end=300 epochs=0:0 leader=1
        local orders:0 broker=1 segments=0:1000:0m,100:1000:1m,200:500:9h
    " => ["risk part.copy-lag orders:0", "risk part.no-upload orders:0"];
    the_oldest_waiting_segment_lags: "
        now 3h
        topic orders remote.storage.enable=true segment.bytes=1000
        copy-started a 0..=99 at 170m keyed
        copy-finished a keyed
        log orders:0 start=0 local=0 end=300 epochs=0:0 leader=1
        local orders:0 broker=1 segments=0:1000:0m,100:1000:10m,200:500:2h
    " => ["risk part.copy-lag orders:0 100..="];
    a_replica_keeps_what_is_copied_and_past_local_retention: "
        now 10h
        topic orders remote.storage.enable=true retention.ms=-1 local.retention.ms=60000 local.retention.bytes=-2
        copy-started a 0..=99 keyed
        copy-finished a keyed
        log orders:0 start=0 local=100 end=150 epochs=0:0 leader=1
        local orders:0 broker=1 segments=100:500:9h
        local orders:0 broker=2 segments=0:1000:0m,100:500:9h
    " => ["cost part.replica-not-purging orders:0 0..=99"];
    a_partitions_deletion_is_stuck: "
        now 40m
        partition-delete marked at 1m keyed
        partition-delete started at 2m keyed
    " => ["cost part.delete-stuck orders:0"];
    live_segments_of_a_topic_that_is_gone_are_told_as_one: "
        now 40m
        topics complete
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 200..=299 max 10h keyed
        copy-finished b keyed
        update b 0 keyed
    " => ["cost topic.id-unknown orders"];
    stuck_deletions_of_a_topic_that_is_gone_are_told_too: "
        now 40m
        topic orders#2
        copy-started a 0..=99 keyed
        delete-started a at 1m keyed
        partition-delete marked at 1m keyed
    " => [
        "cost topic.id-unknown orders",
        "cost part.delete-stuck orders:0",
        "cost seg.delete-stuck orders:0 a 0..=99",
    ];
    a_name_with_two_ids_was_created_anew: "
        copy-started a 0..=99 keyed
        partition orders#2:0
        copy-started b 0..=99 keyed
    " => ["info topic.recreated orders"];
    tiering_is_off_and_segments_are_left: "
        topic orders remote.storage.enable=false
        copy-started a 0..=99 keyed
        copy-finished a keyed
    " => ["risk topic.disabled-with-data orders"];
    tiering_is_off_and_their_deletion_does_not_go_on: "
        now 2h
        topic orders remote.storage.enable=false
        copy-started a 0..=99 keyed
        copy-finished a keyed
        copy-started b 100..=199 keyed
        copy-finished b keyed
        delete-started a keyed at 30m
        delete-finished a keyed at 31m
    " => ["risk topic.disabled-with-data orders", "info meta.dead-share"];

    a_data_object_is_gone: "
        store complete exact
        copy-started a 0..=99 keyed
        copy-finished a keyed
        object a index timeindex
    " => ["damage obj.missing orders:0 a 0..=99"];
    all_objects_of_a_segment_are_gone_and_told_once: "
        store complete exact
        copy-started a 0..=99 keyed
        copy-finished a keyed
    " => ["damage obj.missing orders:0 a 0..=99"];
    an_object_at_another_offset_is_not_the_segments: "
        store complete exact
        copy-started a 0..=99 keyed
        copy-finished a keyed
        object a all start=7
    " => ["damage obj.missing orders:0 a 0..=99"];
    an_index_is_gone: "
        store complete exact
        copy-started a 0..=99 keyed
        copy-finished a keyed
        object a log timeindex
    " => ["damage obj.partial-set orders:0 a 0..=99"];
    a_stuck_deletion_left_a_part_of_the_objects: "
        now 40m
        store complete exact
        copy-started a 0..=99 at 0m keyed
        copy-finished a keyed
        delete-started a at 1m keyed
        object a index
    " => ["cost obj.partial-set orders:0 a 0..=99", "cost seg.delete-stuck orders:0 a 0..=99"];
    a_data_object_has_another_size: "
        store complete exact
        copy-started a 0..=99 keyed
        copy-finished a keyed
        object a all size=999
    " => ["damage obj.size-mismatch orders:0 a 0..=99"];
    an_object_that_no_event_names_is_an_orphan: "
        store complete exact
        copy-started a 0..=99 keyed
        object b all
    " => ["cost obj.orphan orders:0 b 0..="];
    an_object_of_a_deleted_segment_is_still_there: "
        store complete exact
        copy-started a 0..=99 keyed
        delete-started a keyed
        delete-finished a keyed
        object a log
    " => ["cost obj.deleted-but-present orders:0 a 0..=", "info meta.dead-share"];
    a_key_of_another_layout_is_told: "
        store complete exact
        key some/other
    " => ["info obj.unknown-key"];
    an_object_of_a_topic_id_never_named_is_of_another_cluster: "
        store complete exact
        copy-started a 0..=99 keyed
        partition payments:3
        object b all
    " => ["info obj.foreign-cluster payments:3 b 0..="];

    the_real_count_is_not_the_configured_one: "
        metadata-partitions 50
        meta configured=5
        copy-started a 0..=99 keyed
        copy-finished a in 49 keyed
    " => ["damage meta.partition-count"];
    events_lie_where_another_count_puts_them: "
        metadata-partitions 7
        copy-started a 0..=99 keyed
        copy-finished a keyed
        partition orders:1
        copy-started b 0..=99 keyed
        copy-finished b keyed
        partition orders:2
        copy-started c 0..=99 keyed
        copy-finished c keyed
        metadata-partitions 50
    " => ["damage meta.partition-count"];
    live_segments_lost_their_introduction_to_a_trimmed_log: "
        meta starts=7
        copy-finished a keyed
    " => ["damage meta.trimmed", "damage event.base-missing orders:0 a"];
    a_metadata_topic_with_retention_forgets: "
        meta retention.ms=604800000 retention.bytes=-1
    " => ["damage meta.retention"];
    compaction_of_records_without_keys: "
        meta cleanup.policy=compact
        copy-started a 0..=99
    " => ["damage meta.cleanup-policy", "info meta.null-keys"];
    too_few_replicas: "
        meta rf=1 brokers=3
    " => ["risk meta.rf"];
    one_replica_acknowledges: "
        meta rf=3 brokers=3 min.insync.replicas=1
    " => ["risk meta.min-isr"];
    unclean_election_is_allowed: "
        meta unclean.leader.election.enable=true
    " => ["risk meta.unclean-election"];
    replicas_are_out_of_sync: "
        meta under-replicated=3 offline=none
    " => ["risk meta.under-replicated"];
    a_last_file_ends_inside_a_batch: "
        meta truncated=last
    " => ["risk meta.truncated-file"];
    an_inner_file_ends_inside_a_batch: "
        meta truncated=inner
    " => ["damage meta.truncated-file"];
    tiering_is_configured_on_the_metadata_topic: "
        meta remote.storage.enable=true
    " => ["info meta.tiered"];
}

/// The catalogue as it was agreed: the table must say the same.
const SEVERITIES: &[(&str, &[&str])] = &[
    (
        "damage",
        &[
            "event.undecodable",
            "event.unknown-api",
            "event.poison",
            "event.misplaced",
            "event.base-missing",
            "event.id-mismatch",
            "seg.bad-range",
            "seg.epochs-empty",
            "seg.epochs-not-monotonic",
            "seg.epoch-overrun",
            "part.gap",
            "part.gap-to-local",
            "part.hole-in-epoch",
            "obj.missing",
            "obj.partial-set",
            "obj.size-mismatch",
            "meta.partition-count",
            "meta.trimmed",
            "meta.retention",
            "meta.cleanup-policy",
        ],
    ),
    (
        "risk",
        &[
            "event.invalid-transition",
            "event.duplicate-base",
            "event.custom-metadata-lost",
            "seg.epochs-outside-range",
            "seg.zero-size",
            "seg.copy-stuck",
            "seg.timestamp-future",
            "part.start-mismatch",
            "part.diverged-tail",
            "part.no-upload",
            "part.copy-lag",
            "topic.disabled-with-data",
            "meta.rf",
            "meta.min-isr",
            "meta.unclean-election",
            "meta.under-replicated",
            "meta.silent-broker",
            "meta.truncated-file",
        ],
    ),
    (
        "cost",
        &[
            "seg.copy-abandoned",
            "seg.delete-stuck",
            "seg.shadowed",
            "seg.duplicate",
            "seg.contained",
            "seg.overlap",
            "part.retention-blocked",
            "part.retention-overdue",
            "part.replica-not-purging",
            "part.delete-stuck",
            "topic.id-unknown",
            "obj.orphan",
            "obj.deleted-but-present",
        ],
    ),
    (
        "info",
        &[
            "event.repeat",
            "event.time-regress",
            "event.transactional",
            "seg.delete-retrying",
            "seg.not-in-lineage",
            "topic.recreated",
            "obj.unknown-key",
            "obj.foreign-cluster",
            "meta.dead-share",
            "meta.null-keys",
            "meta.tiered",
        ],
    ),
];

#[test]
fn the_table_holds_the_agreed_rules_with_the_agreed_severities() {
    let mut agreed: Vec<(&str, &str)> = SEVERITIES
        .iter()
        .flat_map(|(severity, codes)| codes.iter().map(move |code| (*code, *severity)))
        .collect();
    let mut table: Vec<(&str, &str)> = RULES.iter().map(|rule| (rule.code, rule.severity.as_str())).collect();
    agreed.sort_unstable();
    table.sort_unstable();
    assert_eq!(table, agreed);
}

#[test]
fn every_rule_of_the_table_is_seen_to_fire() {
    let fired: std::collections::BTreeSet<&str> = FIRES
        .iter()
        .chain(LEGAL_SCRIPTS)
        .flat_map(|(_, script)| super::World::parse(script).report().findings)
        .map(|finding| finding.code)
        .collect();
    let never: Vec<&str> = RULES.iter().map(|rule| rule.code).filter(|code| !fired.contains(code)).collect();
    assert!(never.is_empty(), "no script makes these fire: {never:?}");
}

#[test]
fn every_rule_says_in_full_what_it_means_and_what_to_do() {
    for rule in RULES {
        for text in [rule.title, rule.definition, rule.effect, rule.causes, rule.next] {
            assert!(text.len() > 4 && !text.contains('\n'), "{}: {text:?}", rule.code);
        }
        for sentence in [rule.definition, rule.effect, rule.causes, rule.next] {
            assert!(sentence.ends_with('.'), "{}: {sentence:?}", rule.code);
        }
    }
}

#[test]
fn a_finding_serialises_as_the_output_contract_says() {
    let report = super::World::parse(
        "
        now 40m
        copy-started a 0..=99 at 1m
        ",
    )
    .report();
    let json = serde_json::to_string_pretty(&report.findings[0]).unwrap();
    insta::assert_snapshot!(json, @r#"
    {
      "code": "seg.copy-stuck",
      "severity": "risk",
      "topic": "orders",
      "topic_id": "b3JkZXJzBwcHBwcHBwcHBw",
      "partition": 0,
      "segment_id": "YWFhYWFhYWFhYWFhYWFhYQ",
      "start_offset": 0,
      "end_offset": 99,
      "message": "the copy of segment YWFhYWFhYWFhYWFhYWFhYQ was started 39 min ago and neither finished nor replaced",
      "effect": "Uploads of the partition may stand still; local disk fills, since what is not copied is not deleted.",
      "next": "Look at the log of the broker that started it, at the time given. If the partition copies on, the next retention run removes the leftover.",
      "evidence": [
        {
          "metadata_partition": 0,
          "offset": 0,
          "time": "2023-11-14T22:14:20.000Z",
          "what": "COPY_SEGMENT_STARTED by broker 1"
        }
      ]
    }
    "#);
}

#[test]
fn an_orphan_whose_offsets_are_missing_is_not_called_superfluous() {
    let script = "
        store complete exact
        copy-started a 0..=99 keyed
        copy-finished a keyed
        object a all
        copy-started c 200..=299 keyed
        copy-finished c keyed
        object c all
        log orders:0 start=0 local=300 end=400 epochs=0:0
    ";
    let told = |object: &str| {
        let report = super::World::parse(&format!("{script}\n{object}")).report();
        let orphan = report.findings.into_iter().find(|finding| finding.code == "obj.orphan").unwrap();
        orphan.evidence.into_iter().map(|evidence| evidence.what).find(|what| what.contains("only copy"))
    };
    assert_eq!(
        told("object b log start=100").as_deref(),
        Some(
            "no segment serves offset 100, at which it begins: it may be the only copy of what is missing there"
        )
    );
    assert_eq!(told("object b log start=50"), None);
}
