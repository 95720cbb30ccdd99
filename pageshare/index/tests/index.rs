//! The index against a plain map, and its file format against damage.

use std::collections::HashMap;
use std::path::PathBuf;

use pageshare_index::{
    Catalogue, HashKey, Origin, PAGE_SIZE, PageHash, Place, Recent, ScopeKey, TableBuilder,
    snapshot,
};
use proptest::prelude::*;

fn key(byte: u8) -> HashKey {
    ScopeKey([byte; 32]).hash_key()
}

/// Few distinct hashes, so that some are alike and many fall into one slot.
fn hashes() -> impl Strategy<Value = Vec<PageHash>> {
    let hash = prop_oneof![
        any::<[u8; 16]>(),
        (0_u8..4).prop_map(|low| [0, 0, 0, 0, 0, 0, 0, low, 9, 9, 9, 9, 9, 9, 9, 9]),
        Just([0xff; 16]),
    ];
    prop::collection::vec(hash.prop_map(PageHash), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn finds_what_a_map_finds(hashes in hashes(), other: [u8; 16]) {
        let mut builder = TableBuilder::default();
        let mut map: HashMap<u64, Vec<u32>> = HashMap::new();
        for (page, hash) in (0..).zip(&hashes) {
            builder.insert(*hash, page);
            map.entry(hash.prefix()).or_default().push(page);
        }
        let table = builder.build();
        for hash in hashes.iter().copied().chain([PageHash(other)]) {
            let found: Vec<u32> = table.find(hash).collect();
            let mut known = map.get(&hash.prefix()).cloned().unwrap_or_default();
            known.truncate(2);
            prop_assert_eq!(found, known);
        }
    }

    #[test]
    fn many_pages_at_once_have_the_hashes_that_each_has_alone(
        seeds in prop::collection::vec(any::<u64>(), 0..70),
    ) {
        let pages: Vec<[u8; PAGE_SIZE]> = seeds
            .iter()
            .map(|seed| std::array::from_fn(|at| (seed >> (at * 7 % 57)).to_le_bytes()[at % 8]))
            .collect();
        let alone: Vec<PageHash> = pages.iter().map(|page| key(1).hash(page)).collect();
        prop_assert_eq!(key(1).hash_pages(&pages.iter().collect::<Vec<_>>()), alone);
    }

    #[test]
    fn a_file_reads_back_as_written_and_damage_is_noticed(
        hashes in hashes(),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let mut catalogue = Catalogue::default();
        catalogue.add_origin(Origin::Process { pid: 7, started: 12345 });
        catalogue.add_origin(Origin::File { path: PathBuf::from("/images/debian.qcow2") });
        catalogue.add_origin(Origin::Compressed { path: PathBuf::from("/images/debian.qcow2") });
        catalogue.add_span(0, 0x7f00_0000_0000, 120);
        catalogue.add_span(1, 4096, 50);
        catalogue.add_span(2, 65536, 30);
        let mut builder = TableBuilder::default();
        for (page, hash) in (0..).zip(&hashes) {
            builder.insert(*hash, page);
        }
        let table = builder.build();
        let mut bytes = snapshot::encode(&key(1), &catalogue, &table);
        prop_assert_eq!(snapshot::decode(&key(1), &bytes), Ok((catalogue, table)));
        prop_assert_eq!(snapshot::decode(&key(2), &bytes), Err(snapshot::SnapshotError::Key));
        let length = bytes.len();
        bytes[at.index(length)] ^= flip;
        prop_assert!(snapshot::decode(&key(1), &bytes).is_err());
    }

    #[test]
    fn noise_is_no_index(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(snapshot::decode(&key(1), &noise).is_err());
        let mut noise = noise;
        noise.splice(0..0, *b"PGSI\x02\0");
        prop_assert!(snapshot::decode(&key(1), &noise).is_err());
    }

    #[test]
    fn recent_pages_are_the_last_ones(pages in prop::collection::vec(0_u8..30, 0..100)) {
        let key = key(3);
        let mut recent = Recent::with_room_for(8 * PAGE_SIZE);
        let mut model: Vec<u8> = Vec::new();
        for page in pages {
            let content = [page; PAGE_SIZE];
            recent.insert(key.hash(&content), &content);
            if !model.contains(&page) {
                model.push(page);
                if model.len() > 8 {
                    model.remove(0);
                }
            }
        }
        for page in 0..30 {
            let content = [page; PAGE_SIZE];
            let known = model.contains(&page).then_some(&content[..]);
            prop_assert_eq!(recent.get(key.hash(&content)), known);
        }
    }
}

#[test]
fn a_page_number_leads_to_its_place() {
    let mut catalogue = Catalogue::default();
    let process = catalogue.add_origin(Origin::Process { pid: 7, started: 1 });
    let file = catalogue.add_origin(Origin::File { path: PathBuf::from("/image") });
    catalogue.add_span(process, 0x1000, 2);
    catalogue.add_span(file, 0, 3);
    assert_eq!(catalogue.place(1), Some(Place { origin: process, address: 0x2000 }));
    assert_eq!(catalogue.place(2), Some(Place { origin: file, address: 0 }));
    assert_eq!(catalogue.place(4), Some(Place { origin: file, address: 0x2000 }));
    assert_eq!(catalogue.place(5), None);
    assert_eq!(catalogue.add_span(9, 0, 1), None, "an origin that was never added");
}

#[test]
fn the_table_takes_under_one_percent_of_what_it_indexes() {
    let key = key(0);
    let mut builder = TableBuilder::default();
    for page in 0..100_000_u32 {
        builder.insert(key.hash(&page.to_le_bytes()), page);
    }
    let table = builder.build();
    assert!(table.bytes() * 100 <= table.len() * PAGE_SIZE, "{} bytes", table.bytes());
}

/// `PAGESHARE_GOLDEN=write` writes the file anew, for a new version.
#[test]
fn the_golden_index_is_what_is_written_today() {
    let mut catalogue = Catalogue::default();
    catalogue.add_origin(Origin::Process { pid: 7, started: 12345 });
    catalogue.add_origin(Origin::File { path: PathBuf::from("/images/debian.qcow2") });
    catalogue.add_origin(Origin::Compressed { path: PathBuf::from("/images/debian.qcow2") });
    catalogue.add_span(0, 0x7f00_0000_0000, 2);
    catalogue.add_span(1, 4096, 1);
    catalogue.add_span(2, 65536, 1);
    let mut builder = TableBuilder::default();
    for page in 0..4_u8 {
        builder.insert(key(1).hash(&[page / 2; PAGE_SIZE]), page.into());
    }
    let written = snapshot::encode(&key(1), &catalogue, &builder.build());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/pageshare/index.bin");
    if std::env::var("PAGESHARE_GOLDEN").is_ok_and(|wish| wish == "write") {
        std::fs::write(path, &written).unwrap();
    }
    let golden = std::fs::read(path).unwrap();
    assert!(written == golden, "the format has changed: raise its version");
}
