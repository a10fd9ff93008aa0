//! Calls through tables: trait objects, boxed closures, handlers of events.

use crate::random::{Rng, mix};
use alloc::boxed::Box;
use alloc::vec::Vec;

trait Shape {
    fn area(&self) -> f64;
    fn grow(&mut self, by: f64);
    fn corners(&self) -> u32;
    fn boxed(&self) -> Box<dyn Shape>;
}

macro_rules! shapes {
    ($($name:ident $fields:tt: $factor:expr, $corners:expr;)*) => {$(
        #[derive(Clone)]
        struct $name {
            a: f64,
            b: f64,
        }

        impl Shape for $name {
            fn area(&self) -> f64 {
                self.a * self.b * $factor
            }
            fn grow(&mut self, by: f64) {
                self.a += by * $factor;
                self.b += by;
            }
            fn corners(&self) -> u32 {
                $corners
            }
            fn boxed(&self) -> Box<dyn Shape> {
                Box::new(self.clone())
            }
        }
    )*};
}

shapes! {
    Rectangle(): 1.0, 4;
    Triangle(): 0.5, 3;
    Ellipse(): core::f64::consts::PI, 0;
    Diamond(): 0.5, 4;
    Hexagon(): 2.598, 6;
}

fn shape(rng: &mut Rng) -> Box<dyn Shape> {
    let (a, b) = (f64::from(rng.below(9) + 1), f64::from(rng.below(9) + 1));
    match rng.below(5) {
        0 => Box::new(Rectangle { a, b }),
        1 => Box::new(Triangle { a, b }),
        2 => Box::new(Ellipse { a, b }),
        3 => Box::new(Diamond { a, b }),
        _ => Box::new(Hexagon { a, b }),
    }
}

fn shapes(n: u32, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut shapes: Vec<_> = (0..40).map(|_| shape(&mut rng)).collect();
    let mut sum = 0;
    for round in 0..n {
        for shape in &mut shapes {
            shape.grow(0.125);
        }
        let area: f64 = shapes.iter().map(|shape| shape.area()).sum();
        let corners: u32 = shapes.iter().map(|shape| shape.corners()).sum();
        sum = mix(sum, area.to_bits() ^ u64::from(corners));
        let at = round as usize % shapes.len();
        let copy = shapes[at].boxed();
        shapes.push(copy);
        shapes.swap_remove(at);
    }
    sum
}

type Handler = Box<dyn Fn(u64) -> u64>;

/// Closures that differ in one constant, or in what they captured.
fn handlers(rng: &mut Rng) -> Vec<Handler> {
    let k = rng.next();
    let bytes: Vec<u8> = (0..16).map(|_| rng.next() as u8).collect();
    let handlers: [Handler; 8] = [
        Box::new(move |x| x.wrapping_mul(k | 1).rotate_left(7) ^ x >> 3),
        Box::new(move |x| x.wrapping_mul(k | 3).rotate_left(11) ^ x >> 5),
        Box::new(move |x| x.wrapping_mul(k | 5).rotate_left(17) ^ x >> 9),
        Box::new(|x| (x ^ 0x1234).wrapping_add(x << 3)),
        Box::new(|x| (x ^ 0x4321).wrapping_add(x << 5)),
        Box::new(|x| (x ^ 0xfedc).wrapping_add(x << 7)),
        Box::new(move |x| x.wrapping_add(u64::from(bytes[x as usize % 16]))),
        Box::new(|x| x / 3),
    ];
    handlers.into()
}

fn events(n: u32, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let handlers = handlers(&mut rng);
    let mut state = seed;
    for _ in 0..n {
        for handler in &handlers {
            state = handler(state);
        }
        let one = &handlers[rng.below(8) as usize];
        state = mix(state, one(state));
    }
    state
}

/// A chain of adaptors that are known only at run time.
fn chained(n: u32, seed: u64) -> u64 {
    let mut all: Box<dyn Iterator<Item = u64>> = Box::new(0..u64::from(n));
    for step in 0..5 {
        let k = seed ^ step;
        all = match k % 3 {
            0 => Box::new(all.map(move |x| x.wrapping_mul(k + 3))),
            1 => Box::new(all.filter(move |x| x % (k % 5 + 2) != 0)),
            _ => Box::new(all.step_by(k as usize % 2 + 1)),
        };
    }
    all.fold(0, mix)
}

pub fn run(n: u32) -> u64 {
    let mut sum = 0;
    for round in 0..n {
        let seed = u64::from(round);
        sum = mix(sum, shapes(20, seed));
        sum = mix(sum, events(100, seed));
        sum = mix(sum, chained(500, seed));
    }
    sum
}
