//! What the sender drafts, the receiver expands to the very same bytes; damage and lies are
//! noticed before anything is expanded.

use pageshare_index::{HashKey, PageHash, ScopeKey};
use pageshare_stream::{PAGE_SIZE, RamWord, Token, emit};
use pageshare_wire::ask::{Answer, Ask, decode_supply, encode_supply};
use pageshare_wire::hello::{Confirm, Welcome};
use pageshare_wire::record::{Header, Kind};
use pageshare_wire::segment::{Draft, Encoded, Held, Placed, SegmentView, Treatment};
use pageshare_wire::{Chain, Compressor, Expander, PageSet, Versions, WireError, delta};
use proptest::prelude::*;

mod common;

use common::hello;

fn key() -> HashKey {
    ScopeKey([5; 32]).hash_key()
}

/// How a page travels, as the strategy wishes it; what is not asked for is literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Unasked,
    Content,
    /// Asked for, held, and sent all the same.
    Needlessly,
    Reference,
    AtOnce {
        held: bool,
    },
    Delta,
}

#[derive(Debug, Clone)]
enum Piece {
    Bytes(Vec<u8>),
    Zeros { page: u64, count: u32 },
    Page { page: u64, fill: u8, way: Way },
    Content { fill: u8, way: Way },
}

fn way() -> impl Strategy<Value = Way> {
    prop::sample::select(vec![
        Way::Unasked,
        Way::Content,
        Way::Needlessly,
        Way::Reference,
        Way::AtOnce { held: true },
        Way::AtOnce { held: false },
        Way::Delta,
    ])
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..100).prop_map(Piece::Bytes),
        (0_u64..100, 1_u32..50).prop_map(|(page, count)| Piece::Zeros { page, count }),
        (0_u64..4, any::<u8>(), way()).prop_map(|(page, fill, way)| Piece::Page {
            page,
            fill,
            way
        }),
        (any::<u8>(), way()).prop_map(|(fill, way)| Piece::Content { fill, way }),
    ]
}

/// An earlier version of the page that is filled with `fill`.
fn earlier(fill: u8) -> [u8; PAGE_SIZE] {
    let mut page = [fill; PAGE_SIZE];
    page[1000..1010].fill(!fill);
    page[4090..].fill(!fill);
    page
}

/// A stream with its draft, how its pages travel, and what the receiver holds of it.
struct Case {
    stream: Vec<u8>,
    draft: Draft,
    treatments: Vec<Treatment>,
    deltas: Vec<Vec<u8>>,
    held: Held,
    new: usize,
}

fn draft(pieces: &[Piece]) -> Case {
    let mut stream = Vec::new();
    let mut tokens: Vec<(Token, usize, bool)> = Vec::new();
    let mut asked: Vec<(u8, Way)> = Vec::new();
    for piece in pieces {
        let (token, fill, way) = match piece {
            Piece::Bytes(bytes) => {
                stream.extend(bytes);
                tokens.push((Token::Bytes, bytes.len(), false));
                continue;
            }
            Piece::Zeros { page, count } => {
                let first = RamWord(page * 4096 + 0x22);
                emit::zero_pages(first, *count, &mut stream);
                for page in 0..u64::from(*count) {
                    tokens.push((Token::Zero(first.plus_pages(page)), 9, false));
                }
                continue;
            }
            Piece::Page { page, fill, way } => {
                let word = RamWord(page * 4096 + 0x28);
                stream.extend(word.to_bytes());
                (Token::Page(word), *fill, *way)
            }
            Piece::Content { fill, way } => (Token::Content, *fill, *way),
        };
        stream.extend([fill; PAGE_SIZE]);
        let length = token.content_at().unwrap_or(0) + PAGE_SIZE;
        tokens.push((token, length, way != Way::Unasked));
        asked.extend((way != Way::Unasked).then_some((fill, way)));
    }
    let mut draft = Draft::new(stream.clone());
    for (token, length, ask) in tokens {
        draft.add(token, length, ask);
    }
    let mut held = Held { known: PageSet::empty(asked.len()), ..Held::default() };
    let (mut treatments, mut deltas, mut new) = (Vec::new(), Vec::new(), 0);
    for (index, (fill, way)) in asked.into_iter().enumerate() {
        let content = [fill; PAGE_SIZE];
        held.hashes.push(key().hash(&content));
        let (treatment, holds) = match way {
            Way::Unasked | Way::Content => (Treatment::Content, false),
            Way::Needlessly => (Treatment::Content, true),
            Way::Reference => (Treatment::Reference, true),
            Way::AtOnce { held } => (Treatment::AtOnce, held),
            Way::Delta => (Treatment::Delta, false),
        };
        treatments.push(treatment);
        held.contents.extend(if holds { content } else { [!fill; PAGE_SIZE] });
        if holds {
            held.known.insert(index);
        }
        match way {
            Way::AtOnce { held: false } => held.supplied.extend(content),
            Way::Delta => {
                let old = earlier(fill);
                deltas.push(delta::encode(&old, &content).expect("few bytes differ"));
                held.bases.push((u16::try_from(index).expect("few pages"), Box::new(old)));
            }
            _ => {}
        }
        new += usize::from(!matches!(way, Way::Reference | Way::AtOnce { held: true }));
    }
    Case { stream, draft, treatments, deltas, held, new }
}

fn body(encoded: &Encoded, sequence: u32, chain: &mut Chain) -> Vec<u8> {
    let mut body = encoded.seal(sequence, chain);
    body.extend(encoded.payload());
    body
}

fn expand(body: &[u8], held: &Held) -> Result<(Vec<u8>, Vec<Placed>), WireError> {
    let mut out = Vec::new();
    let view = SegmentView::parse(body)?;
    let mut expander = Expander::new().expect("memory for an expander");
    let placed = view.expand(4, held, &key(), &mut Chain::default(), &mut expander, &mut out)?;
    if let Some(bytes) = view.verbatim() {
        assert_eq!(bytes, out);
    }
    for page in &placed {
        assert_eq!(key().hash(&out[page.at..page.at + PAGE_SIZE]), page.hash);
    }
    Ok((out, placed))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_segment_expands_to_the_bytes_it_was_drafted_from(
        pieces in prop::collection::vec(piece(), 1..30),
        compress: bool,
    ) {
        let case = draft(&pieces);
        let hashes = case.draft.hash(&key());
        prop_assert_eq!(&hashes, &case.held.hashes);
        let mut compressor = compress.then(|| Compressor::new(1).unwrap());
        let encoded =
            case.draft.encode(hashes, &case.treatments, &case.deltas, compressor.as_mut());
        let body = body(&encoded, 4, &mut Chain::default());
        let missing = SegmentView::parse(&body).unwrap().missing(&case.held).unwrap();
        prop_assert_eq!(missing * PAGE_SIZE, case.held.supplied.len());
        let (out, placed) = expand(&body, &case.held).unwrap();
        prop_assert!(out == case.stream, "{} bytes became {}", case.stream.len(), out.len());
        prop_assert_eq!(placed.iter().filter(|page| page.new).count(), case.new);
    }

    #[test]
    fn a_damaged_segment_gives_the_same_bytes_or_an_error(
        pieces in prop::collection::vec(piece(), 1..12),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
        compress: bool,
    ) {
        let case = draft(&pieces);
        let mut compressor = compress.then(|| Compressor::new(1).unwrap());
        let hashes = case.held.hashes.clone();
        let encoded =
            case.draft.encode(hashes, &case.treatments, &case.deltas, compressor.as_mut());
        let sound = body(&encoded, 4, &mut Chain::default());
        let at = at.index(sound.len());
        let mut damaged = sound.clone();
        damaged[at] ^= flip;
        // Literal bytes that are no page asked for are the CRC32C's to protect.
        let header = Header::of(Kind::Segment, 4, &[&sound], true);
        prop_assert!(header.check(&sound, true).is_ok());
        prop_assert_eq!(header.check(&damaged, true), Err(WireError::Damaged("CRC32C of a record")));
        if let Ok((out, _)) = expand(&damaged, &case.held) {
            prop_assert_eq!(out.len(), case.stream.len());
        }
    }

    #[test]
    fn a_delta_leads_from_the_old_page_to_the_new_one(
        changes in prop::collection::vec((0_usize..PAGE_SIZE, any::<u8>()), 0..300),
        start: u8,
    ) {
        let old: [u8; PAGE_SIZE] = std::array::from_fn(|at| start.wrapping_add((at / 9).to_le_bytes()[0]));
        let mut new = old;
        for (at, byte) in changes {
            new[at] = byte;
        }
        if let Some(delta) = delta::encode(&old, &new) {
            prop_assert!(delta.len() <= delta::LONGEST);
            let mut page = old;
            delta::apply(&delta, &mut page).unwrap();
            prop_assert!(page == new);
        }
    }

    #[test]
    fn noise_is_a_delta_within_the_page_or_none(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut page = [7; PAGE_SIZE];
        let _ = delta::apply(&noise, &mut page);
    }

    #[test]
    fn questions_and_answers_read_back(
        hashes in prop::collection::vec(any::<[u8; 16]>(), 1..=256),
        bases in prop::collection::btree_map(0_u16..256, any::<[u8; 16]>(), 0..256),
        bits: u64,
        cut in any::<prop::sample::Index>(),
    ) {
        let hashes: Vec<PageHash> = hashes.into_iter().map(PageHash).collect();
        let bases: Vec<(u16, PageHash)> = bases
            .into_iter()
            .filter(|(index, _)| usize::from(*index) < hashes.len())
            .map(|(index, hash)| (index, PageHash(hash)))
            .collect();
        let mut answer = Answer {
            known: PageSet::empty(hashes.len()),
            bases: PageSet::empty(bases.len()),
        };
        for at in (0..64).filter(|at| bits >> at & 1 == 1) {
            answer.known.insert(at);
            answer.bases.insert(at);
        }
        let (asked, named) = (hashes.len(), bases.len());
        let ask = Ask { hashes, bases };
        let body = ask.encode();
        prop_assert!(Ask::decode(&body[..cut.index(body.len())]).is_err());
        prop_assert_eq!(Ask::decode(&body), Ok(ask));
        prop_assert_eq!(Answer::decode(&answer.encode(), asked, named), Ok(answer.clone()));
        prop_assert!(Answer::decode(&answer.encode(), asked + 8, named).is_err());
    }

    #[test]
    fn what_is_supplied_reads_back(pages in prop::collection::vec(any::<u8>(), 1..20), compress: bool) {
        let contents: Vec<u8> = pages.iter().flat_map(|fill| [*fill; PAGE_SIZE]).collect();
        let mut compressor = compress.then(|| Compressor::new(1).unwrap());
        let body = encode_supply(contents.clone(), compressor.as_mut());
        prop_assert_eq!(body.len() < contents.len(), compress);
        let mut expander = Expander::new().unwrap();
        prop_assert_eq!(decode_supply(&body, &mut expander), Ok(contents));
        prop_assert!(decode_supply(&body[..body.len() - 1], &mut expander).is_err());
    }

    #[test]
    fn noise_is_never_supplied_beyond_a_segment(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Ask::decode(&noise);
        if let Ok(contents) = decode_supply(&noise, &mut Expander::new().unwrap()) {
            prop_assert!(contents.len() <= 1 << 20);
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
        Kind::Ask, Kind::Probe, Kind::Supply, Kind::Segment, Kind::End, Kind::Answer, Kind::Credit, Kind::Reverse,
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
    for way in [Way::Content, Way::AtOnce { held: false }, Way::Delta] {
        let mut case = draft(&[Piece::Page { page: 0, fill: 1, way }]);
        let lie: Vec<PageHash> = vec![key().hash(&[2; PAGE_SIZE])];
        let encoded = case.draft.encode(lie.clone(), &case.treatments, &case.deltas, None);
        case.held.hashes = lie;
        let body = body(&encoded, 4, &mut Chain::default());
        assert_eq!(expand(&body, &case.held), Err(WireError::Damaged("hash of a page")));
    }
}

#[test]
fn what_is_not_held_is_not_referred_to() {
    for (way, words) in [
        (Way::Reference, "a reference to a page not held"),
        (Way::Delta, "a delta to a page not held"),
        (Way::AtOnce { held: false }, "operations of a segment"),
    ] {
        let mut case = draft(&[Piece::Content { fill: 1, way }]);
        let hashes = case.draft.hash(&key());
        let encoded = case.draft.encode(hashes, &case.treatments, &case.deltas, None);
        case.held.known = PageSet::empty(1);
        case.held.contents.clear();
        case.held.bases.clear();
        case.held.supplied.clear();
        let refused = expand(&body(&encoded, 4, &mut Chain::default()), &case.held);
        assert_eq!(refused, Err(WireError::Protocol(words)));
    }
}

#[test]
fn a_segment_out_of_order_breaks_the_chain() {
    let case = draft(&[Piece::Bytes(vec![1, 2, 3])]);
    let encoded = case.draft.encode(vec![], &[], &[], None);
    let mut chain = Chain::default();
    let first = body(&encoded, 4, &mut chain);
    let second = body(&encoded, 4, &mut chain);
    assert!(expand(&first, &case.held).is_ok());
    let refused = expand(&second, &case.held);
    assert_eq!(refused, Err(WireError::Damaged("chained digest of a segment")));
}

#[test]
fn more_than_a_segment_holds_is_not_asked_for() {
    let ask = Ask { hashes: vec![PageHash([0; 16]); 257], bases: Vec::new() };
    assert!(Ask::decode(&ask.encode()).is_err());
    assert!(Ask::decode(&Ask::default().encode()).is_err());
}

/// Every record once, and a segment with every operation and treatment.
fn golden_records(versions: Versions) -> Vec<u8> {
    let pieces = [
        Piece::Bytes(b"structure".to_vec()),
        Piece::Zeros { page: 3, count: 5 },
        Piece::Page { page: 8, fill: 1, way: Way::Content },
        Piece::Page { page: 9, fill: 2, way: Way::Reference },
        Piece::Content { fill: 3, way: Way::AtOnce { held: false } },
        Piece::Content { fill: 4, way: Way::Delta },
    ];
    let case = draft(&pieces);
    let ask = Ask { hashes: case.held.hashes.clone(), bases: vec![(3, key().hash(&earlier(4)))] };
    let mut answer = Answer { known: PageSet::empty(4), bases: PageSet::empty(1) };
    answer.known.insert(1);
    answer.bases.insert(0);
    let encoded = case.draft.encode(case.held.hashes.clone(), &case.treatments, &case.deltas, None);
    let segment = body(&encoded, 0, &mut Chain::default());
    let records: [(Kind, Vec<u8>); 10] = [
        (Kind::Ask, ask.encode()),
        (Kind::Segment, segment),
        (Kind::End, Vec::new()),
        (Kind::Probe, ask.encode()),
        (Kind::Supply, encode_supply(case.held.supplied, None)),
        (Kind::Answer, answer.encode()),
        (Kind::Credit, 77_u64.to_le_bytes().to_vec()),
        (Kind::Reverse, b"return path".to_vec()),
        (Kind::ReverseEnd, Vec::new()),
        (Kind::Abort, b"why".to_vec()),
    ];
    let welcome =
        Welcome::Accepted { in_scope: true, window: 1 << 20, nonce: [4; 32], proof: [5; 32] };
    let mut out = hello(versions).encode().to_vec();
    out.extend(welcome.encode(versions.newest));
    out.extend(Confirm { proof: Some([6; 32]) }.encode());
    for (kind, body) in records {
        out.extend(Header::of(kind, 0, &[&body], true).encode());
        out.extend(body);
    }
    out
}

/// `PAGESHARE_GOLDEN=write` writes the newest version's file anew, for a new version. That of the
/// version before was written by programs that knew no other.
#[test]
fn the_golden_records_are_what_is_written_today() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/pageshare");
    let Versions { oldest, newest } = Versions::OURS;
    for versions in [Versions::only(oldest), Versions::OURS] {
        let (version, records) = (versions.newest, golden_records(versions));
        let path = format!("{folder}/wire-{version}.bin");
        if version == newest && std::env::var("PAGESHARE_GOLDEN").is_ok_and(|it| it == "write") {
            std::fs::write(&path, &records).unwrap();
        }
        let golden = std::fs::read(path).unwrap();
        assert!(records == golden, "version {version} has changed: raise it");
    }
}

#[test]
fn what_came_as_it_is_need_not_be_copied_and_nothing_else_is_taken_for_it() {
    let text = b"a stretch of device state".repeat(100);
    let verbatim = |draft: Draft, compressor: Option<&mut Compressor>| {
        let hashes = draft.hash(&key());
        let treatments = vec![Treatment::Content; hashes.len()];
        let body =
            body(&draft.encode(hashes, &treatments, &[], compressor), 4, &mut Chain::default());
        SegmentView::parse(&body).expect("a sound body").verbatim().map(<[u8]>::to_vec)
    };
    let draft = |pieces: &[(Token, usize, bool)], stream: Vec<u8>| {
        let mut draft = Draft::new(stream);
        pieces.iter().for_each(|(token, length, ask)| draft.add(*token, *length, *ask));
        draft
    };
    let plain = || draft(&[(Token::Bytes, text.len(), false)], text.clone());
    assert_eq!(verbatim(plain(), None), Some(text.clone()));
    let mut compressor = Compressor::new(1).expect("a level that zstd has");
    assert_eq!(verbatim(plain(), Some(&mut compressor)), None, "compressed");
    let page = || vec![7; PAGE_SIZE];
    assert_eq!(verbatim(draft(&[(Token::Content, PAGE_SIZE, true)], page()), None), None, "asked");
    let zero = RamWord(RamWord::ZERO | RamWord::CONTINUE);
    let stream = [zero.to_bytes().as_slice(), &[0]].concat();
    assert_eq!(verbatim(draft(&[(Token::Zero(zero), 9, false)], stream), None), None, "left out");
}
