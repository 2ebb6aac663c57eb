//! One request to one broker, its answer looked at.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use strandline_conn::{Connection, RequestError};
use strandline_protocol::{Message as _, Request};
use tokio::time::Instant;

use super::{Call, ItemAnswer, Routed};
use crate::codes::Codes as _;
use crate::errors::SendError;
use crate::pool::{Endpoint, Purpose};
use crate::snapshot::ClusterSnapshot;
use crate::state::Core;

/// One request to one broker, or several one behind the other where a request has no room for all items: one outcome for
/// each item, in their order. `handed_over` is set before the first byte may leave.
///
/// What the answer says about leaders has entered the view when this returns.
pub(crate) async fn send_one<C: Call>(
    core: &Core,
    call: &C,
    endpoint: &Endpoint,
    items: &[Routed<'_, C::Item>],
    view: &ClusterSnapshot,
    deadline: Instant,
    handed_over: &AtomicBool,
) -> Vec<Result<ItemAnswer<C::Answer>, SendError>> {
    let purpose = Purpose::of(C::Request::API_KEY);
    let all = |error: SendError| items.iter().map(|_| Err(error.clone())).collect();
    let connection = match core.pool.connection(endpoint, purpose, view).await {
        Ok(connection) => connection,
        Err(error) => return all(error),
    };
    let (version, misfits) = match version(call, &connection, items) {
        Ok(known) => known,
        Err(source) => return all(SendError::Request { peer: core.pool.peer(endpoint, view), source }),
    };
    let per_request = call.items_per_request(version).max(1);
    let limits = strandline_conn::Call::by(deadline).request_timeout(core.request_timeout);
    let limits = limits.with_evidence(core.evidence());
    let limits = call.version_max().map_or(limits, |version| limits.at_most(version));
    let fitting: Vec<Routed<'_, C::Item>> = items
        .iter()
        .zip(&misfits)
        .filter(|(_, misfit)| misfit.is_none())
        .map(|(routed, _)| Routed { item: routed.item, leader_epoch: routed.leader_epoch })
        .collect();
    if !fitting.is_empty() {
        handed_over.store(true, Ordering::Relaxed);
    }
    let connection = &connection;
    let parts = fitting.chunks(per_request).map(|part| async move {
        match connection.send(|version| call.request(part, version), limits).await {
            Ok(response) => {
                core.pool.has_answered(endpoint);
                core.learn_leaders(&response.leader_hints());
                let mut answers = call.answers(part, response);
                answers.resize_with(part.len(), || ItemAnswer::LeftOut);
                answers.into_iter().map(Ok).collect::<Vec<_>>()
            }
            Err(source) => {
                if SendError::is_silence(&source) {
                    core.pool.was_silent(endpoint);
                }
                let error = SendError::Request { peer: core.pool.peer(endpoint, view), source };
                part.iter().map(|_| Err(error.clone())).collect()
            }
        }
    });
    let mut outcomes = join_all(parts).await.into_iter().flatten();
    let (key, ours) = (C::Request::API_KEY, C::Request::VERSIONS);
    let outcome = |misfit: Option<String>| match misfit {
        None => outcomes.next().unwrap_or(Ok(ItemAnswer::LeftOut)),
        Some(needed) => {
            let offered = connection.versions().range(key).and_then(|range| range.intersect(ours));
            let peer = core.pool.peer(endpoint, view);
            Err(SendError::TooOld { peer, key, offered: offered.unwrap_or(ours), needed })
        }
    };
    misfits.into_iter().map(outcome).collect()
}

/// The version that the connection has for the call, and for each item what it lacks to be said in it.
fn version<C: Call>(
    call: &C,
    connection: &Connection,
    items: &[Routed<'_, C::Item>],
) -> Result<(i16, Vec<Option<String>>), RequestError> {
    let version =
        connection.versions().pick(C::Request::API_KEY, C::Request::VERSIONS, call.version_max())?;
    Ok((version, items.iter().map(|routed| call.fits(routed.item, version).err()).collect()))
}
