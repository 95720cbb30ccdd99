//! The parser of one channel: recognises its kind, counts its bytes, and owns the way out
//! (verbatim) that both kinds share.

use crate::main_channel::{MainChannel, RamBlock};
use crate::multifd::Multifd;
use crate::token::{Stop, Token};
use crate::why::{Verbatim, Why};

/// One step of parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The first `length` bytes of the input are this token; go on behind them.
    Token {
        /// What they are.
        token: Token,
        /// How many bytes; at least one, at most the input's.
        length: usize,
    },
    /// The input ends inside an item (of at most [`Parser::LONGEST`] bytes): come back with the
    /// same bytes and more.
    More,
}

/// What a channel turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    /// Too few bytes so far.
    Unknown,
    /// The main channel.
    Main,
    /// A multifd channel.
    Multifd,
    /// Neither.
    Other,
}

enum State {
    Start,
    Main,
    Multifd(Multifd),
    Verbatim,
}

/// A TLS record that carries a handshake, and the major version that all of them claim.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// Parses one channel of a migration. Feed it the channel's bytes in pieces of any size.
pub struct Parser {
    state: State,
    /// The main channel, if it is that: what it has said is known also where the rest is not.
    main: MainChannel,
    kind: ChannelKind,
    offset: u64,
    verbatim: Option<Verbatim>,
    compressed: Option<Verbatim>,
    unread: u64,
}

impl Default for Parser {
    fn default() -> Self {
        Self::new()
    }
}

impl Parser {
    /// No item is longer; a caller that keeps this many bytes never starves.
    pub const LONGEST: usize = 1 << 17;

    /// A parser at the first byte of a channel.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::Start,
            main: MainChannel::new(),
            kind: ChannelKind::Unknown,
            offset: 0,
            verbatim: None,
            compressed: None,
            unread: 0,
        }
    }

    /// What stands at the front of `input`, the channel's bytes from [`Parser::offset`] on.
    pub fn step(&mut self, input: &[u8]) -> Step {
        if input.is_empty() {
            return Step::More;
        }
        let parsed = match &mut self.state {
            State::Start => return self.start(input),
            State::Main => self.main.step(input),
            State::Multifd(channel) => channel.step(input),
            State::Verbatim => Ok((Token::Bytes, input.len())),
        };
        match parsed {
            Ok((token, length)) => {
                self.count_unread(length);
                self.offset += length as u64;
                Step::Token { token, length }
            }
            Err(Stop::Short) if input.len() < Self::LONGEST => Step::More,
            Err(Stop::Short) => self.give_up(Why::Length(input.len() as u64), input),
            Err(Stop::Why(why)) => self.give_up(why, input),
        }
    }

    /// Ends the channel with `rest` left over from the last step: an item that never came whole.
    /// It is to be passed on as it is.
    pub fn finish(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.give_up(Why::Truncated, rest);
        }
    }

    /// Bytes taken so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where and why parsing stopped, if it did.
    #[must_use]
    pub fn verbatim(&self) -> Option<&Verbatim> {
        self.verbatim.as_ref()
    }

    /// From where on the channel carries pages that QEMU has compressed, if it does.
    #[must_use]
    pub fn compressed(&self) -> Option<&Verbatim> {
        self.compressed.as_ref()
    }

    /// Bytes taken so far in which pages may be that nobody sees.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// What this channel is.
    #[must_use]
    pub fn kind(&self) -> ChannelKind {
        self.kind
    }

    /// Whether the list of RAM blocks is complete.
    #[must_use]
    pub fn has_listed_blocks(&self) -> bool {
        matches!(self.state, State::Main) && self.main.has_listed_blocks()
    }

    /// The guest's RAM blocks, once the main channel has listed them.
    #[must_use]
    pub fn blocks(&self) -> &[RamBlock] {
        self.main.blocks()
    }

    /// The block and the offset in it of the page that the last step returned, as
    /// [`Token::Page`] or [`Token::Content`].
    #[must_use]
    pub fn page(&self) -> (&[u8], u64) {
        match &self.state {
            State::Main => self.main.page(),
            State::Multifd(channel) => channel.page(),
            State::Start | State::Verbatim => (&[], 0),
        }
    }

    /// The machine type, once the main channel has named it.
    #[must_use]
    pub fn machine(&self) -> Option<&str> {
        self.main.machine()
    }

    /// Whether the destination is to answer on this channel, and to say whether it has loaded.
    #[must_use]
    pub fn opens_return_path(&self) -> bool {
        self.main.opens_return_path()
    }

    fn start(&mut self, input: &[u8]) -> Step {
        let may_be = |magic: [u8; 4]| input.iter().zip(magic).all(|(a, b)| *a == b);
        let (kind, state) = if may_be(MainChannel::MAGIC) {
            (ChannelKind::Main, State::Main)
        } else if may_be(Multifd::MAGIC) {
            (ChannelKind::Multifd, State::Multifd(Multifd::new()))
        } else {
            self.kind = ChannelKind::Other;
            let tls = input.starts_with(&TLS_HANDSHAKE);
            return self.give_up(if tls { Why::Tls } else { Why::Magic }, input);
        };
        if input.len() < 4 {
            return Step::More;
        }
        (self.kind, self.state) = (kind, state);
        self.step(input)
    }

    fn give_up(&mut self, why: Why, input: &[u8]) -> Step {
        self.verbatim.get_or_insert(Verbatim { at: self.offset, why });
        self.state = State::Verbatim;
        self.count_unread(input.len());
        self.offset += input.len() as u64;
        Step::Token { token: Token::Bytes, length: input.len() }
    }

    /// Looks at what was taken last.
    fn count_unread(&mut self, length: usize) {
        let compressed = match &self.state {
            State::Main => self.main.has_compressed(),
            State::Multifd(channel) => channel.has_compressed(),
            State::Start | State::Verbatim => false,
        };
        if compressed {
            let why = Why::Compressed;
            self.compressed.get_or_insert(Verbatim { at: self.offset, why });
        }
        let hidden = self.verbatim.as_ref().is_some_and(|verbatim| verbatim.why.hides_pages());
        if compressed || hidden {
            self.unread += length as u64;
        }
    }
}
