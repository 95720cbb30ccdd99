//! SHUT is found on a return path, whatever lies before it and however it is cut.

use pageshare_stream::ReturnPath;
use proptest::prelude::*;

fn loaded(path: &[u8], piece: usize) -> bool {
    let mut said = ReturnPath::default();
    path.chunks(piece).for_each(|piece| said.feed(piece));
    said.loaded()
}

fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a short payload");
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), payload].concat()
}

proptest! {
    #[test]
    fn the_last_word_of_a_guest_that_was_loaded_is_found(
        before in prop::collection::vec((2_u16..9, prop::collection::vec(0_u8..2, 0..40)), 0..9),
        verdict in 0_u32..3,
        piece in 1_usize..20,
    ) {
        let mut path: Vec<u8> =
            before.iter().flat_map(|(kind, payload)| message(*kind, payload)).collect();
        prop_assert!(!loaded(&path, piece));
        path.extend(message(1, &verdict.to_be_bytes()));
        prop_assert_eq!(loaded(&path, piece), verdict == 0);
        prop_assert!(!loaded(&path[..path.len() - 1], piece));
    }

    #[test]
    fn noise_does_no_harm(noise in prop::collection::vec(0_u8..6, 0..300), piece in 1_usize..20) {
        loaded(&noise, piece);
    }
}
