//! An object by its key.

use strandline_store::Layout;

use super::{Asked, Explanation, ObjectRow};
use crate::exit::Failure;
use crate::sources::StoreSource;

impl Asked<'_> {
    /// What the key says, what the metadata says of that segment, and whether the object is there.
    pub(super) fn object(&self, key: &str, store: Option<&StoreSource>) -> Result<Vec<Explanation>, Failure> {
        let parsed = match store {
            Some(store) => store.parse_key(key),
            None => StoreSource::parse_with(Layout::by_name("local").ok(), key),
        };
        let listed = self.judged.collected.facts.objects.iter().find(|object| object.key == key);
        let presence = match (&self.judged.collected.facts.store, listed) {
            (None, _) => "no store was read, so whether it is there is not known",
            (Some(_), Some(_)) => "the object is there",
            (Some(store), None) if store.complete => "the object is not there",
            (Some(_), None) => "the object was not seen, and the listing is not complete",
        };
        let Some(parsed) = parsed else {
            if listed.is_none() {
                return Err(Failure::usage(format!("{key:?} is neither an object here nor a key of a known layout"))
                    .hint("a key of LocalTieredStorage is kafka-tiered-storage/TOPIC-PARTITION-TOPICID/OFFSET-SEGMENTID.SUFFIX"));
            }
            return Ok(vec![Explanation {
                kind: "object",
                subject: key.to_owned(),
                summary: format!("{presence}, and its key is none that the storage plugin makes"),
                ..Explanation::default()
            }]);
        };
        let mut explanations = self.segment(parsed.segment_id);
        if explanations.is_empty() {
            explanations.push(Explanation {
                summary: "no event names its segment: an orphan, or another cluster's".to_owned(),
                ..Explanation::default()
            });
        }
        let start = parsed.start_offset.map_or_else(String::new, |offset| format!(" at offset {offset}"));
        for explanation in &mut explanations {
            explanation.kind = "object";
            explanation.subject = key.to_owned();
            explanation.reasons.insert(
                0,
                format!(
                    "it is the {} of segment {} of {}:{}{start}; {presence}",
                    parsed.role.as_str(),
                    parsed.segment_id,
                    parsed.topic,
                    parsed.partition
                ),
            );
            let mismatch = explanation.segments.iter().any(|segment| {
                segment.topic_id != parsed.topic_id.to_string() || segment.partition != parsed.partition
            });
            if mismatch {
                explanation
                    .reasons
                    .push("the events give this segment to another topic or partition".to_owned());
            }
            if explanation.objects.is_empty()
                && let Some(listed) = listed
            {
                explanation.objects.push(ObjectRow {
                    role: parsed.role.as_str(),
                    key: Some(key.to_owned()),
                    size_bytes: listed.size_bytes,
                    present: true,
                    required: false,
                });
            }
            let of_key = self.findings(|finding| finding.object_keys.iter().any(|other| other == key));
            for finding in of_key {
                if !explanation.findings.contains(&finding) {
                    explanation.findings.push(finding);
                }
            }
        }
        Ok(explanations)
    }
}
