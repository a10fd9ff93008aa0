//! From text to functions.

use super::{Error, Expr, Function, Name, Operator, Place};

/// Parser and translation recurse over expressions; this keeps the recursion shallow.
const MAX_OPERANDS: usize = 500;

/// Longest first, where one begins as another one does.
const SYMBOLS: [&str; 16] =
    ["==", "!=", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ";"];

/// The operators, from those that bind least to those that bind most.
const LEVELS: [&[(&str, Operator)]; 3] = [
    &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<", Operator::Less),
        ("<=", Operator::LessOrEqual),
        (">", Operator::Greater),
        (">=", Operator::GreaterOrEqual),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
];

const KEYWORDS: [&str; 4] = ["fn", "if", "then", "else"];

/// The functions and expressions of a source whose first line has the number `first_line`.
pub fn parse(source: &str, first_line: usize) -> Result<Vec<Function>, Error> {
    let tokens = tokens(source, first_line)?;
    let mut parser =
        Parser { tokens, at: 0, params: Vec::new(), calls: Vec::new(), operands_left: 0 };
    let mut functions = Vec::new();
    while !parser.peek().text.is_empty() {
        functions.push(parser.function()?);
        let (last, next) = (parser.tokens[parser.at - 1], parser.peek());
        let ends_here = next.place.line > last.place.line || ["", "fn"].contains(&next.text);
        if !parser.skip(";") && !ends_here {
            return Err(parser.unexpected("`;`"));
        }
    }
    Ok(functions)
}

/// A number, a word or a symbol; at the end, nothing.
#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    place: Place,
}

fn tokens(source: &str, first_line: usize) -> Result<Vec<Token<'_>>, Error> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut line_number = first_line;
    for (line, number) in source.lines().zip(first_line..) {
        let code = line.split('#').next().unwrap_or_default();
        let mut rest = code.trim_start();
        while let Some(first) = rest.chars().next() {
            let before = &code[..code.len() - rest.len()];
            let place = Place { line: number, column: before.chars().count() + 1 };
            let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
            let length = match symbol {
                Some(symbol) => symbol.len(),
                None if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                None => return Err(Error::new(place, format!("unknown character `{first}`"))),
            };
            let (text, after) = rest.split_at(length);
            tokens.push(Token { text, place });
            rest = after.trim_start();
        }
        line_number = number;
    }
    let column = source.lines().last().map_or(0, |line| line.chars().count()) + 1;
    tokens.push(Token { text: "", place: Place { line: line_number, column } });
    Ok(tokens)
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Of the current function: its parameters, its callees, and how many operands it may have.
    params: Vec<&'a str>,
    calls: Vec<(Name, usize)>,
    operands_left: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at]
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        // The end stays where it is.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn skip(&mut self, text: &str) -> bool {
        let found = self.peek().text == text;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), Error> {
        match self.skip(text) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{text}`"))),
        }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let Token { text, place } = self.peek();
        let found = if text.is_empty() { "the end".to_owned() } else { format!("`{text}`") };
        Error::new(place, format!("{wanted} expected, but here is {found}"))
    }

    fn name(&mut self) -> Result<Token<'a>, Error> {
        let Token { text, place: _ } = self.peek();
        let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        match is_name && !KEYWORDS.contains(&text) {
            true => Ok(self.next()),
            false => Err(self.unexpected("a name")),
        }
    }

    fn function(&mut self) -> Result<Function, Error> {
        self.operands_left = MAX_OPERANDS;
        self.params.clear();
        let place = self.peek().place;
        let is_expression = !self.skip("fn");
        let name = match is_expression {
            true => Name { text: format!("line${}${}", place.line, place.column), place },
            false => {
                let Token { text, place } = self.name()?;
                Name { text: text.to_owned(), place }
            }
        };
        if !is_expression {
            self.expect("(")?;
            while !self.skip(")") {
                let Token { text, place } = self.name()?;
                if self.params.contains(&text) {
                    return Err(Error::new(place, format!("there are two parameters `{text}`")));
                }
                self.params.push(text);
                if self.peek().text != ")" {
                    self.expect(",")?;
                }
            }
            self.expect("=")?;
        }
        let body = self.binary(0)?;
        let calls = std::mem::take(&mut self.calls);
        Ok(Function { name, params: self.params.len(), body, calls, is_expression })
    }

    /// An expression of operators that bind at least as much as those of `level`.
    fn binary(&mut self, level: usize) -> Result<Expr, Error> {
        let Some(operators) = LEVELS.get(level) else {
            return self.operand();
        };
        let mut left = self.binary(level + 1)?;
        loop {
            let text = self.peek().text;
            let Some((_, operator)) = operators.iter().find(|(symbol, _)| *symbol == text) else {
                return Ok(left);
            };
            self.next();
            let right = self.binary(level + 1)?;
            left = Expr::Binary(*operator, Box::new(left), Box::new(right));
        }
    }

    fn operand(&mut self) -> Result<Expr, Error> {
        let Token { text, place } = self.peek();
        let too_long = || Error::new(place, "this expression is too long");
        self.operands_left = self.operands_left.checked_sub(1).ok_or_else(too_long)?;
        if self.skip("(") {
            let inner = self.binary(0)?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.skip("-") {
            return Ok(Expr::Negate(Box::new(self.operand()?)));
        }
        if self.skip("if") {
            let condition = Box::new(self.binary(0)?);
            self.expect("then")?;
            let yes = Box::new(self.binary(0)?);
            self.expect("else")?;
            let no = Box::new(self.binary(0)?);
            return Ok(Expr::If { condition, yes, no });
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            self.next();
            let number = text.parse();
            return number.map(Expr::Number).map_err(|error| {
                Error::new(place, format!("`{text}` is no 64-bit number: {error}"))
            });
        }
        if text.is_empty() || SYMBOLS.contains(&text) || KEYWORDS.contains(&text) {
            return Err(self.unexpected("a value"));
        }
        self.next();
        if self.peek().text == "(" {
            return self.call(Name { text: text.to_owned(), place });
        }
        let param = self.params.iter().position(|param| *param == text);
        param.map(Expr::Param).ok_or_else(|| Error::new(place, format!("what is `{text}`?")))
    }

    fn call(&mut self, name: Name) -> Result<Expr, Error> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.skip(")") {
            arguments.push(self.binary(0)?);
            if self.peek().text != ")" {
                self.expect(",")?;
            }
        }
        self.calls.push((name.clone(), arguments.len()));
        Ok(Expr::Call(name, arguments))
    }
}
