//! Numbers that look random, and values made of them.

use alloc::string::String;

/// Marsaglia's xorshift.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }
}

/// A type that is made of random numbers and has a checksum.
pub trait Sample {
    fn sample(rng: &mut Rng) -> Self;
    fn digest(&self) -> u64;
}

pub fn mix(sum: u64, value: u64) -> u64 {
    (sum ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5)
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Sample for $ty {
            fn sample(rng: &mut Rng) -> $ty {
                (rng.next() >> 20) as $ty
            }

            fn digest(&self) -> u64 {
                *self as u64
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, i32, i64);

impl<A: Sample, B: Sample> Sample for (A, B) {
    fn sample(rng: &mut Rng) -> (A, B) {
        (A::sample(rng), B::sample(rng))
    }

    fn digest(&self) -> u64 {
        mix(self.0.digest(), self.1.digest())
    }
}

impl Sample for String {
    fn sample(rng: &mut Rng) -> String {
        let length = 3 + rng.below(6);
        (0..length).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
    }

    fn digest(&self) -> u64 {
        self.bytes().fold(0, |sum, byte| mix(sum, u64::from(byte)))
    }
}
