//! The layout of a treemap: rectangles whose areas are proportional to numbers.
//!
//! Squarified (Bruls, Huizing and van Wijk, 2000): rows along the shorter side of what is left,
//! each as long as its rectangles become more like squares. It knows numbers and rectangles, and
//! draws nothing.

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    /// The left side.
    pub x: f64,
    /// The upper side.
    pub y: f64,
    /// How wide it is.
    pub width: f64,
    /// How high it is.
    pub height: f64,
}

impl Rect {
    /// Its area.
    pub fn area(&self) -> f64 {
        self.width * self.height
    }

    /// The first `share` (0 to 1) of the rectangle along its longer side, and the rest.
    fn split(self, share: f64) -> [Rect; 2] {
        let Rect { x, y, width, height } = self;
        if width >= height {
            let at = width * share;
            [Rect { width: at, ..self }, Rect { x: x + at, width: width - at, ..self }]
        } else {
            let at = height * share;
            [Rect { height: at, ..self }, Rect { y: y + at, height: height - at, ..self }]
        }
    }
}

/// A rectangle for each of `weights`, in their order, which together fill `bounds`. Weights are
/// positive; the rectangles are the more like squares if the largest come first.
pub fn squarified(weights: &[f64], bounds: Rect) -> Vec<Rect> {
    let mut rects = Vec::with_capacity(weights.len());
    let mut left = bounds;
    let mut rest = weights;
    while !rest.is_empty() {
        let whole: f64 = rest.iter().sum();
        let scale = left.area() / whole;
        let side = left.width.min(left.height);
        let mut count = 1;
        while count < rest.len()
            && worst(&rest[..count + 1], scale, side) <= worst(&rest[..count], scale, side)
        {
            count += 1;
        }
        let (row, others) = rest.split_at(count);
        let sum: f64 = row.iter().sum();
        let [mut strip, further] = left.split(sum / whole);
        // Along the shorter side of what was left, whatever is the longer one of the strip.
        let is_column = left.width >= left.height;
        for &weight in row {
            let share = weight / sum;
            let rect = match is_column {
                true => Rect { height: left.height * share, ..strip },
                false => Rect { width: left.width * share, ..strip },
            };
            rects.push(rect);
            match is_column {
                true => strip.y += rect.height,
                false => strip.x += rect.width,
            }
        }
        (left, rest) = (further, others);
    }
    rects
}

/// The largest ratio of sides in a row of rectangles along a side.
fn worst(row: &[f64], scale: f64, side: f64) -> f64 {
    let sum: f64 = row.iter().sum::<f64>() * scale;
    let thickness = sum / side;
    let ratio = |weight: &f64| {
        let length = weight * scale / thickness;
        (length / thickness).max(thickness / length)
    };
    row.iter().map(ratio).fold(0.0, f64::max)
}

/// A rectangle for each part, next to each other along the longer side of `bounds`. Parts of 0 have
/// empty ones.
pub fn sliced(parts: [f64; 3], bounds: Rect) -> [Rect; 3] {
    let whole: f64 = parts.iter().sum();
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let [first, rest] = bounds.split(share(parts[0], whole));
    // Along the same side as the first, whatever is the longer side of the rest.
    let at = share(parts[1], parts[1] + parts[2]);
    let Rect { x, y, width, height } = rest;
    let [second, third] = match bounds.width >= bounds.height {
        true => [
            Rect { width: width * at, ..rest },
            Rect { x: x + width * at, width: width * (1.0 - at), ..rest },
        ],
        false => [
            Rect { height: height * at, ..rest },
            Rect { y: y + height * at, height: height * (1.0 - at), ..rest },
        ],
    };
    [first, second, third]
}

#[cfg(test)]
mod tests {
    use super::{Rect, sliced, squarified};

    const BOUNDS: Rect = Rect { x: 10.0, y: 20.0, width: 600.0, height: 400.0 };

    fn weights(count: usize) -> Vec<f64> {
        let mut weights: Vec<f64> = (0..count).map(|at| ((at * 7919) % 1000 + 1) as f64).collect();
        weights.sort_by(|a, b| b.total_cmp(a));
        weights
    }

    fn overlap(a: &Rect, b: &Rect) -> f64 {
        let width = (a.x + a.width).min(b.x + b.width) - a.x.max(b.x);
        let height = (a.y + a.height).min(b.y + b.height) - a.y.max(b.y);
        width.max(0.0) * height.max(0.0)
    }

    fn is_inside(rect: &Rect) -> bool {
        let Rect { x, y, width, height } = BOUNDS;
        rect.x >= x - 1e-6
            && rect.y >= y - 1e-6
            && rect.x + rect.width <= x + width + 1e-6
            && rect.y + rect.height <= y + height + 1e-6
    }

    #[test]
    fn areas_are_proportional_and_rectangles_do_not_overlap() {
        for count in [1, 2, 3, 10, 200] {
            let weights = weights(count);
            let whole: f64 = weights.iter().sum();
            let rects = squarified(&weights, BOUNDS);
            assert_eq!(rects.len(), count);
            for (at, (rect, weight)) in rects.iter().zip(&weights).enumerate() {
                let expected = BOUNDS.area() * weight / whole;
                assert!((rect.area() - expected).abs() < 1e-6 * BOUNDS.area(), "{count} {at}");
                assert!(is_inside(rect), "{count} {at}: {rect:?}");
                let others = rects[..at].iter().map(|other| overlap(rect, other)).sum::<f64>();
                assert!(others < 1e-6, "{count} {at}: {others}");
            }
            assert_eq!(rects, squarified(&weights, BOUNDS));
        }
        assert!(squarified(&[], BOUNDS).is_empty());
    }

    #[test]
    fn equal_weights_become_squares() {
        let square = Rect { x: 0.0, y: 0.0, width: 100.0, height: 100.0 };
        for rect in squarified(&[1.0; 4], square) {
            assert!((rect.width - 50.0).abs() < 1e-9 && (rect.height - 50.0).abs() < 1e-9);
        }
    }

    #[test]
    fn parts_fill_their_rectangle() {
        for bounds in [BOUNDS, Rect { width: 10.0, ..BOUNDS }] {
            let parts = [1.0, 0.0, 3.0];
            let rects = sliced(parts, bounds);
            for (rect, part) in rects.iter().zip(parts) {
                assert!((rect.area() - bounds.area() * part / 4.0).abs() < 1e-6);
            }
            assert!(overlap(&rects[0], &rects[2]) < 1e-9);
        }
    }
}
