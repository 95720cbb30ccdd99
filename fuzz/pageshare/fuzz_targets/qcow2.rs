//! No image file makes the index of its pages panic, hang, or take memory without bound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pageshare::sources::{SourceSpec, scan};
use pageshare_index::ScopeKey;

fuzz_target!(|content: &[u8]| {
    let mut image = b"QFI\xfb".to_vec();
    image.extend(content);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let key = ScopeKey([1; 32]).hash_key();
    let scanned = scan(&[SourceSpec::Image(file.path().to_owned())], &key, 1).unwrap();
    for page in content.as_chunks::<4096>().0 {
        scanned.library.copy(key.hash(page), &mut [0; 4096]);
    }
});
