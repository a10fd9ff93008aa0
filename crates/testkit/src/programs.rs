//! Real programs, as Wasmtime translated them: `benches/programs/README.md` says what their units
//! hold.
//!
//! This reads a unit, and makes the parts of a native executable of it: the functions as a unit
//! that can be cut and linked, the addresses of those in the table as a unit of its own, and a host
//! in C. The bench `similar` runs the same units in a JIT, with a host of its own.
//!
//! The layout of the context is that of Wasmtime 48 for a module with one memory, one table and one
//! global that matters. There are no checks that it is: a program of another shape computes
//! nonsense. It does *not* compile or link: the tests of `clif-merge` do.

use std::fmt::Write as _;
use std::path::Path;

/// A program of a unit.
pub struct Program {
    pub name: String,
    /// The number of its function.
    pub function: u32,
    /// The result that Wasmtime computed, called with 1.
    pub checksum: u64,
}

/// A function in the table.
pub struct Element {
    /// Where it is in the table.
    pub index: usize,
    /// The number of the function.
    pub function: u32,
    /// The number of its type.
    pub ty: u32,
}

/// The start of the programs of a unit, as `benches/programs/translate` wrote it.
#[derive(Default)]
pub struct Image {
    pub programs: Vec<Program>,
    pub elements: Vec<Element>,
    pub pages: usize,
    pub stack_pointer: u32,
    /// Addresses in memory and the bytes that are there; all others are 0.
    pub data: Vec<(usize, Vec<u8>)>,
    /// The size of the table.
    pub table: usize,
}

/// The bytes of a page of memory.
pub const PAGE: usize = 65536;

/// A memory can be addressed with 32 bits and an offset without any check, so that many bytes must
/// be reserved.
pub const RESERVED: usize = (4 << 30) + (64 << 20);

/// The layout of `VMContext`, in words.
pub mod context {
    pub const STORE: usize = 1;
    pub const BUILTINS: usize = 2;
    pub const TYPES: usize = 5;
    pub const MEMORY: usize = 7;
    pub const MEMORY_LEN: usize = 8;
    pub const TABLE: usize = 9;
    pub const TABLE_LEN: usize = 10;
    pub const STACK_POINTER: usize = 12;
}

impl Image {
    /// Reads the text of an image.
    ///
    /// # Panics
    ///
    /// At anything that `translate` does not write.
    pub fn parse(text: &str) -> Image {
        let mut image = Image::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u32>().expect("a number");
            match words[0] {
                "program" => image.programs.push(Program {
                    name: words[1].to_owned(),
                    function: number(2),
                    checksum: words[3].parse().expect("a checksum"),
                }),
                "pages" => image.pages = number(1) as usize,
                "stack" => image.stack_pointer = number(1),
                "data" => image.data.push((number(1) as usize, bytes(words[2]))),
                "table" => image.table = number(1) as usize,
                "element" => image.elements.push(Element {
                    index: number(1) as usize,
                    function: number(2),
                    ty: number(3),
                }),
                other => panic!("{other} in an image"),
            }
        }
        image
    }

    /// The image of a unit, a directory.
    pub fn read(unit: &Path) -> Image {
        let text = std::fs::read_to_string(unit.join("image"));
        Image::parse(&text.expect("an image for each unit"))
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// The texts of the functions of a unit, a directory, sorted by file.
pub fn texts(unit: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(unit).expect("a directory of texts");
    let paths = entries.map(|entry| entry.expect("readable directory").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "clif"))
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("readable")).collect()
}

/// The function that a host calls to run a program, as CLIF: `name` calls `function`, both with
/// their sigils.
pub fn entry(name: &str, function: &str) -> String {
    format!(
        "function {name}(i64 vmctx, i32) -> i64 system_v {{
    sig0 = (i64 vmctx, i64, i32) -> i64 tail
    fn0 = colocated {function} sig0
block0(v0: i64, v1: i32):
    v2 = call fn0(v0, v0, v1)
    return v2
}}
"
    )
}

/// The functions of a unit in one text for native objects, with an exported function `%name` for
/// each program. Those in the table have symbols that the [table](elements) can refer to.
pub fn linkable(unit: &Path, image: &Image) -> String {
    let mut linkable = String::new();
    let in_table = |line: &str| {
        let function = line.strip_prefix("function u0:").and_then(|line| line.split('(').next());
        let function = function.and_then(|number| number.parse::<u32>().ok());
        image.elements.iter().any(|element| Some(element.function) == function)
    };
    for text in texts(unit) {
        for line in text.lines() {
            if in_table(line) {
                linkable += ";@ linkage=hidden addresses=insignificant address-taken\n";
            }
            linkable += line;
            linkable.push('\n');
        }
    }
    for Program { name, function, .. } in &image.programs {
        linkable += ";@ linkage=export addresses=insignificant\n";
        linkable += &entry(&format!("%{name}"), &format!("u0:{function}"));
    }
    linkable
}

/// A unit of one data object, `%elements`: the address of the function of each element, in the
/// order of the image.
pub fn elements(image: &Image) -> String {
    let mut text = ";@ data %elements linkage=hidden align=8 =".to_owned();
    for element in &image.elements {
        let _ = write!(text, " u0:{}", element.function);
    }
    text.push('\n');
    text
}

/// A host, in C. It runs each program with each amount of work, in the memory that the image has,
/// and prints a line: the name, the amount, the result, and a digest of the memory and of the stack
/// pointer afterwards.
pub fn host(image: &Image, amounts: &[u32]) -> String {
    let Image { programs, elements, pages, stack_pointer, data, table } = image;
    let mut text = String::from("// The contents of the image, and the layout of the context.\n");
    for (name, value) in [
        ("STORE", context::STORE),
        ("BUILTINS", context::BUILTINS),
        ("TYPES", context::TYPES),
        ("MEMORY", context::MEMORY),
        ("MEMORY_LEN", context::MEMORY_LEN),
        ("TABLE", context::TABLE),
        ("TABLE_LEN", context::TABLE_LEN),
        ("STACK_POINTER", context::STACK_POINTER),
        ("RESERVED_BYTES", RESERVED),
        ("MEMORY_BYTES", pages * PAGE),
        ("TABLE_SIZE", *table),
        ("STACK_START", *stack_pointer as usize),
    ] {
        let _ = writeln!(text, "#define {name} {value}UL");
    }
    let mut list = |begin: &str, items: &mut dyn Iterator<Item = String>| {
        let _ = writeln!(text, "{begin} = {{");
        for item in items {
            let _ = writeln!(text, "{item},");
        }
        text += "};\n";
    };
    let item = |Element { index, ty, .. }: &Element| format!("{{{index}, {ty}}}");
    list("static const struct { unsigned index, type; } element[]", &mut elements.iter().map(item));
    let item = |(at, bytes): &(usize, Vec<u8>)| format!("{{{at}, {}}}", bytes.len());
    list("static const struct { unsigned at, len; } data[]", &mut data.iter().map(item));
    let item = |(_, bytes): &(usize, Vec<u8>)| {
        let bytes: Vec<String> = bytes.iter().map(u8::to_string).collect();
        bytes.join(",")
    };
    list("static const unsigned char data_bytes[]", &mut data.iter().map(item));
    list("static const unsigned amounts[]", &mut amounts.iter().map(u32::to_string));
    let names = || programs.iter().map(|program| &*program.name);
    for name in names() {
        let _ = writeln!(text, "unsigned long {name}(unsigned long *, unsigned);");
    }
    text += "static const struct {
    const char *name;
    unsigned long (*run)(unsigned long *, unsigned);
} program[] = {\n";
    for name in names() {
        let _ = writeln!(text, "    {{\"{name}\", {name}}},");
    }
    text += "};\n";
    text + include_str!("programs/host.c")
}
