//! A body that holds more than what it says that it stands for is no segment.

use pageshare_stream::Token;
use pageshare_wire::segment::{Draft, SEGMENT_HEADER_BYTES, SegmentView};
use pageshare_wire::{Chain, Compressor, WireError};

const RAW: u8 = 1;
const ZSTD: u8 = 2;

/// A body that says that it stands for so many bytes of the stream, so many of them literal.
fn body(expanded: u32, ops: &[u8], literals: u32, coding: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for field in [expanded, u32::try_from(ops.len()).expect("few operations"), literals] {
        body.extend(field.to_le_bytes());
    }
    body.extend([coding, 0, 0, 0]);
    body.resize(SEGMENT_HEADER_BYTES, 0);
    body.extend(ops);
    body.extend(payload);
    body
}

#[test]
fn no_frame_is_as_long_as_what_it_stands_for() {
    for (literals, payload) in [(0, 4 << 20), (0, 1), (100, 100), (100, 4 << 20)] {
        let lie = body(100, &[], literals, ZSTD, &vec![0; payload]);
        let refused = Some(WireError::Protocol("header of a segment"));
        assert_eq!(SegmentView::parse(&lie).err(), refused, "{payload} bytes");
    }
    assert!(SegmentView::parse(&body(100, &[], 100, ZSTD, &[0; 99])).is_ok());
    assert!(SegmentView::parse(&body(100, &[], 100, RAW, &[0; 100])).is_ok());
}

#[test]
fn no_segment_stands_for_nothing_or_for_more_than_a_segment() {
    for expanded in [0, (1 << 20) + 1] {
        assert!(SegmentView::parse(&body(expanded, &[], 0, RAW, &[])).is_err(), "{expanded}");
    }
    assert!(SegmentView::parse(&body(1 << 20, &[], 0, RAW, &[])).is_ok());
}

/// The least that a compressor's call is made for, and bytes that shrink by little: what is sent
/// has to be taken.
#[test]
fn what_is_compressed_is_a_frame_that_is_taken() {
    let mut compressor = Compressor::new(1).expect("a level that zstd has");
    for (zeros, noise) in [(1 << 10, 0), (100, 1 << 10), (1 << 12, 200 << 10), (0, 1 << 12)] {
        let mut stream = vec![0; zeros];
        stream.extend((0..noise).map(|n: u32| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]));
        let mut draft = Draft::new(stream.clone());
        draft.add(Token::Bytes, stream.len(), false);
        let encoded = draft.encode(Vec::new(), &[], &[], Some(&mut compressor));
        let mut body = encoded.seal(0, &mut Chain::default());
        body.extend(encoded.payload());
        let view = SegmentView::parse(&body).expect("what a sender makes");
        assert_eq!(view.stream_bytes(), stream.len());
    }
}
