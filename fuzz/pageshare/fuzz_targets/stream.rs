//! The fast parser, fed in pieces, cuts any bytes as the reference does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pageshare_stream::{Parser, Step, Token, reference};

fuzz_target!(|input: (u16, &[u8])| {
    let (piece, channel) = (usize::from(input.0) + 1, input.1);
    let mut parser = Parser::new();
    let mut tokens = Vec::new();
    let (mut at, mut seen) = (0, 0);
    while seen < channel.len() {
        seen = (seen + piece).min(channel.len());
        while let Step::Token { token, length } = parser.step(&channel[at..seen]) {
            tokens.push((token, length));
            at += length;
        }
    }
    parser.finish(&channel[at..]);
    tokens.push((Token::Bytes, channel.len() - at));
    let until = parser.verbatim().map_or(channel.len() as u64, |verbatim| verbatim.at);
    assert_eq!((reference::merge(tokens), until as usize), reference::parse(channel));
});
