//! Any bytes as any message in any version: an error or a message that can be written and read again, and memory
//! in proportion to the bytes.

#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use strandline_protocol::{Message, messages::*};

type Decode = fn(u8, Bytes);

macro_rules! decoders {
    ($($name:ident,)*) => { &[$(decode::<$name>,)*] };
}

const DECODERS: &[Decode] = strandline_protocol::for_each_message!(decoders);

fn decode<M: Message>(version: u8, bytes: Bytes) {
    let versions = M::VERSIONS;
    let version = versions.first + i16::from(version) % (versions.last - versions.first + 1);
    let mut decoded = None;
    let memory = allocation_counter::measure(|| decoded = Some(M::decode(bytes.clone(), version)));
    assert!(
        memory.bytes_max <= 64 * bytes.len() as u64 + 1024,
        "{} {version}: {} bytes allocated for {}",
        M::NAME,
        memory.bytes_max,
        bytes.len()
    );
    if let Some(Ok(message)) = decoded {
        let mut again = BytesMut::new();
        message.encode(version, &mut again).expect("what was decoded can be encoded");
        let again = M::decode(again.freeze(), version).expect("what was encoded can be decoded");
        assert_eq!(again, message, "{} {version}", M::NAME);
    }
}

fuzz_target!(|input: &[u8]| {
    let [message, version, bytes @ ..] = input else { return };
    DECODERS[usize::from(*message) % DECODERS.len()](*version, Bytes::copy_from_slice(bytes));
});
