//! No file makes the index panic; one that is accepted reads back as it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pageshare_index::{PageHash, ScopeKey, snapshot};

fuzz_target!(|file: &[u8]| {
    let key = ScopeKey([1; 32]).hash_key();
    // Seal it, so that fuzzing gets past the checksum and the key.
    let mut file = file.to_vec();
    if file.len() >= 24 {
        file[8..24].copy_from_slice(&key.fingerprint());
    }
    snapshot::seal(&mut file);
    if let Ok((catalogue, table)) = snapshot::decode(&key, &file) {
        for page in table.find(PageHash([0; 16])) {
            assert!(catalogue.place(page).is_some());
        }
        assert_eq!(snapshot::encode(&key, &catalogue, &table), file);
    }
});
