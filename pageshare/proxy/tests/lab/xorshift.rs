//! Numbers that look random and are the same each time.

/// Marsaglia's xorshift, from a state that is not zero.
pub struct Xorshift(pub u64);

impl Xorshift {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
