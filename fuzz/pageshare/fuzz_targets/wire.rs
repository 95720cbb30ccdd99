//! No bytes from a peer make the receiver panic or expand more than a segment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pageshare_index::{HashKey, ScopeKey};
use pageshare_wire::ask::{Answer, Ask, decode_supply};
use pageshare_wire::hello::{HELLO_BYTES, Hello, WELCOME_BYTES, Welcome};
use pageshare_wire::record::{HEADER_BYTES, Header, decode_credit};
use pageshare_wire::segment::{Held, SegmentView};
use pageshare_wire::{Chain, Expander, PageSet, Versions, delta};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (pages, known, bytes) = (usize::from(input.0 % 8), input.1, input.2);
    let key: HashKey = ScopeKey([1; 32]).hash_key();
    if let Some(head) = bytes.first_chunk::<HEADER_BYTES>() {
        let _ = Header::decode(head);
    }
    if let Some(hello) = bytes.first_chunk::<HELLO_BYTES>() {
        let _ = Hello::decode(hello, Versions::OURS);
    }
    if let Some(welcome) = bytes.first_chunk::<WELCOME_BYTES>() {
        let _ = Welcome::decode(welcome, Versions::OURS);
    }
    let _ = (decode_credit(bytes), Answer::decode(bytes, pages, pages));
    if let Ok(ask) = Ask::decode(bytes) {
        assert_eq!(ask.encode(), bytes);
    }
    let mut expander = Expander::new().unwrap();
    if let Ok(contents) = decode_supply(bytes, &mut expander) {
        assert!(contents.len() <= 1 << 20);
    }
    let _ = delta::apply(bytes, &mut [0; 4096]);
    let mut held = Held { known: PageSet::empty(pages), ..Held::default() };
    for page in 0..pages {
        held.hashes.push(key.hash(&[0; 4096]));
        held.contents.extend([0; 4096]);
        if known >> page & 1 == 1 {
            held.known.insert(page);
        } else {
            held.bases.push((page as u16, Box::new([1; 4096])));
        }
    }
    // The chain protects what lies behind it; here it is made to fit, so that fuzzing gets there.
    let mut bytes = bytes.to_vec();
    if let Ok(view) = SegmentView::parse(&bytes) {
        let chain = view.chain_after(0, &held.hashes, Chain::default());
        bytes[16..32].copy_from_slice(&chain.value());
    }
    if let Ok(view) = SegmentView::parse(&bytes) {
        let mut out = Vec::new();
        if let Ok(missing) = view.missing(&held) {
            held.supplied = vec![0; missing.min(256) * 4096];
        }
        let expanded = view.expand(0, &held, &key, &mut Chain::default(), &mut expander, &mut out);
        for page in expanded.iter().flatten() {
            assert_eq!(key.hash(&out[page.at..page.at + 4096]), page.hash);
        }
        if let (Ok(_), Some(bytes)) = (&expanded, view.verbatim()) {
            assert_eq!(bytes, out);
        }
        assert!(out.len() <= 1 << 20);
        assert_eq!(out.len(), if expanded.is_ok() { view.stream_bytes() } else { 0 });
    }
});
