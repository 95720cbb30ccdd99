//! Whether bytes look like noise: encrypted, compressed, or random.
//!
//! Compression gains nothing on them, and a guest's memory has both in long stretches. Looking at a
//! few bytes of each page tells them apart at a thousandth of what compressing costs.

use pageshare_stream::PAGE_SIZE;

/// How many bytes are looked at in one place.
const BYTES: usize = 8;
/// The places in a page: of many pages a few are enough, of a few pages all.
const FEWEST_PLACES: usize = 4;
const MOST_PLACES: usize = 16;
/// Fewer bytes than this say nothing.
const ENOUGH: usize = 512;

/// Whether all of these pages look like noise: all values of a byte are seen about as often, so that
/// equal ones meet no more often than a quarter above chance. (In text and in code they do ten times
/// as often.)
pub(crate) fn is_noise(pages: &[&[u8; PAGE_SIZE]]) -> bool {
    let wanted = (2 * ENOUGH).div_ceil(BYTES * pages.len().max(1));
    let places = wanted.clamp(FEWEST_PLACES, MOST_PLACES);
    let total = (pages.len() * places * BYTES) as u64;
    if total < ENOUGH as u64 {
        return false;
    }
    let mut seen = [0_u64; 256];
    for page in pages {
        // From the middle of each of so many equal parts.
        for part in page.chunks_exact(PAGE_SIZE / places).take(places) {
            for byte in &part[part.len() / 2..][..BYTES] {
                seen[usize::from(*byte)] += 1;
            }
        }
    }
    let meetings: u64 = seen.iter().map(|seen| seen * seen.saturating_sub(1)).sum();
    let chance = total * (total - 1) / 256;
    4 * meetings < 5 * chance
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
        for pages in 4..70 {
            assert!(looks(random(pages, usize::MAX)), "{pages} pages");
        }
        assert!(!looks(random(64, 8)), "an eighth of it compresses");
        let text = b"What is read here is read by people. ".iter().cycle();
        let page: Vec<u8> = text.copied().take(PAGE_SIZE).collect();
        let page = page.try_into().expect("a page");
        assert!(!looks(std::iter::repeat_n(page, 64)));
    }

    #[test]
    fn a_few_bytes_say_nothing() {
        assert!(!looks(random(3, usize::MAX)));
        assert!(!looks(std::iter::empty()));
    }
}
