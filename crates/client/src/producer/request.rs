//! Produce requests, and which part of an answer is about which batch.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use strandline_meta::routing::Subject;
use strandline_meta::{Call, ErrorCode, ItemAnswer, Routed};
use strandline_protocol::Uuid;
use strandline_protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, TopicProduceData,
};
use strandline_protocol::messages::{ProduceRequest, ProduceResponse};

use super::core::{Part, PartAnswer};

/// The last version of Produce that names topics by name.
const PRODUCE_BY_NAME: i16 = 12;

/// A part with its batch as it goes over the wire.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) part: Part,
    pub(super) records: Bytes,
}

/// Batches to their leaders, with acks=all.
pub(super) struct Produce {
    /// How long a broker waits for its followers before it says that it did.
    pub(super) timeout_ms: i32,
    /// Some topic's id is not known, so that topics have to be named.
    pub(super) by_name: bool,
}

impl Call for Produce {
    type Request = ProduceRequest;
    type Item = Encoded;
    type Answer = PartAnswer;

    fn subject(&self, item: &Encoded) -> Subject {
        Subject::Partition { topic: Arc::clone(&item.part.topic), partition: item.part.partition }
    }

    fn version_max(&self) -> Option<i16> {
        self.by_name.then_some(PRODUCE_BY_NAME)
    }

    /// Leaves out what was withdrawn in the meantime.
    fn request(&self, items: &[Routed<'_, Encoded>], _version: i16) -> ProduceRequest {
        let mut topic_data: Vec<TopicProduceData> = Vec::new();
        for Encoded { part, records } in items.iter().map(|routed| routed.item) {
            if !part.handover.begin() {
                continue;
            }
            let data = PartitionProduceData {
                index: part.partition,
                records: Some(records.clone()),
                ..PartitionProduceData::default()
            };
            match topic_data.iter_mut().rfind(|topic| *topic.name == *part.topic) {
                Some(topic) => topic.partition_data.push(data),
                None => topic_data.push(TopicProduceData {
                    name: part.topic.to_string(),
                    topic_id: part.topic_id.map_or(Uuid::ZERO, |id| id.0),
                    partition_data: vec![data],
                    ..TopicProduceData::default()
                }),
            }
        }
        ProduceRequest { acks: -1, timeout_ms: self.timeout_ms, topic_data, ..ProduceRequest::default() }
    }

    /// By topic *and* partition: partition numbers repeat from topic to topic.
    fn answers(
        &self,
        items: &[Routed<'_, Encoded>],
        response: ProduceResponse,
    ) -> Vec<ItemAnswer<PartAnswer>> {
        let mut topics: Vec<(String, Uuid, VecDeque<PartitionProduceResponse>)> = response
            .responses
            .into_iter()
            .map(|topic| (topic.name, topic.topic_id, topic.partition_responses.into()))
            .collect();
        let answer = |part: &Part| {
            let (_, _, answers) = topics.iter_mut().find(|(name, id, _)| match *id {
                Uuid::ZERO => **name == *part.topic,
                id => part.topic_id.is_some_and(|known| known.0 == id),
            })?;
            // Brokers answer in the order of the request, mostly.
            let at = answers.iter().position(|answer| answer.index == part.partition)?;
            answers.remove(at).map(part_answer)
        };
        items.iter().map(|routed| &routed.item.part).map(answer).map(item_answer).collect()
    }
}

fn item_answer(answer: Option<PartAnswer>) -> ItemAnswer<PartAnswer> {
    answer.map_or(ItemAnswer::LeftOut, ItemAnswer::Answer)
}

fn part_answer(answer: PartitionProduceResponse) -> PartAnswer {
    let refused = answer.record_errors.into_iter().filter_map(|error| {
        let number = usize::try_from(error.batch_index).ok()?;
        Some((number, error.batch_index_error_message.map(Arc::from)))
    });
    PartAnswer {
        code: answer.error_code,
        message: answer.error_message.map(Arc::from),
        base_offset: answer.base_offset,
        log_append_time_ms: answer.log_append_time_ms,
        refused_records: if answer.error_code == ErrorCode::None { Vec::new() } else { refused.collect() },
    }
}

#[cfg(test)]
mod tests {
    use strandline_protocol::messages::produce::TopicProduceResponse;
    use strandline_protocol::records::{BatchBuilder, BatchOptions, Producer};

    use strandline_meta::TopicId;

    use super::*;

    fn encoded(topic: &str, id: Option<u8>, partition: i32) -> Encoded {
        let part = Part {
            topic: topic.into(),
            topic_id: id.map(topic_id),
            partition,
            producer: Producer { id: 7, epoch: 0, base_sequence: 0 },
            records: Arc::new(BatchBuilder::new(BatchOptions::default())),
            handover: Arc::default(),
        };
        Encoded { part, records: Bytes::from_static(b"batch") }
    }

    fn topic_id(last: u8) -> TopicId {
        let mut bytes = [0; 16];
        bytes[15] = last;
        TopicId(Uuid(bytes))
    }

    fn routed(items: &[Encoded]) -> Vec<Routed<'_, Encoded>> {
        items.iter().map(|item| Routed { item, leader_epoch: None }).collect()
    }

    fn said(name: &str, id: u8, partitions: &[(i32, ErrorCode, i64)]) -> TopicProduceResponse {
        let partition_responses =
            partitions.iter().map(|(index, error_code, base_offset)| PartitionProduceResponse {
                index: *index,
                error_code: *error_code,
                base_offset: *base_offset,
                ..PartitionProduceResponse::default()
            });
        TopicProduceResponse {
            name: name.to_owned(),
            topic_id: if id == 0 { Uuid::ZERO } else { topic_id(id).0 },
            partition_responses: partition_responses.collect(),
            ..TopicProduceResponse::default()
        }
    }

    fn shown(items: &[Encoded], responses: Vec<TopicProduceResponse>) -> Vec<String> {
        let response = ProduceResponse { responses, ..ProduceResponse::default() };
        let answers = Produce { timeout_ms: 1, by_name: false }.answers(&routed(items), response);
        let show = |answer: ItemAnswer<PartAnswer>| match answer {
            ItemAnswer::Answer(answer) => format!("{} {}", answer.code, answer.base_offset),
            other => format!("{other:?}"),
        };
        answers.into_iter().map(show).collect()
    }

    #[test]
    fn an_answer_belongs_to_the_batch_of_its_topic_and_partition_in_whatever_order_it_comes() {
        let items = [encoded("a", Some(1), 0), encoded("b", Some(2), 0), encoded("a", Some(1), 1)];
        let refused = ErrorCode::InvalidRecord;
        let expected = ["INVALID_RECORD -1", "NONE 500", "NONE 7"];
        let (none, b) = (ErrorCode::None, [(0, ErrorCode::None, 500)]);
        let a = [(1, none, 7), (0, refused, -1)];
        assert_eq!(shown(&items, vec![said("b", 0, &b), said("a", 0, &a)]), expected, "by name");
        assert_eq!(shown(&items, vec![said("", 2, &b), said("", 1, &a)]), expected, "by id");
    }

    #[test]
    fn an_answer_about_something_else_is_no_answer() {
        let items = [encoded("a", Some(1), 0)];
        let none = ErrorCode::None;
        assert_eq!(shown(&items, Vec::new()), ["LeftOut"]);
        assert_eq!(shown(&items, vec![said("b", 0, &[(0, none, 1)])]), ["LeftOut"]);
        assert_eq!(shown(&items, vec![said("", 9, &[(0, none, 1)])]), ["LeftOut"]);
        assert_eq!(shown(&items, vec![said("a", 0, &[(1, none, 1)])]), ["LeftOut"]);
    }

    #[test]
    fn a_topic_without_an_id_is_named_and_a_batch_that_was_withdrawn_is_left_out() {
        let call = Produce { timeout_ms: 1, by_name: true };
        let items = [encoded("a", Some(1), 0), encoded("b", None, 0), encoded("a", Some(1), 1)];
        assert_eq!(call.version_max(), Some(12));
        assert!(items[1].part.handover.withdraw());
        let request = call.request(&routed(&items), 13);
        let topics: Vec<_> =
            request.topic_data.iter().map(|topic| (&*topic.name, topic.partition_data.len())).collect();
        assert_eq!(topics, [("a", 2)]);
        assert!(!items[0].part.handover.withdraw(), "it is in a request");
    }
}
