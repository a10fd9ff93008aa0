//! How wrong predictions are.

use crate::fit::Fitted;
use crate::sample::Group;
use std::fmt;

/// In percent of the bytes that functions take.
pub struct Errors {
    median: f64,
    percentile: f64,
    bias: f64,
}

/// The errors of a fit on some functions: the median and the 95th percentile of the error of one
/// function, and the error of the sum of all.
pub fn errors(fitted: &Fitted, group: &Group) -> Errors {
    let (mut errors, mut predicted, mut bytes) = (Vec::new(), 0.0, 0.0);
    for sample in &group.samples {
        let prediction = fitted.predict(&sample.features);
        errors.push(100.0 * (prediction - sample.bytes).abs() / sample.bytes);
        predicted += prediction;
        bytes += sample.bytes;
    }
    errors.sort_by(f64::total_cmp);
    let at = |percent: usize| errors.get(errors.len() * percent / 100).copied().unwrap_or(0.0);
    Errors { median: at(50), percentile: at(95), bias: 100.0 * (predicted - bytes) / bytes }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Errors { median, percentile, bias } = self;
        f.pad(&format!("{median:.1} {percentile:.1} {bias:+.1}"))
    }
}
