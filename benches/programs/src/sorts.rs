//! Sorting: the standard library's, and two of our own that take a comparison as an argument.

use crate::random::{Rng, Sample, mix};
use alloc::string::String;
use alloc::vec::Vec;

fn quick<T, F: Fn(&T, &T) -> bool + Copy>(items: &mut [T], less: F) {
    if items.len() < 2 {
        return;
    }
    let last = items.len() - 1;
    items.swap(items.len() / 2, last);
    let mut middle = 0;
    for at in 0..last {
        if less(&items[at], &items[last]) {
            items.swap(at, middle);
            middle += 1;
        }
    }
    items.swap(middle, last);
    let (before, after) = items.split_at_mut(middle);
    quick(before, less);
    quick(&mut after[1..], less);
}

fn sift<T, F: Fn(&T, &T) -> bool>(items: &mut [T], mut at: usize, less: &F) {
    loop {
        let mut child = 2 * at + 1;
        if child >= items.len() {
            return;
        }
        if child + 1 < items.len() && less(&items[child], &items[child + 1]) {
            child += 1;
        }
        if !less(&items[at], &items[child]) {
            return;
        }
        items.swap(at, child);
        at = child;
    }
}

fn heap<T, F: Fn(&T, &T) -> bool>(items: &mut [T], less: F) {
    for at in (0..items.len() / 2).rev() {
        sift(items, at, &less);
    }
    for end in (1..items.len()).rev() {
        items.swap(0, end);
        sift(&mut items[..end], 0, &less);
    }
}

fn samples<T: Sample>(n: u32, seed: u64) -> Vec<T> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| T::sample(&mut rng)).collect()
}

fn digest<T: Sample>(items: &[T]) -> u64 {
    items.iter().fold(0, |sum, item| mix(sum, item.digest()))
}

fn own<T: Sample + Ord>(n: u32, seed: u64) -> u64 {
    let mut items = samples::<T>(n, seed);
    quick(&mut items, |a, b| a < b);
    let up = digest(&items);
    heap(&mut items, |a, b| a > b);
    let down = digest(&items);
    heap(&mut items, |a, b| a.digest() % 1000 < b.digest() % 1000);
    mix(mix(up, down), items.len() as u64)
}

fn stable<T: Sample + Ord>(n: u32, seed: u64) -> u64 {
    let mut items = samples::<T>(n, seed);
    items.sort();
    digest(&items)
}

pub fn run(n: u32) -> u64 {
    let mut sum = 0;
    for round in 0..n {
        let seed = u64::from(round);
        sum = mix(sum, own::<u32>(1000, seed));
        sum = mix(sum, own::<i64>(1000, seed));
        sum = mix(sum, own::<(u8, i32)>(1000, seed));
        sum = mix(sum, own::<String>(200, seed));
        sum = mix(sum, stable::<u64>(1000, seed));
    }
    sum
}
