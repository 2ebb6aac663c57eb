//! What is legal gives nothing above info.

use super::{above_info, scripts};

scripts! { above_info, LEGAL:
    a_state_may_be_repeated_in_either_record_kind: "
        copy-started a 0..=99
        copy-started a 0..=99 at 2m
        copy-finished a
        copy-finished a
        copy-started a 0..=99
        delete-started a
        delete-started a
        delete-finished a
        delete-finished a
    " => [];
    a_copy_that_never_finished_may_be_deleted: "
        now 10h
        copy-started a 0..=99
        delete-started a
        delete-finished a
    " => [];
    a_first_epoch_may_begin_above_the_segments_start: "
        copy-started a 0..=8191
        copy-finished a
        copy-started b 8192..=9999 epochs 0:9500
        copy-finished b
        copy-started c 10000..=19999
        copy-finished c
    " => [];
    a_first_epoch_may_begin_above_the_segments_start_where_the_log_does: "
        copy-started a 8192..=9999 epochs 0:9500
        copy-finished a
        log orders:0 start=9500 local=10000 end=12000 epochs=0:9500
    " => [];
    a_file_may_tell_a_log_start_that_retention_has_passed: "
        copy-started a 0..=99
        copy-finished a
        copy-started b 100..=199
        copy-finished b
        copy-started c 200..=299
        copy-finished c
        delete-started a
        delete-finished a
        delete-started b
        log orders:0 start=50 local=300 end=400 of-file
    " => [];
    the_segments_of_a_topic_whose_tiering_was_switched_off_may_be_on_their_way_out: "
        now 40m
        topic orders remote.storage.enable=false
        copy-started a 0..=99
        copy-finished a
        copy-started b 100..=199
        copy-finished b
        delete-started a at 30m
        delete-finished a at 31m
    " => [];
    an_epoch_boundary_may_lie_between_two_segments: "
        copy-started a 0..=99 epochs 0:0
        copy-finished a
        copy-started b 100..=199 epochs 1:100
        copy-finished b
        log orders:0 start=0 local=200 end=300 epochs=0:0,1:100
    " => [];
    an_epoch_boundary_may_lie_inside_a_segment: "
        copy-started a 0..=99 epochs 0:0,1:50,3:100
        copy-finished a
        copy-started b 100..=199 epochs 3:100
        copy-finished b
        log orders:0 start=0 local=200 end=300 epochs=0:0,1:50,3:100
    " => [];
    segments_of_an_abandoned_lineage_wait_for_retention: "
        copy-started a 0..=99 epochs 0:0
        copy-finished a
        copy-started b 100..=199 epochs 1:100
        copy-finished b
        copy-started c 100..=149 epochs 2:100
        copy-finished c
        copy-started d 150..=249 epochs 2:150
        copy-finished d
        log orders:0 start=0 local=250 end=300 epochs=0:0,2:100
    " => [];
    segments_of_an_abandoned_lineage_are_told_by_epoch_ends_as_well: "
        copy-started a 0..=99 epochs 0:0
        copy-finished a
        copy-started b 100..=199 epochs 1:100
        copy-finished b
        copy-started c 100..=249 epochs 2:100
        copy-finished c
        log orders:0 start=0 local=250 end=300 ends=0:0:100,1:0:100,2:2:300
    " => [];
    segments_of_an_abandoned_lineage_may_reach_beyond_their_successors_with_epochs_unknown: "
        copy-started a 0..=50 epochs 0:0
        copy-finished a
        copy-started b 40..=100 epochs 1:40
        copy-finished b
    " => [];
    an_older_epoch_that_a_leader_answers_for_is_not_its_own: "
        copy-started a 0..=99 epochs 0:0
        copy-finished a
        copy-started b 100..=199 epochs 1:100
        copy-finished b
        copy-started c 100..=249 epochs 2:100
        copy-finished c
        log orders:0 start=100 local=250 end=300 ends=0:0:100,1:1:100,2:2:300
    " => [];
    the_active_segment_is_not_in_the_tier: "
        now 10h
        topic orders remote.storage.enable=true segment.bytes=1000
        copy-started a 0..=99
        copy-finished a
        log orders:0 start=0 local=0 end=150 epochs=0:0 leader=1
        local orders:0 broker=1 segments=0:1000:0m,100:500:9h
    " => [];
    retention_deletes_at_the_low_end: "
        copy-started a 0..=99
        copy-finished a
        copy-started b 100..=199
        copy-finished b
        delete-started a
        delete-finished a
        log orders:0 start=100 local=200 end=300 epochs=0:100
    " => [];
    retention_deletes_at_the_low_end_with_the_log_start_unknown: "
        copy-started a 0..=99
        copy-finished a
        copy-started b 100..=199
        copy-finished b
        delete-started a
    " => [];
    the_log_may_start_inside_the_first_segment: "
        copy-started a 0..=99
        copy-finished a
        log orders:0 start=50 local=100 end=300 epochs=0:50
    " => [];
    the_log_may_start_beyond_the_whole_tier: "
        copy-started a 0..=99
        copy-finished a
        copy-started b 100..=199
        copy-finished b
        log orders:0 start=250 local=250 end=300 epochs=0:250
    " => [];
    segments_below_the_log_start_await_the_cleaner: "
        now 30d
        topic orders remote.storage.enable=true retention.ms=1000 retention.bytes=-1
        copy-started a 0..=99
        copy-finished a
        copy-started b 100..=199
        copy-started c 0..=149
        copy-finished c
        log orders:0 start=250 local=250 end=300 epochs=0:250
    " => [];
    a_contained_copy_stays_after_its_superset_was_retired: "
        copy-started a 0..=100
        copy-finished a
        copy-started b 0..=200
        copy-finished b
        copy-started c 201..=300
        copy-finished c
        delete-started b
        delete-finished b
    " => [];
    a_partition_may_have_no_segment_yet: "
        now 10h
        topic orders remote.storage.enable=true segment.bytes=1000 retention.ms=1000 local.retention.ms=-2
        log orders:0 start=0 local=0 end=150 epochs=0:0 leader=1
        local orders:0 broker=1 segments=0:500:9h
        meta partitions=5 rf=1 brokers=1
    " => [];
    copying_that_is_disabled_uploads_nothing: "
        now 10h
        topic orders remote.storage.enable=true remote.log.copy.disable=true segment.bytes=1000
        copy-started a 0..=99
        copy-finished a
        log orders:0 start=0 local=0 end=300 epochs=0:0 leader=1
        local orders:0 broker=1 segments=0:1000:0m,100:1000:1m,200:500:1m
    " => [];
    a_copy_left_by_a_retriable_failure_may_stand_until_the_limit: "
        now 30m
        copy-started a 0..=99 at 1m
        copy-started b 0..=99 at 2m
        copy-finished b
    " => [];
    a_deletion_may_take_until_the_limit: "
        now 30m
        copy-started a 0..=99 at 0m
        delete-started a at 1m
    " => [];
    the_segments_of_a_topic_live_on_while_its_deletion_is_young: "
        now 25m
        topics complete
        copy-started a 0..=99
        copy-finished a
        copy-started b 200..=299
        copy-finished b
        delete-started b at 5m
    " => [];
    the_segments_of_a_deleted_topic_go_in_any_order: "
        now 25m
        topic orders absent
        copy-started a 0..=99
        copy-finished a
        copy-started b 100..=199
        copy-finished b
        copy-started c 200..=299
        copy-finished c
        delete-started b at 5m
        delete-finished b at 6m
    " => [];
    records_with_keys_stand_beside_records_without: "
        copy-started a 0..=99
        copy-finished a keyed
    " => [];
    segments_beyond_the_metadata_are_no_orphans_while_they_are_copied: "
        store complete exact
        copy-started a 0..=99
        object a log size=500
        copy-started b 100..=199
        copy-finished b
        object b all
    " => [];
    an_objects_transaction_index_is_never_required: "
        store complete exact
        copy-started a 0..=99
        copy-finished a
        object a log index timeindex
    " => [];
    objects_vanish_one_by_one_while_a_segment_is_deleted: "
        store complete exact
        copy-started a 0..=99
        copy-finished a
        delete-started a
        object a index
    " => [];
    newest_records_need_not_ascend_exactly: "
        now 10h
        topic orders remote.storage.enable=true retention.ms=35400000 retention.bytes=-1
        copy-started a 0..=99 max 12m
        copy-finished a
        copy-started b 100..=199 max 2m
        copy-finished b
        log orders:0 start=0 local=200 end=300 epochs=0:0
    " => [];
    a_replica_keeps_what_local_retention_lets_it_keep: "
        now 2h
        topic orders remote.storage.enable=true retention.ms=-1 local.retention.ms=3600000
        copy-started a 0..=99 max 30m
        copy-finished a
        log orders:0 start=0 local=0 end=150 epochs=0:0 leader=1
        local orders:0 broker=2 segments=0:1000:30m,100:500:119m
    " => [];
    epochs_of_one_broker_may_be_empty: "
        copy-started a 0..=99 epochs 0:0,1:50,2:50
        copy-finished a
    " => [];
    a_healthy_metadata_topic: "
        meta partitions=5 configured=5 rf=3 brokers=3 starts=0,0,0,0,0 ends=2,0,0,0,0
        meta retention.ms=-1 retention.bytes=-1 cleanup.policy=delete min.insync.replicas=2 unclean.leader.election.enable=false remote.storage.enable=false
        meta under-replicated=none offline=none truncated=none
        copy-started a 0..=99
        copy-finished a
    " => [];
    one_broker_needs_one_replica: "
        meta rf=1 brokers=1 min.insync.replicas=1
    " => [];
}
