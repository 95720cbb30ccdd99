//! Whether bytes look like noise: encrypted, compressed, or random.
//!
//! Compression gains nothing on them, and a guest's memory has both in long stretches. Looking at a
//! few bytes of each page tells them apart at a thousandth of what compressing costs.

use pageshare_stream::PAGE_SIZE;

/// Where in a page a few bytes are looked at, and how many.
const PLACES: [usize; 4] = [200, 1400, 2600, 3800];
const BYTES: usize = 8;
/// Fewer bytes than this say nothing.
const ENOUGH: u64 = 512;

/// How often each value was seen.
pub(crate) struct Noise([u64; 256]);

impl Default for Noise {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Noise {
    /// Looks at a page.
    pub(crate) fn look(&mut self, page: &[u8; PAGE_SIZE]) {
        for place in PLACES {
            for byte in &page[place..place + BYTES] {
                self.0[usize::from(*byte)] += 1;
            }
        }
    }

    /// Whether all values are seen about as often: equal bytes meet no more often than a quarter
    /// above chance. (In text and in code they do ten times as often.)
    pub(crate) fn is_all(&self) -> bool {
        let total: u64 = self.0.iter().sum();
        let meetings: u64 = self.0.iter().map(|seen| seen * seen.saturating_sub(1)).sum();
        let chance = total * total.saturating_sub(1) / 256;
        total >= ENOUGH && 4 * meetings < 5 * chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(pages: impl Iterator<Item = [u8; PAGE_SIZE]>) -> bool {
        let mut noise = Noise::default();
        pages.for_each(|page| noise.look(&page));
        noise.is_all()
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
        assert!(looks(random(16, usize::MAX)));
        assert!(looks(random(64, usize::MAX)));
        assert!(!looks(random(64, 8)), "an eighth of it compresses");
        let text = b"What is read here is read by people. ".iter().cycle();
        let page: Vec<u8> = text.copied().take(PAGE_SIZE).collect();
        let page = page.try_into().expect("a page");
        assert!(!looks(std::iter::repeat_n(page, 64)));
    }

    #[test]
    fn a_few_bytes_say_nothing() {
        assert!(!looks(random(15, usize::MAX)));
        assert!(!looks(std::iter::empty()));
    }
}
