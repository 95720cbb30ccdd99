//! Segments as a sender's proxy has them, and what they stand for.

use pageshare_wire::ask::{Answer, Ask};
use pageshare_wire::segment::{Draft, Encoded, Held, SegmentView, Treatment};
use pageshare_wire::{Chain, Expander, PageSet, delta};

use super::super::{Choices, Simulator};

/// What the sender's proxy remembers of a segment, and the test of what it was.
pub(super) struct Segment {
    draft: Option<Draft>,
    pub(super) stream: Vec<u8>,
    /// Numbers of the pages asked for.
    pub(super) pages: Vec<usize>,
    pub(super) ask: Ask,
    /// It goes with references to all of them before the answer.
    pub(super) at_once: bool,
    /// Contents that the sender keeps until the receiver is known to have them, as pages.
    pub(super) kept: usize,
    /// What the receiver has said of it, whether or not it is true.
    pub(super) said: Answer,
}

/// Expands what leaves as a receiver would that has all that it says.
pub(super) struct Check {
    chain: Chain,
    expander: Expander,
}

impl Simulator {
    pub(super) fn taken(&mut self, choices: &mut Choices<'_>, many: usize) -> Segment {
        let (draft, stream, pages) = self.draft(choices, many);
        let ask = Ask { hashes: draft.hash(&self.key), bases: Vec::new() };
        let said = Answer { known: PageSet::empty(pages.len()), bases: PageSet::empty(0) };
        Segment { draft: Some(draft), stream, pages, ask, at_once: false, kept: 0, said }
    }
}

impl Segment {
    /// How its pages travel, as the receiver has said what it has.
    pub(super) fn treatments(&self) -> Vec<Treatment> {
        let affirmed = |page| {
            let at = self.ask.bases.iter().position(|(base, _)| usize::from(*base) == page);
            at.is_some_and(|at| self.said.bases.contains(at))
        };
        let treatment = |page| match (self.said.known.contains(page), affirmed(page)) {
            (true, _) => Treatment::Reference,
            (false, true) => Treatment::Delta,
            (false, false) => Treatment::Content,
        };
        (0..self.pages.len()).map(treatment).collect()
    }

    pub(super) fn encode(
        &mut self,
        treatments: &[Treatment],
        choices: &mut Choices<'_>,
        world: &mut Simulator,
    ) -> Option<Encoded> {
        let differs = self.pages.iter().zip(treatments).filter(|(_, it)| **it == Treatment::Delta);
        let deltas: Vec<_> = differs
            .map(|(page, _)| {
                delta::encode(&world.earlier[*page], &world.pages[*page]).expect("few bytes differ")
            })
            .collect();
        let compressor = choices.one_in(2).then_some(&mut world.compressor);
        let hashes = self.ask.hashes.clone();
        Some(self.draft.take()?.encode(hashes, treatments, &deltas, compressor))
    }

    /// Contents of the pages that the receiver has not, as it says.
    pub(super) fn missing(&self, world: &Simulator) -> Vec<u8> {
        let pages = self.pages.iter().enumerate();
        let missing = pages.filter(|(page, _)| !self.said.known.contains(*page));
        missing.flat_map(|(_, page)| world.pages[*page]).collect()
    }
}

impl Check {
    pub(super) fn new() -> Self {
        Self { chain: Chain::default(), expander: Expander::new().expect("memory for zstd") }
    }

    /// Expands what leaves as a receiver would that has all that was said.
    pub(super) fn says_what_it_stands_for(
        &mut self,
        number: u32,
        segment: &Segment,
        body: &[u8],
        world: &Simulator,
    ) {
        let bases = segment.ask.bases.iter().enumerate();
        let bases = bases.filter(|(at, _)| segment.said.bases.contains(*at));
        let earlier = |page: u16| world.earlier[segment.pages[usize::from(page)]];
        let held = Held {
            hashes: segment.ask.hashes.clone(),
            known: segment.said.known.clone(),
            contents: segment.pages.iter().flat_map(|page| world.pages[*page]).collect(),
            bases: bases.map(|(_, (page, _))| (*page, Box::new(earlier(*page)))).collect(),
            supplied: if segment.at_once { segment.missing(world) } else { Vec::new() },
        };
        let view = SegmentView::parse(body).expect("a segment");
        let (chain, expander) = (&mut self.chain, &mut self.expander);
        let mut stream = Vec::new();
        let expanded = view.expand(number, &held, &world.key, chain, expander, &mut stream);
        assert!(expanded.is_ok(), "segment {number}: {expanded:?}");
        assert!(stream == segment.stream, "segment {number} stands for something else");
    }
}
