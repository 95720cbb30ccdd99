//! Streams that real QEMUs wrote, parsed as they were when they were recorded, and alike by both
//! parsers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pageshare::inspect::inspect;
use pageshare_stream::{Parser, RamWord, Step, Token, reference};
use serde_json::{Value, json};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/streams")
}

fn streams() -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(directory().join("streams.json")).expect("golden data");
    serde_json::from_str(&text).expect("golden data is JSON")
}

pub(crate) fn stream(name: &str) -> Vec<u8> {
    let file = std::fs::File::open(directory().join(format!("{name}.zst"))).expect("golden data");
    zstd::stream::decode_all(file).expect("golden data is zstd")
}

#[test]
fn every_golden_stream_consists_of_what_it_did() {
    let known = streams();
    assert!(known.len() >= 21, "{known:?}");
    for (name, contents) in known {
        let scratch = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::write(scratch.path(), stream(&name)).expect("a scratch file");
        assert_eq!(json!(inspect(scratch.path()).expect("it is there")), contents, "{name}");
    }
}

#[test]
fn both_parsers_cut_golden_streams_alike_whatever_the_pieces() {
    for name in streams().keys() {
        let channel = stream(name);
        let (expected, until) = reference::parse(&channel);
        for piece in [1, 13, 4096, channel.len()] {
            let mut parser = Parser::new();
            let (mut tokens, mut at, mut seen) = (Vec::new(), 0, 0);
            while seen < channel.len() {
                seen = (seen + piece).min(channel.len());
                while let Step::Token { token, length } = parser.step(&channel[at..seen]) {
                    tokens.push((token, length));
                    at += length;
                }
            }
            assert!(reference::merge(tokens) == expected, "{name} in pieces of {piece}");
            let verbatim = parser.verbatim().map_or(channel.len() as u64, |it| it.at);
            assert_eq!(verbatim, until as u64, "{name} in pieces of {piece}");
        }
    }
}

#[test]
fn the_xbzrle_streams_hold_a_delta() {
    for name in ["qemu-7.2-xbzrle", "qemu-10.0-xbzrle", "qemu-11.1-xbzrle"] {
        let channel = stream(name);
        let (tokens, until) = reference::parse(&channel);
        let mut at = 0;
        let mut deltas = 0;
        for (token, length) in tokens {
            if token == Token::Bytes && at < until {
                let flags = RamWord::XBZRLE | RamWord::CONTINUE;
                let words = channel[at..at + length].windows(8);
                deltas += words
                    .filter(|word| {
                        let word =
                            RamWord(word.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)));
                        word.flags() == flags && word.address() < 2 << 20
                    })
                    .count();
            }
            at += length;
        }
        assert!(deltas > 0, "{name}");
    }
}
