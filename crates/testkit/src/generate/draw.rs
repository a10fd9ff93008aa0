//! Choices from a fuzzer's bytes that never fail: where there are no more bytes, the first choice
//! is made. So whatever repeats must be able to end with the first choice.

use crate::support::Rng;
use arbitrary::Unstructured;

/// A source of choices.
pub struct Draw<'u, 'a> {
    bytes: &'u mut Unstructured<'a>,
}

impl<'u, 'a> Draw<'u, 'a> {
    /// Choices from these bytes.
    pub fn new(bytes: &'u mut Unstructured<'a>) -> Self {
        Draw { bytes }
    }

    /// A number below `end`, which must not be 0; 0 without bytes. Takes a byte if `end` is at most
    /// 256, and none if it is 1.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 1 { 0 } else { self.bytes.int_in_range(0..=end - 1).unwrap_or(0) }
    }

    /// True once in `n` times; false without bytes.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// True in all but one of `n` times; true without bytes.
    pub fn but_one_in(&mut self, n: usize) -> bool {
        !self.one_in(n)
    }

    /// One of `items`, which must not be empty.
    pub fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A generator of random numbers that takes two bytes, for what need not be visible to a
    /// fuzzer.
    pub fn rng(&mut self) -> Rng {
        Rng::new(self.below(1 << 16) as u64)
    }

    /// The bits of a constant of this width, interesting ones more often than others.
    pub fn bits(&mut self, width: u32) -> u128 {
        let all = u128::MAX >> (128 - width);
        let bits = match self.below(8) {
            0 => 0,
            1 => 1,
            2 => all,
            3 => 1 << (width - 1),
            4 => all >> 1,
            5 => self.below(256) as u128,
            _ => {
                let mut rng = self.rng();
                u128::from(rng.word()) << 64 | u128::from(rng.word())
            }
        };
        bits & all
    }

    /// The bits of a float constant of this width, of which `fraction` are the fraction's.
    pub fn float_bits(&mut self, width: u32, fraction: u32) -> u128 {
        let exponent = (1u128 << (width - 1 - fraction)) - 1;
        let sign = 1 << (width - 1);
        match self.below(10) {
            0 => 0,
            1 => sign,
            // 1, and the powers of two on either side of it
            2 => (exponent >> 1) << fraction,
            3 => ((exponent >> 1) + 1) << fraction | 1 << (fraction - 1),
            4 => ((exponent >> 1) - 1) << fraction | sign,
            5 => exponent << fraction,
            // NaNs, quiet and signalling
            6 => exponent << fraction | 1 << (fraction - 1) | self.below(4) as u128,
            7 => exponent << fraction | 1 | sign,
            // subnormal
            8 => 1 + self.below(4) as u128,
            _ => self.bits(width),
        }
    }
}
