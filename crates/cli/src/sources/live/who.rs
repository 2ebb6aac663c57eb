//! Who holds uploads back, and who stands where: open transactions and consumer groups.
//!
//! No rule needs these, so they are asked for only where somebody wants to know. What a missing right withholds is
//! *not known* and named; what fails otherwise is *incomplete*.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use strandline_audit::{Facts, GroupOffsetFact, Need, NotKnown, OpenTransaction};
use strandline_client::admin::{ActiveProducer, ListedOffset, PartitionQuery, TransactionDescription};
use strandline_conn::Recovery;
use strandline_meta::{ErrorCode, SendError, Topic};

use super::super::chain;
use super::{PartitionKey, Topics};
use crate::address::Selection;
use crate::output::Incomplete;

/// Most partitions whose open transactions are looked for.
const HELD_BACK_MAX: usize = 100;

/// So many groups are named where a right is missing for more.
const NAMES_MAX: usize = 3;

impl Topics<'_> {
    /// The open transactions that hold the last stable offset back.
    pub(super) async fn held_back(
        &mut self,
        ends: &FxHashMap<PartitionKey, ListedOffset>,
        stable: &FxHashMap<PartitionKey, ListedOffset>,
        selection: &Selection,
        facts: &mut Facts,
    ) -> FxHashMap<PartitionKey, OpenTransaction> {
        let below = |(key, stable): &(&PartitionKey, &ListedOffset)| {
            ends.get(*key).is_some_and(|end| stable.offset.is_some() && stable.offset < end.offset)
        };
        let mut queries: Vec<PartitionQuery> = stable
            .iter()
            .filter(below)
            .filter(|((topic, partition), _)| selection.has_partition(topic, *partition))
            .map(|((topic, partition), _)| PartitionQuery { topic: Arc::clone(topic), partition: *partition })
            .collect();
        queries.sort();
        if queries.len() > HELD_BACK_MAX {
            let reason = format!("only the first {HELD_BACK_MAX} are asked about; name one partition");
            let what = format!("the open transactions of {} more partitions", queries.len() - HELD_BACK_MAX);
            facts.not_known.push(NotKnown { what, reason });
            queries.truncate(HELD_BACK_MAX);
        }
        let mut held = FxHashMap::default();
        if queries.is_empty() {
            return held;
        }
        let answers = match self.admin.describe_producers(&queries, self.live.deadline()).await {
            Ok(answers) => answers,
            Err(error) => {
                self.unanswered("who holds the last stable offsets".to_owned(), &error, READ, facts);
                return held;
            }
        };
        for (query, answer) in queries.into_iter().zip(answers) {
            match answer {
                Ok(producers) => {
                    if let Some(first) = first_open(producers) {
                        held.insert((query.topic, query.partition), first);
                    }
                }
                Err(error) => {
                    let what =
                        format!("who holds the last stable offset of {}:{}", query.topic, query.partition);
                    self.unanswered(what, &error, READ, facts);
                }
            }
        }
        if !held.is_empty() {
            self.name_transactions(&mut held, facts).await;
            self.look_again(&mut held, facts).await;
        }
        held
    }

    /// Asks the leaders once more about transactions that their coordinators call over. Markers are written before a
    /// transaction is over: one that is open still hangs, and one that is not had just ended.
    async fn look_again(&mut self, held: &mut FxHashMap<PartitionKey, OpenTransaction>, facts: &mut Facts) {
        let over = held.iter().filter(|(_, transaction)| transaction.hangs());
        let queries: Vec<PartitionQuery> = over
            .map(|((topic, partition), _)| PartitionQuery { topic: Arc::clone(topic), partition: *partition })
            .collect();
        if queries.is_empty() {
            return;
        }
        let answers = match self.admin.describe_producers(&queries, self.live.deadline()).await {
            Ok(answers) => answers,
            Err(error) => {
                let what = "whether transactions that are over hang".to_owned();
                return self.unanswered(what, &error, READ, facts);
            }
        };
        for (query, answer) in queries.into_iter().zip(answers) {
            let key = (query.topic, query.partition);
            match answer {
                Ok(producers) => {
                    let now = first_open(producers);
                    let same = |now: &OpenTransaction| {
                        let before = &held[&key];
                        (now.producer_id, now.first_offset) == (before.producer_id, before.first_offset)
                    };
                    match now {
                        Some(now) if same(&now) => {}
                        // Another one has taken its place since, and nobody was asked about it.
                        Some(now) => drop(held.insert(key, now)),
                        None => drop(held.remove(&key)),
                    }
                }
                Err(error) => {
                    let what = format!("whether the transaction of {}:{} hangs", key.0, key.1);
                    self.unanswered(what, &error, READ, facts);
                }
            }
        }
    }

    /// Puts to the producers what their coordinators tell: each of them lists its transactions, as far as this principal may
    /// describe them, and describes those that are meant.
    async fn name_transactions(
        &mut self,
        held: &mut FxHashMap<PartitionKey, OpenTransaction>,
        facts: &mut Facts,
    ) {
        let brokers = match self.admin.list_transactions(&[], self.live.deadline()).await {
            Ok(brokers) => brokers,
            Err(error) => {
                let what = "the transactional ids that hold last stable offsets".to_owned();
                return self.unanswered(what, &error, DESCRIBE_ID, facts);
            }
        };
        let mut complete = true;
        // By producer id: the transactional id and its coordinator.
        let mut ids: FxHashMap<i64, (String, i32)> = FxHashMap::default();
        for (broker, listed) in brokers {
            match listed {
                Ok(listed) => ids.extend(
                    listed.into_iter().map(|listed| (listed.producer_id, (listed.transactional_id, broker))),
                ),
                Err(error) => {
                    complete = false;
                    self.unanswered(
                        format!("the transactions of broker {broker}"),
                        &error,
                        DESCRIBE_ID,
                        facts,
                    );
                }
            }
        }
        let wanted: BTreeMap<String, i32> =
            held.values().filter_map(|transaction| ids.get(&transaction.producer_id).cloned()).collect();
        let names: Vec<String> = wanted.into_keys().collect();
        let mut described: FxHashMap<String, Option<TransactionDescription>> = FxHashMap::default();
        if !names.is_empty() {
            match self.admin.describe_transactions(&names, self.live.deadline()).await {
                Ok(answers) => {
                    for (name, answer) in names.into_iter().zip(answers) {
                        match answer {
                            Ok(description) => drop(described.insert(name, Some(description))),
                            // Listed a moment ago, and forgotten since.
                            Err(error) if error.code() == Some(ErrorCode::TransactionalIdNotFound) => {
                                drop(described.insert(name, None));
                            }
                            Err(error) => {
                                let what = format!("the state of transactional id {name}");
                                self.unanswered(what, &error, DESCRIBE_ID, facts);
                            }
                        }
                    }
                }
                Err(error) => {
                    let what = "the states of transactions".to_owned();
                    self.unanswered(what, &error, DESCRIBE_ID, facts);
                }
            }
        }
        for transaction in held.values_mut() {
            let Some((id, coordinator)) = ids.get(&transaction.producer_id) else {
                if complete {
                    facts.not_known.push(NotKnown {
                        what: format!("the transactional id of producer {}", transaction.producer_id),
                        reason: "no coordinator names it: DESCRIBE on the transactional id is missing, or the transaction hangs (kafka-transactions find-hanging tells)"
                            .to_owned(),
                    });
                }
                continue;
            };
            transaction.transactional_id = Some(id.clone());
            transaction.coordinator = Some(*coordinator);
            match described.get(id) {
                Some(Some(told)) => {
                    transaction.state = Some(told.state.clone());
                    transaction.start_ms = told.start_ms;
                    transaction.timeout_ms = Some(i64::from(told.timeout_ms));
                }
                Some(None) => transaction.state = Some("Dead".to_owned()),
                None => {}
            }
        }
        facts.not_known.sort_by(|a, b| a.what.cmp(&b.what));
        facts.not_known.dedup();
    }

    /// Where each consumer group stands in the partitions of these topics.
    pub(super) async fn groups(&mut self, topics: &[Topic], selection: &Selection, facts: &mut Facts) {
        let partitions: Vec<PartitionQuery> = topics
            .iter()
            .flat_map(|topic| {
                let query = |partition: &strandline_meta::Partition| PartitionQuery {
                    topic: Arc::clone(&topic.name),
                    partition: partition.index,
                };
                topic.partitions.iter().map(query)
            })
            .filter(|query| selection.has_partition(&query.topic, query.partition))
            .collect();
        if partitions.is_empty() {
            return;
        }
        let found = match self.admin.groups_with_offsets(Some(&partitions), self.live.deadline()).await {
            Ok(found) => found,
            Err(error) => {
                return self.unanswered("the consumer groups".to_owned(), &error, DESCRIBE_GROUP, facts);
            }
        };
        let mut complete = found.failed_brokers.is_empty();
        for (broker, error) in &found.failed_brokers {
            self.unanswered(format!("the consumer groups of broker {broker}"), error, DESCRIBE_GROUP, facts);
        }
        // Many groups fail for the same reason, whoever coordinates them: they share a line.
        let mut failed: BTreeMap<String, (Vec<String>, SendError)> = BTreeMap::new();
        for (group, offsets) in found.groups {
            match offsets {
                Ok(offsets) => {
                    let stands = offsets.into_iter().filter_map(|found| {
                        let next_offset = found.committed.ok()?.next_offset;
                        Some(GroupOffsetFact {
                            group: group.group_id.clone(),
                            topic: found.topic,
                            partition: found.partition,
                            next_offset,
                            state: group.state.clone(),
                        })
                    });
                    facts.group_offsets.extend(stands);
                }
                // Deleted since it was listed, or of a kind that commits nothing.
                Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => {}
                Err(error) => {
                    let reason = error.code().map_or_else(|| chain(&error), |code| code.to_string());
                    let (groups, _) = failed.entry(reason).or_insert_with(|| (Vec::new(), error));
                    groups.push(group.group_id);
                }
            }
        }
        for (groups, error) in failed.into_values() {
            complete = false;
            let right = match &error {
                SendError::Topic { code: ErrorCode::TopicAuthorizationFailed, topic } => {
                    format!("DESCRIBE on the topic {topic}")
                }
                _ => DESCRIBE_GROUP.to_owned(),
            };
            self.unanswered(format!("the offsets of consumer {}", named(&groups)), &error, &right, facts);
        }
        // A broker lists to whom may not describe the cluster only what groups they may describe, without a word. Whether they
        // may is known from the question about log directories.
        if self.missing_rights.get(&Need::LocalSegments) == Some(&super::LOG_DIRS_RIGHT.1) {
            complete = false;
            facts.not_known.push(NotKnown {
                what: "whether there are more consumer groups".to_owned(),
                reason: "DESCRIBE on the cluster is missing, without which groups that this principal may not describe are left out"
                    .to_owned(),
            });
        }
        facts.groups_complete = complete;
    }

    /// Notes what has no answer: not known where a right is missing or the broker is too old, else incomplete.
    fn unanswered(&mut self, what: String, error: &SendError, right: &str, facts: &mut Facts) {
        let reason = match error {
            _ if error.recovery() == Recovery::Forbidden => missing(right),
            SendError::TooOld { .. } | SendError::NoCoordinators { .. } => chain(error),
            _ => {
                self.incomplete.push(Incomplete { what, reason: chain(error) });
                return;
            }
        };
        facts.not_known.push(NotKnown { what, reason });
    }
}

/// What DescribeProducers takes.
const READ: &str = "READ on the topic";
/// What ListTransactions and DescribeTransactions take.
const DESCRIBE_ID: &str = "DESCRIBE on the transactional id";
/// What ListGroups and OffsetFetch take.
const DESCRIBE_GROUP: &str = "DESCRIBE on the group";

fn missing(right: &str) -> String {
    format!("{right} is missing")
}

/// The producer whose transaction began first in the partition.
fn first_open(producers: Vec<ActiveProducer>) -> Option<OpenTransaction> {
    let open = producers.into_iter().filter(|producer| producer.transaction_start_offset.is_some());
    let first = open.min_by_key(|producer| producer.transaction_start_offset)?;
    Some(OpenTransaction {
        producer_id: first.producer_id,
        transactional_id: None,
        first_offset: first.transaction_start_offset,
        start_ms: None,
        timeout_ms: None,
        state: None,
        coordinator: None,
        last_timestamp_ms: first.last_timestamp_ms,
    })
}

/// `groups a, b, c and 4 more`
fn named(groups: &[String]) -> String {
    let first: Vec<&str> = groups.iter().take(NAMES_MAX).map(String::as_str).collect();
    let noun = if groups.len() == 1 { "group" } else { "groups" };
    match groups.len().checked_sub(NAMES_MAX).filter(|more| *more > 0) {
        Some(more) => format!("{noun} {} and {more} more", first.join(", ")),
        None => format!("{noun} {}", first.join(", ")),
    }
}
