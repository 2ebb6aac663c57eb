use strandline_protocol::messages::{ListOffsetsRequest, SaslHandshakeRequest};

use super::*;

fn verdict<R: Request>(request: &R, evidence: Evidence) -> String {
    assert_eq!(Gate::ReadWrite.check(request, evidence), Ok(()), "the open gate lets everything pass");
    match Gate::ReadOnly.check(request, evidence) {
        Ok(()) => "passes".to_owned(),
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn every_api_of_kafka_is_decided_and_only_the_reading_ones_pass() {
    let named = |wanted: fn(Rule) -> bool| {
        let keys = ApiKey::ALL.iter().filter(|api| wanted(rule(**api)));
        keys.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    insta::assert_snapshot!(named(|rule| rule == Rule::Reads), @"ListOffsets OffsetFetch DescribeGroups ListGroups SaslHandshake ApiVersions OffsetForLeaderEpoch DescribeAcls DescribeConfigs DescribeLogDirs SaslAuthenticate DescribeDelegationToken ListPartitionReassignments DescribeClientQuotas DescribeUserScramCredentials DescribeQuorum DescribeCluster DescribeProducers DescribeTransactions ListTransactions ConsumerGroupDescribe ListConfigResources DescribeTopicPartitions ShareGroupDescribe StreamsGroupDescribe");
    insta::assert_snapshot!(named(|rule| !matches!(rule, Rule::Reads | Rule::Refused(_))), @"Fetch Metadata FindCoordinator");
    assert_eq!(ApiKey::ALL.len(), 95);
}

#[test]
fn a_request_that_passes_is_one_that_brokers_answer_to_clients() {
    for api in ApiKey::ALL {
        assert!(api.served_by_brokers() || matches!(rule(*api), Rule::Refused(_)), "{api}");
    }
}

#[test]
fn a_metadata_request_passes_only_if_it_creates_no_topic() {
    let metadata = |allow_auto_topic_creation| {
        verdict(
            &MetadataRequest { allow_auto_topic_creation, ..MetadataRequest::default() },
            Evidence::default(),
        )
    };
    insta::assert_snapshot!(metadata(false), @"passes");
    insta::assert_snapshot!(metadata(true), @"Metadata is refused: this client only reads, and a Metadata request that does not say allow_auto_topic_creation=false creates topics");
    // The schema's default is true.
    assert_eq!(verdict(&MetadataRequest::default(), Evidence::default()), metadata(true));
}

#[test]
fn a_fetch_passes_only_as_a_consumers() {
    let fetch = |old_id, new_id| {
        let mut request = FetchRequest { replica_id: old_id, ..FetchRequest::default() };
        request.replica_state.replica_id = new_id;
        verdict(&request, Evidence::default())
    };
    insta::assert_snapshot!(fetch(-1, -1), @"passes");
    insta::assert_snapshot!(fetch(3, -1), @"Fetch is refused: this client only reads, and a Fetch request with a replica id moves the partition's high watermark");
    assert_eq!(fetch(-1, 3), fetch(3, -1));
}

#[test]
fn looking_for_a_coordinator_passes_only_while_its_topic_is_known_to_exist() {
    let find = |key_type, groups, transactions| {
        let evidence = Evidence { consumer_offsets_exists: groups, transaction_state_exists: transactions };
        verdict(&FindCoordinatorRequest { key_type, ..FindCoordinatorRequest::default() }, evidence)
            == "passes"
    };
    assert!(find(0, true, false) && !find(0, false, true));
    assert!(find(1, false, true) && !find(1, true, false));
    assert!(!find(2, true, true), "a share group's coordinator");
}

#[test]
fn other_reading_requests_pass_as_they_are() {
    assert_eq!(verdict(&ListOffsetsRequest::default(), Evidence::default()), "passes");
    assert_eq!(verdict(&SaslHandshakeRequest::default(), Evidence::default()), "passes");
}
