//! Longest common subsequences of two sequences of numbers.
//!
//! Two algorithms find one: one whose steps grow with the square of the differences, and, where
//! there are many, one that takes a step for 64 pairs of elements. This module knows numbers only.
//!
//! Sources: H. Hyyrö, *Bit-Parallel LCS-length Computation Revisited* (AWOCA 2004); E. W. Myers,
//! *An O(ND) Difference Algorithm and Its Variations* (Algorithmica, 1986), the greedy algorithm.

use alloc::vec::Vec;

/// Pairs of positions of a longest common subsequence, ascending; `None` if more than `most`
/// elements of both sequences together are in no pair. O(min(n · m / 64, (n + m + d) · d)) steps
/// and words of memory for d such elements.
pub(super) fn common(a: &[u32], b: &[u32], most: usize) -> Option<Vec<(usize, usize)>> {
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let ends = a[prefix..].iter().rev().zip(b[prefix..].iter().rev());
    let suffix = ends.take_while(|(a, b)| a == b).count();
    let (x, y) = (a.len() - suffix, b.len() - suffix);
    let mut pairs: Vec<(usize, usize)> = Vec::with_capacity(a.len().min(b.len()));
    pairs.extend((0..prefix).map(|at| (at, at)));
    let (a, b) = (&a[prefix..x], &b[prefix..y]);
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    // With this number of differences, both algorithms take about equal numbers of steps.
    let steps = a.len().saturating_mul(words(b));
    let few = most.min(steps.saturating_mul(2).isqrt());
    let between = match greedy(a, b, few) {
        Some(between) => between,
        None if few == most => return None,
        None => bit_parallel(a, b, most)?,
    };
    pairs.extend(between.into_iter().map(|(x, y)| (prefix + x, prefix + y)));
    pairs.extend((0..suffix).map(|at| (x + at, y + at)));
    Some(pairs)
}

/// How many words have a bit for each element.
fn words(sequence: &[u32]) -> usize {
    sequence.len().div_ceil(64)
}

/// As [`common`], row by row of the table of lengths, each of which is kept as bits: one for each
/// element of `b`, zero where the length is greater with that element than without.
fn bit_parallel(a: &[u32], b: &[u32], most: usize) -> Option<Vec<(usize, usize)>> {
    let words = words(b);
    // The places of each element of `b`, as bits, behind those of elements that it does not have.
    let mut elements: Vec<u32> = b.to_vec();
    elements.sort_unstable();
    elements.dedup();
    let mut places: Vec<u64> = alloc::vec![0; words * (elements.len() + 1)];
    let number = |element| elements.binary_search(element).map_or(0, |number| number + 1);
    for (at, element) in b.iter().enumerate() {
        places[number(element) * words + at / 64] |= 1u64 << (at % 64);
    }
    let mut rows: Vec<u64> = Vec::with_capacity(words * (a.len() + 1));
    rows.resize(words, u64::MAX);
    for element in a {
        let equal = &places[number(element) * words..][..words];
        let before = rows.len() - words;
        let mut carry = false;
        for (at, &equal) in equal.iter().enumerate() {
            let before = rows[before + at];
            let (sum, over) = before.overflowing_add(before & equal);
            let (sum, again) = sum.overflowing_add(u64::from(carry));
            carry = over || again;
            rows.push(sum | before & !equal);
        }
    }
    let grows = |row: usize, column: usize| {
        rows[row * words + (column - 1) / 64] >> ((column - 1) % 64) & 1 == 0
    };
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let (mut row, mut column) = (a.len(), b.len());
    while row > 0 && column > 0 {
        if !grows(row, column) {
            column -= 1;
            continue;
        }
        row -= 1;
        // Where the element also counts in the row before, this row adds nothing.
        if !grows(row, column) {
            column -= 1;
            pairs.push((row, column));
        }
    }
    pairs.reverse();
    (a.len() + b.len() - 2 * pairs.len() <= most).then_some(pairs)
}

/// As [`common`], difference by difference.
fn greedy(a: &[u32], b: &[u32], most: usize) -> Option<Vec<(usize, usize)>> {
    let ends = (a.len() as isize, b.len() as isize);
    // The furthest x on each diagonal x - y, after each number of differences: one value more for
    // each difference.
    let mut furthest: Vec<isize> = Vec::with_capacity(64);
    let at = |furthest: &[isize], differences: usize, diagonal: isize| {
        let round = differences * (differences + 1) / 2;
        furthest[round + ((diagonal + differences as isize) / 2) as usize]
    };
    // Where a path with this number of differences begins on a diagonal, before the equal elements
    // from there on.
    let start = |furthest: &[isize], differences: usize, diagonal: isize| {
        let Some(fewer) = differences.checked_sub(1) else {
            return 0;
        };
        let d = differences as isize;
        let down = (diagonal < d).then(|| at(furthest, fewer, diagonal + 1));
        let right = (diagonal > -d).then(|| at(furthest, fewer, diagonal - 1) + 1);
        down.max(right).expect("one of them exists")
    };
    let found = 'found: {
        for differences in 0..=most {
            let d = differences as isize;
            for diagonal in (-d..=d).step_by(2) {
                let mut x = start(&furthest, differences, diagonal);
                while x < ends.0
                    && x - diagonal < ends.1
                    && x - diagonal >= 0
                    && a[x as usize] == b[(x - diagonal) as usize]
                {
                    x += 1;
                }
                furthest.push(x);
                if x >= ends.0 && x - diagonal >= ends.1 {
                    break 'found differences;
                }
            }
        }
        return None;
    };
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let (mut x, mut y) = ends;
    for differences in (0..=found).rev() {
        let diagonal = x - y;
        let start = start(&furthest, differences, diagonal);
        while x > start {
            (x, y) = (x - 1, y - 1);
            pairs.push((x as usize, y as usize));
        }
        if let Some(fewer) = differences.checked_sub(1) {
            let down = diagonal < differences as isize;
            match down && at(&furthest, fewer, diagonal + 1) == x {
                true => y -= 1,
                false => x -= 1,
            }
        }
    }
    pairs.reverse();
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of a longest common subsequence, by dynamic programming.
    fn longest(a: &[u32], b: &[u32]) -> usize {
        let mut row = alloc::vec![0; b.len() + 1];
        for x in a {
            let mut diagonal = 0;
            for (at, y) in b.iter().enumerate() {
                let above = row[at + 1];
                row[at + 1] = if x == y { diagonal + 1 } else { above.max(row[at]) };
                diagonal = above;
            }
        }
        row[b.len()]
    }

    /// Without that, functions would share a body with instructions of neither, or seem to differ
    /// in more than they do.
    #[test]
    fn pairs_are_a_longest_common_subsequence() {
        arbtest::arbtest(|u| {
            let most = if u.ratio(1, 8)? { 150 } else { 24 };
            let mut sequence = || -> arbtest::arbitrary::Result<Vec<u32>> {
                (0..u.int_in_range(0..=most)?).map(|_| u.int_in_range(0..=4)).collect()
            };
            let (a, b) = (sequence()?, sequence()?);
            let differences = a.len() + b.len() - 2 * longest(&a, &b);
            for find in [common, bit_parallel, greedy] {
                let pairs = find(&a, &b, differences).expect("no more than that");
                assert_eq!(pairs.len(), longest(&a, &b));
                assert!(pairs.iter().all(|&(x, y)| a[x] == b[y]));
                let ascend = |x: &(usize, usize), y: &(usize, usize)| x.0 < y.0 && x.1 < y.1;
                assert!(pairs.is_sorted_by(ascend));
                if let Some(fewer) = differences.checked_sub(1) {
                    assert_eq!(find(&a, &b, fewer), None);
                }
            }
            Ok(())
        });
    }
}
