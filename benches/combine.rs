//! How long it takes to combine the summaries of many units, and how much memory and how many bytes
//! of files.
//!
//! Summaries are generated, 1,000 functions a unit, half of them of shapes that others have, too,
//! each with about twelve cells. Each unit's summary is a file. Combined are all of these at once,
//! with a map and with a part for each unit; and in a tree of two levels, where files are merged
//! before, in equal numbers. Both give one map. Times are of one thread, in nanoseconds per
//! function, the median of `CLIF_MERGE_ROUNDS` (3) rounds; memory is the peak of what is allocated
//! during combining, in bytes per function. Up to `CLIF_MERGE_FUNCTIONS` functions (1,000,000).

use cranelift_mergefunc::Linkage;
use cranelift_mergefunc::units::fixed_hash;
use cranelift_mergefunc::units::{
    Cell, FileAt, FormatError, FunctionSummary, Group, Identity, Outputs, SetDecision, Summaries,
    UnitSummary, combine, merge_summaries,
};
use peak_alloc::PeakAlloc;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use testkit::measure::{self, Figures};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Functions of a unit.
const UNIT: u64 = 1_000;

/// Numbers that look random (SplitMix64).
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// The mangled name of a function, as long as those of Rust.
fn name(function: u64) -> String {
    const WORDS: [&str; 8] =
        ["core", "iter", "adapters", "collections", "map", "hash_table", "drop_in_place", "fmt"];
    let path = mixed(function % 977);
    let word = |at: u64| WORDS[(path >> (3 * at)) as usize % 8];
    let path: String = (0..4).map(word).map(|word| format!("{}{word}", word.len())).collect();
    format!("_ZN{path}8function17h{:016x}E", mixed(function ^ 7 << 50))
}

/// A shape, and a number that all functions of this shape have.
fn shape(function: u64, functions: u64) -> ([u8; 16], u64) {
    let random = mixed(function ^ 1 << 50);
    let number = if random.is_multiple_of(2) {
        function + functions
    } else {
        // Few shapes are those of very many functions.
        let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
        (uniform.powi(3) * (functions / 8) as f64) as u64
    };
    let halves = [mixed(number ^ 2 << 50), mixed(number ^ 3 << 50)];
    let mut shape = [0; 16];
    shape[..8].copy_from_slice(&halves[0].to_be_bytes());
    shape[8..].copy_from_slice(&halves[1].to_be_bytes());
    (shape, halves[0])
}

fn unit(number: u64, functions: u64, count: u64, cells: u64) -> UnitSummary {
    let name_of_unit = format!("crate-{number:06}");
    let mut summary =
        UnitSummary { unit: name_of_unit, settings: [1; 32], ..UnitSummary::default() };
    let mut numbers: HashMap<u64, u32> = HashMap::new();
    for function in number * count..(number + 1) * count {
        let (shape, common) = shape(function, functions);
        let cells = (0..1 + common % (2 * cells)).map(|column| {
            let kind = mixed(common ^ column << 40) % 20;
            let is_own = mixed(function ^ column << 40).is_multiple_of(6);
            let value = mixed(column << 40 ^ if is_own { function ^ 4 << 50 } else { common });
            let mut symbol = || {
                // Of the runtime, or of any unit.
                let of = if value.is_multiple_of(3) { value % 300 } else { value % functions };
                *numbers.entry(of).or_insert_with(|| {
                    summary.symbols.push(match of % 4 {
                        0 => Identity::Content(u128::from(mixed(of)).to_be_bytes()),
                        _ => Identity::Name(name(of)),
                    });
                    summary.symbols.len() as u32 - 1
                })
            };
            match kind {
                0..6 => Cell::Constant { ty: 0x77, bits: u128::from(value % 1000) },
                6..13 => Cell::Offset { ty: 0x77, bytes: (value % 256) as i32 },
                13..17 => Cell::Callee { symbol: symbol(), direct: false },
                17 => Cell::Function { symbol: symbol() },
                18 => Cell::Address { symbol: symbol(), offset: 0 },
                _ => Cell::Fixed(value),
            }
        });
        let cells = cells.collect();
        let linkage = if function.is_multiple_of(4) { Linkage::Local } else { Linkage::Hidden };
        let bytes = [(common % 400) as u32, (common % 300) as u32];
        let symbol = name(function);
        summary.functions.push(FunctionSummary {
            shape,
            symbol,
            linkage,
            hot: false,
            bytes,
            cells,
        });
    }
    summary
}

/// One set, for all functions of a group that have the same in every third column.
fn decide(group: &Group<'_>) -> Vec<SetDecision> {
    let columns = group.rows[0].cells.len() as u32;
    let parameters: Vec<Vec<u32>> =
        (0..columns).filter(|column| column % 3 > 0).map(|column| vec![column]).collect();
    let mut by_fixed: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (at, row) in group.rows.iter().enumerate() {
        let fixed = fixed_hash(row.cells.iter().map(|cell| cell.hash), &parameters);
        by_fixed.entry(fixed).or_default().push(at as u32);
    }
    let sets = by_fixed.into_iter().filter(|(_, rows)| rows.len() > 1);
    let set = |(fixed, rows)| SetDecision { parameters: parameters.clone(), fixed, rows, saved: 1 };
    sets.map(set).collect()
}

/// Has files open, and an action done on them.
fn with<T>(paths: &[PathBuf], action: impl FnOnce(&[Summaries<'_>]) -> T) -> T {
    let files: Vec<FileAt> =
        paths.iter().map(|path| FileAt::open(path).expect("it was written")).collect();
    let inputs: Vec<Summaries<'_>> =
        files.iter().map(|file| Summaries::open(file).expect("a summary")).collect();
    action(&inputs)
}

fn write(file: &mut BufWriter<File>, bytes: &[u8]) -> Result<(), FormatError> {
    Ok(file.write_all(bytes)?)
}

fn create(path: &Path) -> BufWriter<File> {
    BufWriter::new(File::create(path).expect("a directory that can be written"))
}

fn merge(paths: &[PathBuf], to: &Path) {
    let mut file = create(to);
    with(paths, |inputs| merge_summaries(inputs, &mut |bytes| write(&mut file, bytes)))
        .expect("different units");
}

/// How many functions are in groups.
fn combine_map(paths: &[PathBuf], to: &Path) -> u64 {
    let mut file = create(to);
    let mut map = |bytes: &[u8]| write(&mut file, bytes);
    let mut outputs = Outputs { map: Some(&mut map), parts: None };
    with(paths, |inputs| combine(inputs, &mut decide, &mut outputs))
        .expect("different units")
        .grouped
}

/// Writes parts, which are only counted. Returns their bytes.
fn combine_parts(paths: &[PathBuf]) -> u64 {
    let mut written = 0;
    let mut parts = |_: &str, bytes: &[u8]| {
        written += bytes.len() as u64;
        Ok(())
    };
    let mut outputs = Outputs { map: None, parts: Some(&mut parts) };
    with(paths, |inputs| combine(inputs, &mut decide, &mut outputs)).expect("different units");
    written
}

/// Nanoseconds and bytes at the peak, for each function.
fn timed<T>(functions: u64, action: impl FnOnce() -> T) -> (f64, f64, T) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let start = Instant::now();
    let result = action();
    let time = start.elapsed().as_nanos() as f64 / functions as f64;
    let memory = ALLOCATOR.peak_usage().saturating_sub(before) as f64 / functions as f64;
    (time, memory, result)
}

fn sizes(paths: &[PathBuf]) -> u64 {
    paths.iter().map(|path| fs::metadata(path).expect("it was written").len()).sum()
}

fn main() {
    let largest = u64::from(measure::number("CLIF_MERGE_FUNCTIONS", 1_000_000, 2_000));
    let rounds = measure::number("CLIF_MERGE_ROUNDS", 3, 1);
    let mut figures = Figures::new("combine");
    let alone = unit(0, 26_521.min(largest), 26_521.min(largest), 20);
    let cells: usize = alone.functions.iter().map(|function| function.cells.len()).sum();
    let names: usize = alone.functions.iter().map(|function| function.symbol.len()).sum();
    let each = |sum: usize| sum as f64 / alone.functions.len() as f64;
    let bytes = each(alone.to_bytes().len());
    figures.set("one unit", "bytes", bytes);
    println!(
        "one unit of {} functions, {:.1} cells and {:.0} bytes of name each: {bytes:.0} bytes per function",
        alone.functions.len(),
        each(cells),
        each(names),
    );
    drop(alone);
    println!("functions   combine    memory     parts    memory     merge   combine   (tree)");
    let mut first = None;
    let mut count = 10_000.min(largest);
    loop {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: String| directory.path().join(name);
        let mut paths: Vec<PathBuf> = Vec::new();
        for number in 0..count / UNIT {
            paths.push(path(format!("{number}.summary")));
            fs::write(&paths[number as usize], unit(number, count, UNIT, 12).to_bytes())
                .expect("a directory that can be written");
        }
        let at_once = paths.len().isqrt().max(1);
        let [map, tree_map] = ["map", "tree-map"].map(|name| path(name.into()));
        let mut all: Vec<[f64; 7]> = Vec::new();
        let (mut grouped, mut merged_size, mut parts_size) = (0, 0, 0);
        for _ in 0..rounds {
            let combined = timed(count, || combine_map(&paths, &map));
            let parts = timed(count, || combine_parts(&paths));
            let chunks = paths.chunks(at_once).enumerate();
            let (mut merge_time, mut merge_memory, mut merged) = (0.0, 0f64, Vec::new());
            for (at, chunk) in chunks {
                let to = path(format!("{at}.merged"));
                let (time, memory, ()) = timed(count, || merge(chunk, &to));
                merge_time += time;
                merge_memory = merge_memory.max(memory);
                merged.push(to);
            }
            let tree = timed(count, || combine_map(&merged, &tree_map));
            all.push([combined.0, combined.1, parts.0, parts.1, merge_time, tree.0, tree.1]);
            (grouped, merged_size, parts_size) = (combined.2, sizes(&merged), parts.2);
            let read = |path: &Path| fs::read(path).expect("it was written");
            assert!(read(&map) == read(&tree_map), "the tree makes no difference");
        }
        let median = |at: usize| measure::median(all.iter().map(|round| round[at]).collect());
        let [combined, memory, parts, parts_memory, merge, tree, tree_memory] =
            [0, 1, 2, 3, 4, 5, 6].map(median);
        let per = |bytes: u64| bytes as f64 / count as f64;
        let bytes = [per(sizes(&paths)), per(merged_size), per(sizes(&[map])), per(parts_size)];
        println!(
            "{count:>9} {combined:>9.0} {memory:>9.0} {parts:>9.0} {parts_memory:>9.0} {merge:>9.0} {tree:>9.0}   memory {tree_memory:.0}",
        );
        println!(
            "          {:.0}% of functions in groups; bytes of files per function: {:.0} in units, {:.0} merged by {at_once}, map {:.1}, parts {:.1}",
            100.0 * per(grouped),
            bytes[0],
            bytes[1],
            bytes[2],
            bytes[3],
        );
        let row = format!("{count}");
        let columns = [
            ("combine", combined),
            ("memory", memory),
            ("parts", parts),
            ("merge", merge),
            ("tree", tree),
            ("bytes", bytes[0]),
            ("bytes, merged", bytes[1]),
            ("bytes, map", bytes[2]),
        ];
        columns.into_iter().for_each(|(column, figure)| figures.set(&row, column, figure));
        match first {
            None => first = Some((count, combined)),
            Some((functions, before)) => {
                let ratio = combined / before;
                let exponent = 1.0 + ratio.ln() / (count as f64 / functions as f64).ln();
                figures.set(&row, "exponent", exponent);
                println!(
                    "          {ratio:.2} times the time per function of {functions}: exponent {exponent:.2}"
                );
            }
        }
        if count >= largest {
            break;
        }
        count = (count * 10).min(largest);
    }
    figures.write();
}
