//! A hash table with open addressing, generic over its keys, values and hash functions.

use crate::random::{Rng, Sample, mix};
use alloc::string::String;
use alloc::vec::Vec;

trait Hasher {
    fn hash(bytes: u64) -> u64;
}

struct Multiply;
struct Shift;

impl Hasher for Multiply {
    fn hash(bits: u64) -> u64 {
        bits.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 29
    }
}

impl Hasher for Shift {
    fn hash(bits: u64) -> u64 {
        let bits = bits ^ bits >> 31;
        bits.wrapping_add(bits << 15) ^ bits >> 9
    }
}

struct Table<K, V, H> {
    slots: Vec<Option<(K, V)>>,
    used: usize,
    hasher: core::marker::PhantomData<H>,
}

impl<K: Sample + Eq, V: Sample, H: Hasher> Table<K, V, H> {
    fn new() -> Self {
        let slots = (0..16).map(|_| None).collect();
        Table { slots, used: 0, hasher: core::marker::PhantomData }
    }

    /// Where the key is, or where it would be.
    fn position(&self, key: &K) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = H::hash(key.digest()) as usize & mask;
        while let Some((other, _)) = &self.slots[at] {
            if other == key {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    fn insert(&mut self, key: K, value: V) -> Option<V> {
        if 4 * self.used >= 3 * self.slots.len() {
            self.grow();
        }
        let at = self.position(&key);
        let before = self.slots[at].replace((key, value));
        if before.is_none() {
            self.used += 1;
        }
        before.map(|(_, value)| value)
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.slots[self.position(key)].as_ref().map(|(_, value)| value)
    }

    fn grow(&mut self) {
        let slots = (0..2 * self.slots.len()).map(|_| None).collect();
        let old = core::mem::replace(&mut self.slots, slots);
        for (key, value) in old.into_iter().flatten() {
            let at = self.position(&key);
            self.slots[at] = Some((key, value));
        }
    }
}

fn exercise<K: Sample + Eq, V: Sample, H: Hasher>(n: u32, seed: u64) -> u64 {
    let mut table = Table::<K, V, H>::new();
    let mut rng = Rng::new(seed);
    let mut sum = 0;
    for _ in 0..n {
        let key = K::sample(&mut rng);
        if let Some(value) = table.insert(key, V::sample(&mut rng)) {
            sum = mix(sum, value.digest());
        }
    }
    let mut again = Rng::new(seed);
    for _ in 0..3 * n {
        if let Some(value) = table.get(&K::sample(&mut again)) {
            sum = mix(sum, value.digest());
        }
        V::sample(&mut again);
    }
    mix(sum, table.used as u64)
}

pub fn run(n: u32) -> u64 {
    let mut sum = 0;
    for round in 0..n {
        let seed = u64::from(round);
        sum = mix(sum, exercise::<u32, u32, Multiply>(500, seed));
        sum = mix(sum, exercise::<u32, u32, Shift>(500, seed));
        sum = mix(sum, exercise::<u64, u16, Multiply>(500, seed));
        sum = mix(sum, exercise::<String, u32, Multiply>(100, seed));
    }
    sum
}
