//! The shortest edit script between two sequences.
//!
//! Source: E. W. Myers, *An O(ND) Difference Algorithm and Its Variations* (Algorithmica, 1986), the greedy algorithm.
//! It knows numbers only.

use alloc::vec::Vec;

/// Pairs of positions of a longest common subsequence, ascending; `None` if more than `most` elements of both sequences
/// together are in no pair. O((n + m + most) · most) steps, O(most²) memory.
pub(super) fn common(a: &[u32], b: &[u32], most: usize) -> Option<Vec<(usize, usize)>> {
    let ends = (a.len() as isize, b.len() as isize);
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    // The furthest x on each diagonal x - y, after each number of differences.
    let mut rounds: Vec<Vec<isize>> = Vec::new();
    let at = |round: &[isize], differences: usize, diagonal: isize| {
        round[((diagonal + differences as isize) / 2) as usize]
    };
    let found = 'found: {
        for differences in 0..=most {
            let d = differences as isize;
            let mut round: Vec<isize> = Vec::with_capacity(differences + 1);
            for diagonal in (-d..=d).step_by(2) {
                let mut x = match rounds.last() {
                    None => prefix as isize,
                    Some(last) => {
                        let before = |k: isize| at(last, differences - 1, k);
                        let down = (diagonal < d).then(|| before(diagonal + 1));
                        let right = (diagonal > -d).then(|| before(diagonal - 1) + 1);
                        down.max(right).expect("one of them exists")
                    }
                };
                while x < ends.0
                    && x - diagonal < ends.1
                    && x - diagonal >= 0
                    && a[x as usize] == b[(x - diagonal) as usize]
                {
                    x += 1;
                }
                round.push(x);
                if x >= ends.0 && x - diagonal >= ends.1 {
                    rounds.push(round);
                    break 'found differences;
                }
            }
            rounds.push(round);
        }
        return None;
    };
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let (mut x, mut y) = ends;
    for differences in (0..=found).rev() {
        let diagonal = x - y;
        let d = differences as isize;
        let start = match differences.checked_sub(1) {
            None => 0,
            Some(fewer) => {
                let last = &rounds[fewer];
                let before = |k: isize| at(last, fewer, k);
                let down = (diagonal < d).then(|| before(diagonal + 1));
                let right = (diagonal > -d).then(|| before(diagonal - 1) + 1);
                down.max(right).expect("one of them exists")
            }
        };
        while x > start {
            (x, y) = (x - 1, y - 1);
            pairs.push((x as usize, y as usize));
        }
        if let Some(fewer) = differences.checked_sub(1) {
            let last = &rounds[fewer];
            let down = (diagonal < d).then(|| at(last, fewer, diagonal + 1));
            match down == Some(x) {
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

    /// Without that, functions would share a body with instructions of neither, or seem to differ in more than they do.
    #[test]
    fn pairs_are_a_longest_common_subsequence() {
        arbtest::arbtest(|u| {
            let mut sequence = || -> arbtest::arbitrary::Result<Vec<u32>> {
                (0..u.int_in_range(0..=24)?).map(|_| u.int_in_range(0..=4)).collect()
            };
            let (a, b) = (sequence()?, sequence()?);
            let differences = a.len() + b.len() - 2 * longest(&a, &b);
            let pairs = common(&a, &b, differences).expect("no more than that");
            assert_eq!(pairs.len(), longest(&a, &b));
            assert!(pairs.iter().all(|&(x, y)| a[x] == b[y]));
            assert!(pairs.is_sorted_by(|before, after| before.0 < after.0 && before.1 < after.1));
            if let Some(fewer) = differences.checked_sub(1) {
                assert_eq!(common(&a, &b, fewer), None);
            }
            Ok(())
        });
    }
}
