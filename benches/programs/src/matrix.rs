//! Loops over numbers: matrices and filters of several sizes and types.

use crate::random::{Rng, mix};
use alloc::vec::Vec;
use core::ops::{Add, Mul, Sub};

trait Element:
    Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    const ZERO: Self;
    fn of(n: u32) -> Self;
    fn digest(self) -> u64;
}

macro_rules! elements {
    ($($ty:ty),*) => {$(
        impl Element for $ty {
            const ZERO: $ty = 0 as $ty;
            fn of(n: u32) -> $ty {
                n as $ty
            }
            fn digest(self) -> u64 {
                self as i64 as u64
            }
        }
    )*};
}

elements!(f32, f64, i32);

struct Matrix<T, const N: usize>(Vec<[T; N]>);

impl<T: Element, const N: usize> Matrix<T, N> {
    fn random(rng: &mut Rng) -> Self {
        Matrix((0..N).map(|_| core::array::from_fn(|_| T::of(rng.below(4)))).collect())
    }

    fn times(&self, other: &Self) -> Self {
        let mut product = Vec::with_capacity(N);
        for i in 0..N {
            let mut row = [T::ZERO; N];
            for k in 0..N {
                #[expect(clippy::needless_range_loop, reason = "that is how it is written")]
                for j in 0..N {
                    row[j] = row[j] + self.0[i][k] * other.0[k][j];
                }
            }
            product.push(row);
        }
        Matrix(product)
    }

    fn transposed(&self) -> Self {
        Matrix((0..N).map(|i| core::array::from_fn(|j| self.0[j][i])).collect())
    }

    fn largest(&self) -> T {
        let all = self.0.iter().flatten();
        all.fold(T::ZERO, |largest, &x| if x > largest { x } else { largest })
    }

    fn trace(&self) -> T {
        (0..N).fold(T::ZERO, |sum, i| sum + self.0[i][i])
    }
}

/// Each element with its neighbours.
fn smooth<T: Element, const N: usize>(from: &[T], weights: [T; N]) -> Vec<T> {
    let windows = from.windows(N);
    windows
        .map(|window| window.iter().zip(weights).fold(T::ZERO, |sum, (&x, w)| sum + x * w))
        .collect()
}

fn exercise<T: Element, const N: usize>(n: u32, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut sum = 0;
    for _ in 0..n {
        let (a, b) = (Matrix::<T, N>::random(&mut rng), Matrix::<T, N>::random(&mut rng));
        let c = a.times(&b).times(&a.transposed());
        sum = mix(sum, c.largest().digest() ^ c.trace().digest());
        let row: Vec<T> = c.0.iter().flatten().copied().collect();
        let smoothed = smooth(&smooth(&row, [T::of(1), T::of(2), T::of(1)]), [T::of(1); 2]);
        sum = mix(sum, smoothed.iter().fold(T::ZERO, |sum, &x| sum - x).digest());
    }
    sum
}

pub fn run(n: u32) -> u64 {
    let mut sum = 0;
    for round in 0..n {
        let seed = u64::from(round);
        sum = mix(sum, exercise::<f32, 8>(3, seed));
        sum = mix(sum, exercise::<f64, 8>(3, seed));
        sum = mix(sum, exercise::<i32, 8>(3, seed));
        sum = mix(sum, exercise::<f64, 12>(1, seed));
    }
    sum
}
