//! A tiny language for the examples `jit` and `aot`: functions of 64-bit integers.
//!
//! ```text
//! fn fib(n) = if n < 2 then n else fib(n - 1) + fib(n - 2)
//! fib(20) * 2;                                              # an expression is evaluated
//! ```
//!
//! There are `+ - * / %`, comparisons (1 or 0), `if … then … else …`, calls, and comments after
//! `#`. Arithmetic wraps around; what is divided by zero is zero, and is its own remainder.
//! Functions may be used before they are defined in the same source. `;` ends a function or an
//! expression, and so does the end of a line where it can end. An expression is a function without
//! parameters to which the source gives no name.
//!
//! `parse` makes functions of text, `translate` makes Cranelift IR of functions and defines them in
//! any `cranelift_module::Module`. Nothing in here depends on merging.

mod parse;
mod translate;

pub use parse::parse;
pub use translate::Compiler;

use std::fmt;

/// A function, or an expression that is to be evaluated.
pub struct Function {
    pub name: Name,
    /// How many parameters it takes.
    pub params: usize,
    pub body: Expr,
    /// Its callees, with the numbers of arguments.
    pub calls: Vec<(Name, usize)>,
    /// Whether it is an expression. Then its name is one that no function can have.
    pub is_expression: bool,
}

/// A name, and where the source says it.
#[derive(Clone)]
pub struct Name {
    pub text: String,
    pub place: Place,
}

/// A place in the source. Both count from 1.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

pub enum Expr {
    Number(i64),
    /// The value of a parameter.
    Param(usize),
    Negate(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    If {
        condition: Box<Expr>,
        yes: Box<Expr>,
        no: Box<Expr>,
    },
    Call(Name, Vec<Expr>),
}

#[derive(Clone, Copy)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An error in a source, and where it is.
#[derive(Debug)]
pub struct Error {
    pub place: Place,
    pub message: String,
}

impl Error {
    pub fn new(place: Place, message: impl Into<String>) -> Self {
        Error { place, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { place: Place { line, column }, message } = self;
        write!(f, "{line}:{column}: {message}")
    }
}

impl std::error::Error for Error {}
