//! Work on many chunks at once, with the results in the order of the chunks.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// How many chunks may wait before a worker, and how many results behind it.
const QUEUED_CHUNKS_MAX: usize = 2;

/// Takes chunks from `chunks` on a thread of its own, hands each to one of as many workers as there are cores, and
/// gives the results to `sink` in the order of the chunks. Memory is bounded by a few chunks per worker.
///
/// `work` is called with a worker's own state, made by `state`. When `sink` fails, the rest is dropped and the
/// error is returned. Each worker gets every n-th chunk, so the chunks should be of like size.
pub(crate) fn ordered<C, S, R, E>(
    chunks: impl Iterator<Item = C> + Send,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, C) -> R + Sync,
    mut sink: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E>
where
    C: Send,
    R: Send,
{
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let mut inputs: Vec<SyncSender<C>> = Vec::with_capacity(workers);
        let mut outputs: Vec<Receiver<R>> = Vec::with_capacity(workers);
        for _ in 0..workers {
            let (input, chunks) = sync_channel::<C>(QUEUED_CHUNKS_MAX);
            let (results, output) = sync_channel::<R>(QUEUED_CHUNKS_MAX);
            inputs.push(input);
            outputs.push(output);
            let (state, work) = (&state, &work);
            scope.spawn(move || {
                let mut state = state();
                for chunk in chunks {
                    if results.send(work(&mut state, chunk)).is_err() {
                        return;
                    }
                }
            });
        }
        scope.spawn(move || {
            for (index, chunk) in chunks.enumerate() {
                if inputs[index % inputs.len()].send(chunk).is_err() {
                    return;
                }
            }
        });
        // The first worker without a further result is the end: later workers have had fewer chunks, never more.
        for output in (0..workers).cycle() {
            match outputs[output].recv() {
                Ok(result) => sink(result)?,
                Err(_) => break,
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_chunks() {
        for count in [0, 1, 2, 3, 100] {
            let mut seen = Vec::new();
            let result: Result<(), ()> = ordered(
                0..count,
                || (),
                |(), chunk| chunk * 2,
                |result| {
                    seen.push(result);
                    Ok(())
                },
            );
            result.unwrap();
            assert_eq!(seen, (0..count).map(|chunk| chunk * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_sink_that_fails_ends_an_endless_source() {
        let mut seen = 0;
        let result = ordered(
            0..,
            || (),
            |(), chunk: u64| chunk,
            |_| {
                seen += 1;
                if seen == 10 { Err("enough") } else { Ok(()) }
            },
        );
        assert_eq!((result, seen), (Err("enough"), 10));
    }
}
