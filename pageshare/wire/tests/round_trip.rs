//! What the sender drafts, the receiver expands to the very same bytes; damage and lies are
//! noticed before anything is expanded.

use pageshare_index::{HashKey, PageHash, ScopeKey};
use pageshare_stream::{PAGE_SIZE, RamWord, Token, emit};
use pageshare_wire::hello::{Confirm, Hello, MigrationId, Side, Welcome, proof, same_proof};
use pageshare_wire::record::{Header, Kind, decode_ask, encode_ask};
use pageshare_wire::segment::{Compressor, Draft, Encoded, Held, SegmentView};
use pageshare_wire::{Chain, PageSet, WireError};
use proptest::prelude::*;

fn key() -> HashKey {
    ScopeKey([5; 32]).hash_key()
}

#[derive(Debug, Clone)]
enum Piece {
    Bytes(Vec<u8>),
    Zeros { page: u64, count: u32 },
    Page { page: u64, fill: u8, ask: bool, known: bool },
    Content { fill: u8, ask: bool, known: bool },
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..100).prop_map(Piece::Bytes),
        (0_u64..100, 1_u32..50).prop_map(|(page, count)| Piece::Zeros { page, count }),
        (0_u64..4, any::<u8>(), any::<bool>(), any::<bool>())
            .prop_map(|(page, fill, ask, known)| Piece::Page { page, fill, ask, known }),
        (any::<u8>(), any::<bool>(), any::<bool>()).prop_map(|(fill, ask, known)| Piece::Content {
            fill,
            ask,
            known
        }),
    ]
}

/// The stream, its draft, and what the receiver holds of it.
fn draft(pieces: &[Piece]) -> (Vec<u8>, Draft, Held) {
    let mut stream = Vec::new();
    let mut tokens: Vec<(Token, usize, bool)> = Vec::new();
    let mut asked: Vec<(u8, bool)> = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => {
                stream.extend(bytes);
                tokens.push((Token::Bytes, bytes.len(), false));
            }
            Piece::Zeros { page, count } => {
                let first = RamWord(page * 4096 + 0x22);
                emit::zero_pages(first, *count, &mut stream);
                for page in 0..u64::from(*count) {
                    tokens.push((Token::Zero(first.plus_pages(page)), 9, false));
                }
            }
            Piece::Page { page, fill, ask, known } => {
                let word = RamWord(page * 4096 + 0x28);
                stream.extend(word.to_bytes());
                stream.extend([*fill; PAGE_SIZE]);
                tokens.push((Token::Page(word), 8 + PAGE_SIZE, *ask));
                asked.extend(ask.then_some((*fill, *known)));
            }
            Piece::Content { fill, ask, known } => {
                stream.extend([*fill; PAGE_SIZE]);
                tokens.push((Token::Content, PAGE_SIZE, *ask));
                asked.extend(ask.then_some((*fill, *known)));
            }
        }
    }
    let mut draft = Draft::new(stream.clone());
    for (token, length, ask) in tokens {
        draft.add(token, length, ask);
    }
    let mut held = Held { known: PageSet::empty(asked.len()), ..Held::default() };
    for (index, (fill, known)) in asked.into_iter().enumerate() {
        held.hashes.push(key().hash(&[fill; PAGE_SIZE]));
        if known {
            held.known.insert(index);
            held.contents.extend([fill; PAGE_SIZE]);
        }
    }
    (stream, draft, held)
}

fn body(encoded: &Encoded, sequence: u32, chain: &mut Chain) -> Vec<u8> {
    let mut body = encoded.seal(sequence, chain);
    body.extend(encoded.payload());
    body
}

fn expand(body: &[u8], held: &Held) -> Result<(Vec<u8>, usize), WireError> {
    let mut out = Vec::new();
    let mut arrived = 0;
    SegmentView::parse(body)?.expand(
        4,
        held,
        &key(),
        &mut Chain::default(),
        &mut out,
        |hash, content| {
            assert_eq!(key().hash(content), hash);
            arrived += 1;
        },
    )?;
    Ok((out, arrived))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_segment_expands_to_the_bytes_it_was_drafted_from(
        pieces in prop::collection::vec(piece(), 0..30),
        compress: bool,
    ) {
        let (stream, draft, held) = draft(&pieces);
        let hashes = draft.hash(&key());
        prop_assert_eq!(&hashes, &held.hashes);
        let mut compressor = compress.then(|| Compressor::new(1).unwrap());
        let encoded = draft.encode(hashes, &held.known, compressor.as_mut());
        let (out, arrived) = expand(&body(&encoded, 4, &mut Chain::default()), &held).unwrap();
        prop_assert!(out == stream, "{} bytes became {}", stream.len(), out.len());
        prop_assert_eq!(arrived, held.hashes.len() - held.known.count());
    }

    #[test]
    fn a_damaged_segment_gives_the_same_bytes_or_an_error(
        pieces in prop::collection::vec(piece(), 1..12),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
        compress: bool,
    ) {
        let (stream, draft, held) = draft(&pieces);
        let hashes = draft.hash(&key());
        let mut compressor = compress.then(|| Compressor::new(1).unwrap());
        let encoded = draft.encode(hashes, &held.known, compressor.as_mut());
        let sound = body(&encoded, 4, &mut Chain::default());
        let at = at.index(sound.len());
        let mut damaged = sound.clone();
        damaged[at] ^= flip;
        // Literal bytes that are no page asked for are the CRC32C's to protect.
        let header = Header::of(Kind::Segment, 4, &[&sound], true);
        prop_assert!(header.check(&sound, true).is_ok());
        prop_assert_eq!(header.check(&damaged, true), Err(WireError::Damaged("CRC32C of a record")));
        if let Ok((out, _)) = expand(&damaged, &held) {
            prop_assert_eq!(out.len(), stream.len());
        }
    }

    #[test]
    fn noise_is_never_expanded_beyond_a_segment(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(view) = SegmentView::parse(&noise) {
            prop_assert!(view.stream_bytes() <= 1 << 20);
            prop_assert!(expand(&noise, &Held::default()).is_err());
        }
    }

    #[test]
    fn headers_read_back(kind in prop::sample::select(vec![
        Kind::Ask, Kind::Probe, Kind::Segment, Kind::End, Kind::Answer, Kind::Credit, Kind::Reverse,
        Kind::ReverseEnd, Kind::Abort,
    ]), sequence: u32, body in prop::collection::vec(any::<u8>(), 0..50)) {
        let header = Header::of(kind, sequence, &[&body], true);
        let read = Header::decode(&header.encode()).unwrap();
        prop_assert_eq!(read, header);
        prop_assert!(read.check(&body, true).is_ok());
    }

    #[test]
    fn noise_is_a_sound_header_or_an_error(noise: [u8; 16]) {
        if let Ok(header) = Header::decode(&noise) {
            prop_assert_eq!(header.encode(), noise);
        }
    }

    #[test]
    fn greetings_read_back(migration: [u8; 16], nonce: [u8; 32], channel: u32, window: u32,
                           checksums: bool, scope in "[a-z-]{0,56}", proof: [u8; 32]) {
        let hello =
            Hello { migration: MigrationId(migration), channel, checksums, window, nonce, scope };
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        let welcome = Welcome::Accepted { in_scope: checksums, window, nonce, proof };
        prop_assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        let confirm = Confirm { proof: checksums.then_some(proof) };
        prop_assert_eq!(Confirm::decode(&confirm.encode()), confirm);
    }

    #[test]
    fn page_sets_read_back(length in 0_usize..70, members in prop::collection::vec(0_usize..70, 0..20)) {
        let mut set = PageSet::empty(length);
        for member in members {
            set.insert(member);
        }
        prop_assert_eq!(PageSet::from_bytes(set.as_bytes(), length), Some(set.clone()));
        prop_assert_eq!(PageSet::from_bytes(set.as_bytes(), length + 8), None);
    }
}

#[test]
fn a_page_that_is_not_the_one_asked_for_is_refused() {
    let pieces = [Piece::Page { page: 0, fill: 1, ask: true, known: false }];
    let (_, draft, mut held) = draft(&pieces);
    let lie: Vec<PageHash> = vec![key().hash(&[2; PAGE_SIZE])];
    let encoded = draft.encode(lie.clone(), &PageSet::empty(1), None);
    held.hashes = lie;
    let body = body(&encoded, 4, &mut Chain::default());
    assert_eq!(expand(&body, &held), Err(WireError::Damaged("hash of a page")));
}

#[test]
fn a_reference_to_a_page_that_is_not_held_is_refused() {
    let pieces = [Piece::Content { fill: 1, ask: true, known: true }];
    let (_, draft, mut held) = draft(&pieces);
    let hashes = draft.hash(&key());
    let encoded = draft.encode(hashes, &held.known, None);
    held.known = PageSet::empty(1);
    held.contents.clear();
    let refused = expand(&body(&encoded, 4, &mut Chain::default()), &held);
    assert_eq!(refused, Err(WireError::Protocol("a reference to a page not held")));
}

#[test]
fn a_segment_out_of_order_breaks_the_chain() {
    let (_, draft, held) = draft(&[Piece::Bytes(vec![1, 2, 3])]);
    let encoded = draft.encode(vec![], &PageSet::empty(0), None);
    let mut chain = Chain::default();
    let first = body(&encoded, 4, &mut chain);
    let second = body(&encoded, 4, &mut chain);
    assert!(expand(&first, &held).is_ok());
    assert_eq!(expand(&second, &held), Err(WireError::Damaged("chained digest of a segment")));
}

#[test]
fn an_ask_reads_back_and_a_torn_one_does_not() {
    let hashes = vec![PageHash([1; 16]), PageHash([2; 16])];
    let body = encode_ask(&hashes);
    assert_eq!(decode_ask(&body), Ok(hashes));
    assert!(decode_ask(&body[1..]).is_err());
    assert!(decode_ask(&[]).is_err());
    assert!(decode_ask(&vec![0; 16 * 257]).is_err());
}

#[test]
fn only_a_holder_of_the_scope_key_can_prove_it_and_only_for_this_handshake() {
    let key = ScopeKey([1; 32]);
    let hello = Hello {
        migration: MigrationId([7; 16]),
        channel: 0,
        checksums: true,
        window: 1 << 20,
        nonce: [3; 32],
        scope: "tenant".into(),
    };
    let ours = proof(&key, Side::Receiver, &hello, &[4; 32]);
    assert!(same_proof(&ours, &proof(&key, Side::Receiver, &hello, &[4; 32])));
    for other in [
        proof(&ScopeKey([2; 32]), Side::Receiver, &hello, &[4; 32]),
        proof(&key, Side::Sender, &hello, &[4; 32]),
        proof(&key, Side::Receiver, &hello, &[5; 32]),
        proof(&key, Side::Receiver, &Hello { nonce: [9; 32], ..hello.clone() }, &[4; 32]),
    ] {
        assert!(!same_proof(&ours, &other));
    }
}
