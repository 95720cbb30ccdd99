//! The fast parser, fed in any pieces, cuts every stream as the reference does.

use pageshare_stream::{MOST_BLOCKS, PAGE_SIZE, Parser, RamWord, Step, Token, emit, reference};
use proptest::prelude::*;

/// Feeds `channel` in pieces of the given sizes (cycled) and collects what the parser says.
fn parse_in_pieces(channel: &[u8], pieces: &[usize]) -> (Vec<(Token, usize)>, usize) {
    let mut parser = Parser::new();
    let mut tokens = Vec::new();
    let (mut at, mut seen) = (0, 0);
    for piece in pieces.iter().cycle() {
        seen = (seen + piece).min(channel.len());
        while let Step::Token { token, length } = parser.step(&channel[at..seen]) {
            assert!(length > 0 && at + length <= seen, "a token covers bytes that are there");
            tokens.push((token, length));
            at += length;
        }
        if seen == channel.len() {
            break;
        }
    }
    parser.finish(&channel[at..]);
    tokens.push((Token::Bytes, channel.len() - at));
    assert_eq!(parser.offset(), channel.len() as u64);
    let until = parser.verbatim().map_or(channel.len() as u64, |verbatim| verbatim.at);
    (reference::merge(tokens), usize::try_from(until).expect("an offset in memory"))
}

fn same_as_reference(channel: &[u8], pieces: &[usize]) {
    assert_eq!(parse_in_pieces(channel, pieces), reference::parse(channel));
}

#[derive(Debug, Clone)]
enum Item {
    Zero { page: u64, named: bool, fill: u8 },
    ZeroRun { page: u64, count: u32 },
    Page { page: u64, named: bool, content: u8 },
    Xbzrle { named: bool, data: Vec<u8> },
    Flush,
    EndSection,
    Command(u16, Vec<u8>),
    Noise(Vec<u8>),
}

fn item() -> impl Strategy<Value = Item> {
    let page = 0_u64..1 << 20;
    prop_oneof![
        4 => (page.clone(), any::<bool>(), prop_oneof![9 => Just(0_u8), 1 => any::<u8>()])
            .prop_map(|(page, named, fill)| Item::Zero { page, named, fill }),
        2 => (page.clone(), 0_u32..40).prop_map(|(page, count)| Item::ZeroRun { page, count }),
        4 => (page, any::<bool>(), any::<u8>())
            .prop_map(|(page, named, content)| Item::Page { page, named, content }),
        1 => (any::<bool>(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(named, data)| Item::Xbzrle { named, data }),
        1 => Just(Item::Flush),
        2 => Just(Item::EndSection),
        1 => prop_oneof![
            Just((1, vec![])),
            Just((2, vec![0, 0, 0, 1])),
            Just((3, vec![0; 16])),
            Just((11, vec![])),
            Just((4, vec![])),
            (any::<u16>(), prop::collection::vec(any::<u8>(), 0..20)),
        ]
        .prop_map(|(command, payload)| Item::Command(command, payload)),
        1 => prop::collection::vec(any::<u8>(), 1..30).prop_map(Item::Noise),
    ]
}

fn word(page: u64, flags: u64, named: bool, out: &mut Vec<u8>) {
    let flags = if named { flags } else { flags | RamWord::CONTINUE };
    out.extend(RamWord((page * PAGE_SIZE as u64) | flags).to_bytes());
    if named {
        out.extend(b"\x06pc.ram");
    }
}

/// A stream that is well formed where its items are in place and noise where they are not.
fn channel(items: &[Item], ignore_shared: bool) -> Vec<u8> {
    let mut out = b"QEVM\0\0\0\x03\x07\0\0\0\x06pc-q35".to_vec();
    if ignore_shared {
        out.extend(b"\x05\x1aconfiguration/capabilities\0\0\0\x01\0\0\0\x01\x0fx-ignore-shared");
    }
    out.extend(b"\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04");
    out.extend(RamWord(0x30_0000 | RamWord::MEM_SIZE).to_bytes());
    for (name, bytes) in [(b"\x06pc.ram", 0x20_0000_u64), (b"\x06pc.rom", 0x10_0000)] {
        out.extend(name);
        out.extend(bytes.to_be_bytes());
        if ignore_shared {
            out.extend([0; 8]);
        }
    }
    let end = |out: &mut Vec<u8>| {
        out.extend(RamWord(RamWord::EOS).to_bytes());
        out.extend(b"\x7e\0\0\0\x02");
    };
    end(&mut out);
    out.extend(b"\x02\0\0\0\x02");
    for item in items {
        match item {
            Item::Zero { page, named, fill } => {
                word(*page, RamWord::ZERO, *named, &mut out);
                out.push(*fill);
            }
            Item::ZeroRun { page, count } => {
                let first = RamWord((page * 4096) | RamWord::ZERO | RamWord::CONTINUE);
                emit::zero_pages(first, *count, &mut out);
            }
            Item::Page { page, named, content } => {
                word(*page, RamWord::PAGE, *named, &mut out);
                out.extend([*content; PAGE_SIZE]);
            }
            Item::Xbzrle { named, data } => {
                word(7, RamWord::XBZRLE, *named, &mut out);
                out.push(1);
                out.extend(u16::try_from(data.len()).expect("under 300").to_be_bytes());
                out.extend(data);
            }
            Item::Flush => out.extend(RamWord(RamWord::MULTIFD_FLUSH).to_bytes()),
            Item::EndSection => {
                end(&mut out);
                out.extend(b"\x02\0\0\0\x02");
            }
            Item::Command(command, payload) => {
                end(&mut out);
                out.push(8);
                out.extend(command.to_be_bytes());
                out.extend(u16::try_from(payload.len()).expect("under 20").to_be_bytes());
                out.extend(payload);
                out.extend(b"\x02\0\0\0\x02");
            }
            Item::Noise(bytes) => out.extend(bytes),
        }
    }
    end(&mut out);
    out.extend(b"\x03\0\0\0\x02");
    end(&mut out);
    out.extend(b"\x04\0\0\0\x09\x05timer device state");
    out
}

/// What a virtio-mem device of so many blocks of 2 MiB writes before RAM.
fn virtio_mem(blocks: u64) -> Vec<u8> {
    const BLOCK: u64 = 2 << 20;
    let mut out =
        b"\x04\0\0\0\x2a\x240000:00:04.0/virtio-mem-device-early\0\0\0\0\0\0\0\x01".to_vec();
    out.extend([0x1_4000_0000, blocks * BLOCK, BLOCK].into_iter().flat_map(u64::to_be_bytes));
    out.extend([0; 4]);
    out.extend((blocks / 2 * BLOCK).to_be_bytes());
    out.resize(out.len() + usize::try_from(blocks.div_ceil(64) * 8).expect("few"), 0x7e);
    out.extend(b"\x7e\0\0\0\x2a");
    out
}

/// With that between the configuration and RAM.
fn channel_with_virtio_mem(items: &[Item], blocks: u64) -> Vec<u8> {
    let mut channel = channel(items, false);
    let at = channel.windows(4).position(|bytes| bytes == b"\x03ram").expect("a RAM section") - 5;
    channel.splice(at..at, virtio_mem(blocks));
    channel
}

fn packet(flags: u32, normal: u32, bytes: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1];
    for field in [flags, 128, normal, bytes] {
        out.extend(field.to_be_bytes());
    }
    out.extend([0; 8 + 32 + 256 + 8 * 128]);
    out.extend(payload);
    out
}

fn multifd(packets: &[(u32, u32, u32, usize)]) -> Vec<u8> {
    let mut out = vec![0; 64];
    out[..8].copy_from_slice(&[0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1]);
    for (flags, normal, bytes, payload) in packets {
        out.extend(packet(*flags, *normal, *bytes, &vec![7; *payload]));
    }
    out
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1_usize..20, 1_usize..10_000, Just(1 << 20)], 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn well_formed_streams(items in prop::collection::vec(item(), 0..25), shared: bool,
                           pieces in pieces()) {
        same_as_reference(&channel(&items, shared), &pieces);
    }

    #[test]
    fn streams_with_virtio_mem(items in prop::collection::vec(item(), 0..4), blocks in 0_u64..200,
                               at in any::<prop::sample::Index>(), flip: u8, pieces in pieces()) {
        let mut channel = channel_with_virtio_mem(&items, blocks);
        same_as_reference(&channel, &pieces);
        let at = at.index(channel.len());
        same_as_reference(&channel[..at], &pieces);
        channel[at] ^= flip;
        same_as_reference(&channel, &pieces);
    }

    #[test]
    fn streams_with_a_flipped_byte(items in prop::collection::vec(item(), 0..12),
                                   at in any::<prop::sample::Index>(), flip in 1_u8..,
                                   pieces in pieces()) {
        let mut channel = channel(&items, false);
        let at = at.index(channel.len());
        channel[at] ^= flip;
        same_as_reference(&channel, &pieces);
    }

    #[test]
    fn streams_cut_short(items in prop::collection::vec(item(), 0..8),
                         at in any::<prop::sample::Index>(), pieces in pieces()) {
        let channel = channel(&items, false);
        same_as_reference(&channel[..at.index(channel.len())], &pieces);
    }

    #[test]
    fn multifd_channels(
        packets in prop::collection::vec(prop_oneof![
            (0_u32..2, 0_u32..4).prop_map(|(sync, n)| (sync, n, n * 4096, n as usize * 4096)),
            (0_u32..70, 0_u32..3, 0_u32..9000).prop_map(|(f, n, b)| (f, n, b, b as usize)),
        ], 0..6),
        cut in any::<prop::sample::Index>(),
        pieces in pieces(),
    ) {
        let channel = multifd(&packets);
        same_as_reference(&channel, &pieces);
        same_as_reference(&channel[..cut.index(channel.len())], &pieces);
    }

    #[test]
    fn noise(noise in prop::collection::vec(any::<u8>(), 0..200), pieces in pieces()) {
        same_as_reference(&noise, &pieces);
    }
}

#[test]
fn a_page_knows_its_block_and_offset() {
    let items = [
        Item::Page { page: 3, named: true, content: 1 },
        Item::Page { page: 4, named: false, content: 2 },
    ];
    let channel = channel(&items, false);
    let mut parser = Parser::new();
    let (mut at, mut pages) = (0, Vec::new());
    while let Step::Token { token, length } = parser.step(&channel[at..]) {
        if token.content_at().is_some() {
            let (block, offset) = parser.page();
            pages.push((String::from_utf8_lossy(block).into_owned(), offset));
        }
        at += length;
    }
    assert_eq!(pages, [("pc.ram".to_owned(), 3 << 12), ("pc.ram".to_owned(), 4 << 12)]);
}

#[test]
fn a_multifd_page_knows_its_block_and_offset() {
    let mut channel = multifd(&[(0, 2, 8192, 8192)]);
    channel[64 + 64..64 + 70].copy_from_slice(b"pc.ram");
    channel[64 + 320 + 8..64 + 320 + 16].copy_from_slice(&0x7000_u64.to_be_bytes());
    let mut parser = Parser::new();
    let (mut at, mut pages) = (0, Vec::new());
    while let Step::Token { token, length } = parser.step(&channel[at..]) {
        if token == Token::Content {
            pages.push((parser.page().0.to_vec(), parser.page().1));
        }
        at += length;
    }
    assert_eq!(pages, [(b"pc.ram".to_vec(), 0), (b"pc.ram".to_vec(), 0x7000)]);
}

#[test]
fn pages_behind_virtio_mem_are_seen_however_large_it_is() {
    let items = [Item::Page { page: 3, named: true, content: 1 }];
    // A terabyte and a half: more bits than any item may be long.
    for blocks in [0, 1, 64, 65, 3 << 18] {
        let (tokens, _) = parse_in_pieces(&channel_with_virtio_mem(&items, blocks), &[1 << 16]);
        assert!(tokens.iter().any(|(token, _)| *token == Token::Content), "{blocks}");
    }
}

/// What a channel is passed on for unread, and how many of its bytes.
fn unread(channel: &[u8]) -> (String, u64) {
    let mut parser = Parser::new();
    let mut at = 0;
    while let Step::Token { length, .. } = parser.step(&channel[at..]) {
        at += length;
    }
    parser.finish(&channel[at..]);
    let verbatim = parser.verbatim().filter(|verbatim| verbatim.why.hides_pages());
    let why = parser.compressed().or(verbatim).map(|it| it.why.to_string());
    (why.unwrap_or_default(), parser.unread())
}

#[test]
fn what_hides_pages_is_counted_with_its_reason_and_a_guests_devices_are_not() {
    assert_eq!(unread(&channel(&[], false)), (String::new(), 0));
    let (why, bytes) = unread(b"\x16\x03\x01\x02\0 and so on");
    assert!(why.contains("tls-creds") && bytes == 15, "{why}, {bytes}");
    let (why, bytes) = unread(&multifd(&[(4, 2, 900, 900), (0, 1, 4096, 4096), (4, 1, 50, 50)]));
    assert!(why.contains("multifd-compression") && bytes == 950, "{why}, {bytes}");
    let (why, bytes) = unread(&channel(&[Item::Command(4, vec![0; 8]), Item::Flush], false));
    assert!(why.contains("postcopy") && bytes > 8, "{why}, {bytes}");
}

#[test]
fn a_list_of_blocks_that_goes_on_and_on_is_remembered_no_further() {
    let before = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04";
    for count in [MOST_BLOCKS, MOST_BLOCKS + 1] {
        let mut channel = before.to_vec();
        channel.extend(RamWord(!0xfff | RamWord::MEM_SIZE).to_bytes());
        channel.extend(b"\x01a\0\0\0\0\0\0\0\x01".repeat(count));
        same_as_reference(&channel, &[1 << 16]);
        let (why, _) = unread(&channel);
        assert_eq!(why.contains("more than 1024 RAM blocks"), count > MOST_BLOCKS, "{why}");
    }
}
