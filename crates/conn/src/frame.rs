//! Cutting answers out of the bytes of a connection.
//!
//! A frame is a 4-byte length (big endian, without itself) and that many bytes, of which the first four are
//! the correlation id.

use bytes::{Bytes, BytesMut};

use crate::{CloseReason, Dialect};

/// Bytes of the length field.
const LENGTH_BYTES: usize = 4;

/// The shortest frame: a correlation id alone.
const FRAME_BYTES_MIN: usize = 4;

/// The least room that is made for reading. Where it is not enough, the room doubles as bytes arrive.
const READ_BYTES_MIN: usize = 64 * 1024;

/// Less room than this is not worth a read.
const ROOM_BYTES_MIN: usize = 4 * 1024;

/// Collects what a peer sends and gives it back frame by frame, each as a slice of what was read.
///
/// Memory follows the bytes that arrive and not the length that a frame claims: room doubles while a frame
/// comes in, up to its end, and is made at once only up to the size that this peer has brought before.
#[derive(Debug)]
pub(crate) struct FrameReader {
    input: BytesMut,
    frame_bytes_max: usize,
    /// The longest frame this peer has brought, with its length field.
    largest: usize,
}

impl FrameReader {
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        Self { input: BytesMut::new(), frame_bytes_max: frame_bytes_max.min(i32::MAX as usize), largest: 0 }
    }

    /// Where to read into: has room for what is missing of a frame that has begun, as far as its length is believed, and
    /// between frames for at least [`ROOM_BYTES_MIN`].
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        let held = self.input.len();
        let whole =
            self.claimed().and_then(|claimed| usize::try_from(claimed).ok()).map(|n| LENGTH_BYTES + n);
        let missing = whole.unwrap_or(0).min(self.largest.max(2 * held)).saturating_sub(held);
        let needed = if whole.is_some() { missing.max(1) } else { ROOM_BYTES_MIN };
        // Room left over from before is used up first, so that small answers share one buffer.
        if self.input.capacity() - held < needed {
            self.input.reserve(missing.max(READ_BYTES_MIN));
        }
        &mut self.input
    }

    /// The next whole frame without its length; `None` until more bytes have come.
    ///
    /// # Errors
    /// The length is not one that a Kafka broker sends. Nothing that follows can be read.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Bytes>, CloseReason> {
        let Some(claimed) = self.claimed() else { return Ok(None) };
        self.check_length(claimed)?;
        let whole = LENGTH_BYTES + claimed as usize;
        if self.input.len() < whole {
            return Ok(None);
        }
        let mut frame = self.input.split_to(whole).freeze();
        self.largest = self.largest.max(whole);
        if self.input.is_empty() && whole > READ_BYTES_MIN {
            // A large buffer goes with its frame: whoever waits long for the next answer does not keep it meanwhile.
            self.input = BytesMut::new();
        }
        Ok(Some(frame.split_off(LENGTH_BYTES)))
    }

    /// Bytes that are there and are not yet a whole frame.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.input.len()
    }

    fn claimed(&self) -> Option<i32> {
        self.input.first_chunk::<LENGTH_BYTES>().map(|length| i32::from_be_bytes(*length))
    }

    fn check_length(&self, claimed: i32) -> Result<(), CloseReason> {
        let fits = usize::try_from(claimed)
            .is_ok_and(|length| (FRAME_BYTES_MIN..=self.frame_bytes_max).contains(&length));
        // The first answer of a connection (ApiVersions) is short: a length that spells another protocol is
        // one.
        let first = self.largest == 0;
        match dialect(claimed.to_be_bytes()) {
            Some(dialect) if first || !fits => Err(CloseReason::NotKafka(dialect)),
            _ if fits => Ok(()),
            _ => Err(CloseReason::FrameLength { claimed, max: self.frame_bytes_max }),
        }
    }
}

/// What the first four bytes of a peer betray, if not a length.
pub(crate) fn dialect(start: [u8; LENGTH_BYTES]) -> Option<Dialect> {
    match start {
        [b'H', b'T', b'T', b'P'] => Some(Dialect::Http),
        // Content type (change cipher spec, alert, handshake, application data), then version 3.0 to 3.4.
        [0x14..=0x17, 0x03, 0x00..=0x04, _] => Some(Dialect::Tls),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, any};
    use proptest::{prop_assert, prop_oneof, proptest};

    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut bytes = (body.len() as i32).to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    fn feed(reader: &mut FrameReader, bytes: &[u8]) {
        let buffer = reader.buffer();
        assert!(buffer.capacity() > buffer.len());
        buffer.extend_from_slice(bytes);
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_are_cut() {
        let bodies: Vec<Vec<u8>> = [4, 5, 200, 100_000].iter().map(|&n| vec![n as u8; n]).collect();
        let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
        for step in [1, 3, 4, 7, 1000, bytes.len()] {
            let mut reader = FrameReader::new(1 << 20);
            let mut seen = Vec::new();
            for piece in bytes.chunks(step) {
                feed(&mut reader, piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    seen.push(frame.to_vec());
                }
            }
            assert_eq!(seen, bodies, "in steps of {step}");
            assert_eq!(reader.pending_bytes(), 0);
        }
    }

    #[test]
    fn a_large_buffer_is_as_large_as_its_frame_and_goes_with_it() {
        let bytes = frame(&[7; 1 << 20]);
        let mut reader = FrameReader::new(1 << 21);
        for round in 0..3 {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let buffer = reader.buffer();
                let room = buffer.capacity() - buffer.len();
                let (piece, later) = rest.split_at(room.min(rest.len()));
                buffer.extend_from_slice(piece);
                rest = later;
            }
            // The first one is not believed at once, and doubles up to its end.
            let most = if round == 0 { 2 * bytes.len() } else { bytes.len() };
            assert!(reader.input.capacity() <= most, "{} in round {round}", reader.input.capacity());
            assert_eq!(reader.next_frame().unwrap().unwrap().len(), 1 << 20);
            assert_eq!(reader.input.capacity(), 0);
        }
    }

    #[test]
    fn a_length_that_no_broker_sends_is_told_by_what_it_is() {
        let first = |start: &[u8]| {
            let mut reader = FrameReader::new(1000);
            feed(&mut reader, start);
            reader.next_frame().unwrap_err().to_string()
        };
        insta::assert_snapshot!(first(b"HTTP/1.1 400 Bad Request"), @"the peer speaks HTTP, not Kafka's protocol");
        insta::assert_snapshot!(first(&[0x15, 3, 3, 0, 2, 2, 40]), @"the peer speaks TLS, not Kafka's protocol");
        insta::assert_snapshot!(first(&[0x16, 3, 1, 2]), @"the peer speaks TLS, not Kafka's protocol");
        insta::assert_snapshot!(first(&[0xff; 4]), @"an answer claims a length of -1 bytes; accepted are 4 to 1000");
        insta::assert_snapshot!(first(&[0, 0, 0, 3]), @"an answer claims a length of 3 bytes; accepted are 4 to 1000");
        insta::assert_snapshot!(first(&[0, 0, 3, 0xe9]), @"an answer claims a length of 1001 bytes; accepted are 4 to 1000");
    }

    #[test]
    fn a_claimed_length_reserves_nothing_before_its_bytes_come() {
        let mut reader = FrameReader::new(i32::MAX as usize);
        feed(&mut reader, &(1_i32 << 30).to_be_bytes());
        for _ in 0..40 {
            assert!(reader.next_frame().unwrap().is_none());
            let (held, room) = {
                let buffer = reader.buffer();
                (buffer.len(), buffer.capacity())
            };
            assert!(room <= READ_BYTES_MIN + 4 * held, "{room} bytes reserved for {held}");
            feed(&mut reader, &[0; 16 * 1024]);
        }
    }

    #[test]
    fn room_for_a_frame_as_long_as_an_earlier_one_is_made_at_once() {
        let mut reader = FrameReader::new(1 << 24);
        let body = vec![7; 1 << 20];
        feed(&mut reader, &frame(&body));
        assert!(reader.next_frame().unwrap().is_some());
        feed(&mut reader, &frame(&body)[..10]);
        assert!(reader.buffer().capacity() > 1 << 20);
    }

    proptest! {
        #[test]
        fn random_bytes_neither_panic_nor_reserve_more_than_they_bring(
            bytes in proptest::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..3000),
            step in 1_usize..500,
        ) {
            let mut reader = FrameReader::new(1 << 20);
            'input: for piece in bytes.chunks(step) {
                let buffer = reader.buffer();
                buffer.extend_from_slice(piece);
                prop_assert!(buffer.capacity() <= 2 * (READ_BYTES_MIN + bytes.len()));
                loop {
                    match reader.next_frame() {
                        Ok(Some(frame)) => prop_assert!(frame.len() >= FRAME_BYTES_MIN),
                        Ok(None) => break,
                        Err(_) => break 'input,
                    }
                }
            }
        }
    }
}
