//! The fit: weighted least squares with a prior.
//!
//! A function's error counts in inverse proportion to its size (the weights of a Poisson regression
//! with the identity as its link, found by iterating): so small functions matter as much as large
//! ones, and the sum over all functions that are fitted has no bias. Instructions take four bytes
//! each where the functions say nothing else.

use crate::sample::{Group, Sample};
use cranelift_size_model::Feature;
use nalgebra::{DMatrix, DVector};
use std::collections::HashMap;

/// Bytes of an instruction before anything is known of it.
const PRIOR: f64 = 4.0;

/// How often the weights of functions are computed anew.
const ROUNDS: usize = 6;

/// The bytes that each feature takes.
#[derive(Default)]
pub struct Fitted {
    /// By feature.
    pub weights: HashMap<Feature, f64>,
}

impl Fitted {
    /// The predicted bytes of a function.
    pub fn predict(&self, features: &[(Feature, f64)]) -> f64 {
        let bytes = features.iter().map(|(feature, times)| times * self.weight(feature));
        bytes.sum::<f64>().max(4.0)
    }

    fn weight(&self, feature: &Feature) -> f64 {
        self.weights.get(feature).copied().unwrap_or_else(|| prior(feature))
    }
}

/// The prior weight of a feature that no function has.
pub fn prior(feature: &Feature) -> f64 {
    match feature {
        Feature::Instruction(..) => PRIOR,
        Feature::Constant(..) | Feature::Quantity(_) => 0.0,
    }
}

/// How much evidence the prior is worth. Instructions and constants that always come together in
/// the units can only be distinguished by it; quantities can be distinguished without it, most of
/// all those of thunks.
fn strength(feature: &Feature) -> f64 {
    match feature {
        Feature::Instruction(..) | Feature::Constant(..) => 2.0,
        Feature::Quantity(_) => 0.02,
    }
}

/// Fits all functions of some groups.
pub fn fit<'a>(groups: impl Iterator<Item = &'a Group>) -> Fitted {
    let samples: Vec<&Sample> = groups.flat_map(|group| &group.samples).collect();
    let mut columns: HashMap<Feature, usize> = HashMap::new();
    for (feature, _) in samples.iter().flat_map(|sample| &sample.features) {
        let next = columns.len();
        columns.entry(*feature).or_insert(next);
    }
    let mut fitted = Fitted::default();
    for round in 0..ROUNDS {
        let weight = |sample: &Sample| match round {
            0 => 1.0 / sample.bytes,
            _ => 1.0 / fitted.predict(&sample.features),
        };
        let size = columns.len();
        let (mut normal, mut right) = (DMatrix::<f64>::zeros(size, size), DVector::zeros(size));
        for sample in &samples {
            let weight = weight(sample);
            let at: Vec<(usize, f64)> =
                sample.features.iter().map(|(feature, times)| (columns[feature], *times)).collect();
            let prior: f64 = sample.features.iter().map(|(f, times)| prior(f) * times).sum();
            for &(row, times) in &at {
                right[row] += weight * times * (sample.bytes - prior);
                for &(column, others) in &at {
                    normal[(row, column)] += weight * times * others;
                }
            }
        }
        for (feature, &at) in &columns {
            normal[(at, at)] += strength(feature);
        }
        let solution = normal.cholesky().expect("the prior makes it definite").solve(&right);
        fitted.weights = columns
            .iter()
            .map(|(feature, &column)| (*feature, prior(feature) + solution[column]))
            .collect();
    }
    fitted
}
