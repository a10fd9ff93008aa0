//! Two interpreters, generic over the numbers that they compute with: one walks a tree, one runs a
//! stack machine.

use crate::random::{Rng, mix};
use alloc::boxed::Box;
use alloc::vec::Vec;

trait Number: Copy {
    fn of(n: i32) -> Self;
    fn bits(self) -> u64;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn less(self, other: Self) -> bool;
}

macro_rules! numbers {
    ($($ty:ty: $add:expr, $sub:expr, $mul:expr, $bits:expr;)*) => {$(
        impl Number for $ty {
            fn of(n: i32) -> $ty {
                n as $ty
            }
            fn bits(self) -> u64 {
                $bits(self)
            }
            fn add(self, other: $ty) -> $ty {
                $add(self, other)
            }
            fn sub(self, other: $ty) -> $ty {
                $sub(self, other)
            }
            fn mul(self, other: $ty) -> $ty {
                $mul(self, other)
            }
            fn less(self, other: $ty) -> bool {
                self < other
            }
        }
    )*};
}

numbers! {
    i32: i32::wrapping_add, i32::wrapping_sub, i32::wrapping_mul, |x| x as u64;
    i64: i64::wrapping_add, i64::wrapping_sub, i64::wrapping_mul, |x| x as u64;
    f64: |a, b| a + b, |a, b| a - b, |a: f64, b: f64| a * b * 1e-3, f64::to_bits;
    f32: |a, b| a + b, |a, b| a - b, |a: f32, b: f32| a * b * 1e-3, |x: f32| u64::from(x.to_bits());
}

enum Expr<T> {
    Const(T),
    Var(usize),
    Add(Box<Expr<T>>, Box<Expr<T>>),
    Sub(Box<Expr<T>>, Box<Expr<T>>),
    Mul(Box<Expr<T>>, Box<Expr<T>>),
    If(Box<Expr<T>>, Box<Expr<T>>, Box<Expr<T>>),
}

fn random<T: Number>(rng: &mut Rng, depth: u32) -> Expr<T> {
    if depth == 0 {
        return match rng.below(2) {
            0 => Expr::Const(T::of(rng.below(100) as i32)),
            _ => Expr::Var(rng.below(4) as usize),
        };
    }
    let (a, b) = (Box::new(random(rng, depth - 1)), Box::new(random(rng, depth - 1)));
    match rng.below(4) {
        0 => Expr::Add(a, b),
        1 => Expr::Sub(a, b),
        2 => Expr::Mul(a, b),
        _ => Expr::If(a, b, Box::new(random(rng, depth - 1))),
    }
}

fn walk<T: Number>(expr: &Expr<T>, vars: &[T; 4]) -> T {
    match expr {
        Expr::Const(number) => *number,
        Expr::Var(at) => vars[*at],
        Expr::Add(a, b) => walk(a, vars).add(walk(b, vars)),
        Expr::Sub(a, b) => walk(a, vars).sub(walk(b, vars)),
        Expr::Mul(a, b) => walk(a, vars).mul(walk(b, vars)),
        Expr::If(a, b, c) => match walk(a, vars).less(T::of(50)) {
            true => walk(b, vars),
            false => walk(c, vars),
        },
    }
}

#[derive(Clone, Copy)]
enum Op<T> {
    Push(T),
    Load(usize),
    Add,
    Sub,
    Mul,
    /// Skips this number of operations if the top is not less than 50.
    Unless(usize),
    Skip(usize),
}

fn compile<T: Number>(expr: &Expr<T>, code: &mut Vec<Op<T>>) {
    match expr {
        Expr::Const(number) => code.push(Op::Push(*number)),
        Expr::Var(at) => code.push(Op::Load(*at)),
        Expr::Add(a, b) | Expr::Sub(a, b) | Expr::Mul(a, b) => {
            compile(a, code);
            compile(b, code);
            code.push(match expr {
                Expr::Add(..) => Op::Add,
                Expr::Sub(..) => Op::Sub,
                _ => Op::Mul,
            });
        }
        Expr::If(a, b, c) => {
            compile(a, code);
            let branch = code.len();
            code.push(Op::Unless(0));
            compile(b, code);
            let jump = code.len();
            code.push(Op::Skip(0));
            compile(c, code);
            code[branch] = Op::Unless(jump - branch);
            let end = code.len();
            code[jump] = Op::Skip(end - jump - 1);
        }
    }
}

fn binary<T: Number>(stack: &mut Vec<T>, op: impl Fn(T, T) -> T) {
    if let (Some(b), Some(a)) = (stack.pop(), stack.pop()) {
        stack.push(op(a, b));
    }
}

fn execute<T: Number>(code: &[Op<T>], vars: &[T; 4], stack: &mut Vec<T>) -> T {
    let mut at = 0;
    while let Some(op) = code.get(at) {
        at += 1;
        match *op {
            Op::Push(number) => stack.push(number),
            Op::Load(var) => stack.push(vars[var]),
            Op::Add => binary(stack, T::add),
            Op::Sub => binary(stack, T::sub),
            Op::Mul => binary(stack, T::mul),
            Op::Unless(skip) => {
                if !stack.pop().is_some_and(|top| top.less(T::of(50))) {
                    at += skip;
                }
            }
            Op::Skip(skip) => at += skip,
        }
    }
    stack.pop().unwrap_or(T::of(0))
}

fn exercise<T: Number>(n: u32, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let expr = random::<T>(&mut rng, 6);
    let mut code = Vec::new();
    compile(&expr, &mut code);
    let mut stack = Vec::new();
    let mut sum = 0;
    for _ in 0..n {
        let vars = [0; 4].map(|_: u32| T::of(rng.below(100) as i32));
        let walked = walk(&expr, &vars).bits();
        let executed = execute(&code, &vars, &mut stack).bits();
        sum = mix(sum, if walked == executed { walked } else { 0 });
    }
    sum
}

pub fn run(n: u32) -> u64 {
    let mut sum = 0;
    for round in 0..n {
        let seed = u64::from(round);
        sum = mix(sum, exercise::<i32>(20, seed));
        sum = mix(sum, exercise::<i64>(20, seed));
        sum = mix(sum, exercise::<f64>(20, seed));
        sum = mix(sum, exercise::<f32>(20, seed));
    }
    sum
}
