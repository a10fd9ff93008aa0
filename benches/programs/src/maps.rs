//! The standard library's ordered maps, with several types of keys.

use crate::random::{Rng, Sample, mix};
use alloc::collections::BTreeMap;
use alloc::string::String;

fn exercise<K: Sample + Ord, V: Sample>(n: u32, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut map = BTreeMap::new();
    for _ in 0..n {
        map.insert(K::sample(&mut rng), V::sample(&mut rng));
    }
    let mut sum = map.len() as u64;
    // The keys again, and an equal number of absent ones.
    let mut again = Rng::new(seed);
    for _ in 0..2 * n {
        let key = K::sample(&mut again);
        V::sample(&mut again);
        if let Some(value) = map.get(&key) {
            sum = mix(sum, value.digest());
        }
        if again.below(3) == 0
            && let Some(value) = map.remove(&key)
        {
            sum = mix(sum, value.digest());
        }
    }
    for (key, value) in &map {
        sum = mix(sum, key.digest() ^ value.digest());
    }
    sum
}

pub fn run(n: u32) -> u64 {
    let mut sum = 0;
    for round in 0..n {
        let seed = u64::from(round);
        sum = mix(sum, exercise::<u32, u32>(400, seed));
        sum = mix(sum, exercise::<i64, u32>(400, seed));
        sum = mix(sum, exercise::<String, u32>(100, seed));
    }
    sum
}
