//! Whether bytes look like noise: encrypted, compressed, or random.
//!
//! Compression gains nothing on them, and a guest's memory has both in long stretches. Looking at a
//! few bytes of each page tells them apart at a fiftieth of what compressing costs.

use pageshare_stream::PAGE_SIZE;

/// Where in a page bytes are looked at, and how many.
const PLACES: usize = 16;
const BYTES: usize = 8;
/// How often two of them may be equal: of so many random ones 32 pairs are, give or take 6; in text
/// and in code ten times as many.
const EQUAL_PAIRS: u32 = 64;

/// Whether these pages are noise, but for fewer than an eighth: compressing all of them would cost
/// more than those save.
pub(crate) fn is_noise(pages: &[&[u8; PAGE_SIZE]]) -> bool {
    let others = pages.iter().filter(|page| !is_noise_page(page)).count();
    !pages.is_empty() && 8 * others < pages.len()
}

fn is_noise_page(page: &[u8; PAGE_SIZE]) -> bool {
    let mut seen = [0_u8; 256];
    let mut pairs = 0;
    for part in page.as_chunks::<{ PAGE_SIZE / PLACES }>().0 {
        for byte in &part[part.len() / 2..][..BYTES] {
            let seen = &mut seen[usize::from(*byte)];
            pairs += u32::from(*seen);
            *seen += 1;
        }
    }
    pairs < EQUAL_PAIRS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(pages: impl Iterator<Item = [u8; PAGE_SIZE]>) -> bool {
        let pages: Vec<_> = pages.collect();
        is_noise(&pages.iter().collect::<Vec<_>>())
    }

    /// Pages of what a generator of random numbers makes, but for every `n`th.
    fn random(pages: usize, n: usize) -> impl Iterator<Item = [u8; PAGE_SIZE]> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (1..=pages).map(move |number| {
            let mut page = [0; PAGE_SIZE];
            for word in page.as_chunks_mut().0 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *word = if number.is_multiple_of(n) { [0; 8] } else { state.to_le_bytes() };
            }
            page
        })
    }

    #[test]
    fn random_bytes_are_noise_and_what_repeats_is_not() {
        for pages in 1..70 {
            assert!(looks(random(pages, usize::MAX)), "{pages} pages");
        }
        assert!(looks(random(64, 9)), "a ninth of it compresses");
        assert!(!looks(random(64, 8)), "an eighth of it compresses");
        let text = b"What is read here is read by people. ".iter().cycle();
        let page: Vec<u8> = text.copied().take(PAGE_SIZE).collect();
        let page = page.try_into().expect("a page");
        assert!(!looks(std::iter::repeat_n(page, 64)));
    }

    #[test]
    fn nothing_is_no_noise() {
        assert!(!looks(std::iter::empty()));
    }
}
