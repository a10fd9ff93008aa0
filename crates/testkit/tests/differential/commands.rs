//! Run commands of CLIF files, and their expected results: each function of a file has a duplicate
//! in another form, so that every command calls a body that is shared.
//!
//! `CLIF_MERGE_RUNTESTS` is the directory of Cranelift's own run tests
//! (`cranelift/filetests/filetests/runtests` of its repository), of the version that is linked:
//! later ones show what is wrong in it. Without it the filetests of this repository are run, and
//! the test says so. Files that are left out are counted by reason.

use cranelift_codegen::data_value::DataValue;
use cranelift_codegen::ir::{
    ExternalName, Function, GlobalValueData, Signature, UserExternalName, UserFuncName,
};
use cranelift_mergefunc::{Attributes, Compare, Options, Target, cranelift_codegen};
use cranelift_reader::{ParseOptions, RunCommand, parse_run_command, parse_test};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use testkit::differential::{
    Argument, Comparison, Effort, End, Invocation, Outcome, SOME_ADDRESS, Tally, address_in_memory,
};
use testkit::host::{Batch, Cpu, Level, interpreter, run_at};
use testkit::permute::{Colocated, permuted};
use testkit::program::{Entry, MEMORY_BYTES, Parts, Program};
use testkit::support::{any_isa, clif_files, free};
use testkit::unit::{Member, Unit};

/// The functions of a file with their duplicates, and the commands.
pub struct File {
    pub path: PathBuf,
    pub functions: Vec<Member>,
    /// Each with the number of its function.
    pub commands: Vec<(usize, RunCommand)>,
}

/// The namespace of the duplicates.
const DUPLICATES: u32 = 100;

/// The files that have something to run on a target, and how many others there are, by reason.
pub fn files(target: &str) -> (Vec<File>, BTreeMap<&'static str, usize>) {
    match std::env::var_os("CLIF_MERGE_RUNTESTS") {
        Some(directory) => files_in(Path::new(&directory), target),
        None => {
            eprintln!("CLIF_MERGE_RUNTESTS is not set: the filetests of this repository are run");
            files_in(&testkit::root().join("filetests"), target)
        }
    }
}

/// The files of one directory, and counts of the files that are left out.
fn files_in(directory: &Path, target: &str) -> (Vec<File>, BTreeMap<&'static str, usize>) {
    let (mut files, mut left_out) = (Vec::new(), BTreeMap::new());
    for path in clif_files(directory) {
        match read(path, target) {
            Ok(file) => files.push(file),
            Err(reason) => *left_out.entry(reason).or_default() += 1,
        }
    }
    (files, left_out)
}

/// A file, or why it has nothing to run.
fn read(path: PathBuf, target: &str) -> Result<File, &'static str> {
    let text = std::fs::read_to_string(&path).expect("a text");
    let wanted = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some("target") && words.next() == Some(target)
    };
    if !text.lines().any(wanted) {
        return Err("is for other targets");
    }
    // Without the header, which may name targets that this was not built with.
    let functions = text.split_inclusive('\n').skip_while(|line| !line.starts_with("function"));
    let functions: String = functions.collect();
    let parsed = parse_test(&functions, ParseOptions::default());
    let parsed = parsed.map_err(|_| "is not valid")?.functions;
    let mut commands = Vec::new();
    for (at, (func, details)) in parsed.iter().enumerate() {
        for comment in &details.comments {
            let text = comment.text.trim_start_matches(';').trim();
            let command = parse_run_command(text, &func.signature);
            let command = command.map_err(|_| "has a command that does not fit")?;
            commands.extend(command.map(|run| (at, run)));
        }
    }
    if commands.is_empty() {
        return Err("has no run commands");
    }
    let names = parsed.iter().enumerate().map(|(at, (func, _))| (func.name.clone(), at as u32));
    let names: HashMap<UserFuncName, u32> = names.collect();
    let mut functions = Vec::new();
    for (at, (mut func, _)) in parsed.into_iter().enumerate() {
        rename(&mut func, &names).ok_or("refers to what it does not define")?;
        func.name = UserFuncName::user(0, at as u32);
        // Some functions compare addresses.
        functions.push(Member { attributes: Attributes::default(), body: func });
    }
    for at in 0..functions.len() {
        let mut body = permuted(&functions[at].body, Colocated::Keep, at as u64);
        body.name = UserFuncName::user(DUPLICATES, at as u32);
        functions.push(Member { attributes: free(), body });
    }
    Ok(File { path, functions, commands })
}

/// Renames all symbols that a function refers to to symbols of a program. `None` if the file does
/// not define one of them.
fn rename(func: &mut Function, names: &HashMap<UserFuncName, u32>) -> Option<()> {
    let externs = func.dfg.ext_funcs.values().map(|callee| callee.name.clone());
    let symbols = func.global_values.values().filter_map(|global| match global {
        GlobalValueData::Symbol { name, .. } => Some(name.clone()),
        GlobalValueData::VMContext
        | GlobalValueData::Load { .. }
        | GlobalValueData::IAddImm { .. }
        | GlobalValueData::DynScaleTargetConst { .. } => None,
    });
    let mut new = HashMap::new();
    for name in externs.chain(symbols).collect::<Vec<_>>() {
        let function = match &name {
            ExternalName::User(name) => {
                UserFuncName::User(func.params.user_named_funcs()[*name].clone())
            }
            ExternalName::TestCase(name) => UserFuncName::Testcase(name.clone()),
            ExternalName::LibCall(_) | ExternalName::KnownSymbol(_) => return None,
        };
        let symbol = UserExternalName::new(0, *names.get(&function)?);
        new.insert(name, ExternalName::User(func.params.ensure_user_func_name(symbol)));
    }
    for callee in func.dfg.ext_funcs.values_mut() {
        callee.name = new[&callee.name].clone();
    }
    for global in func.global_values.values_mut() {
        if let GlobalValueData::Symbol { name, .. } = global {
            *name = new[&*name].clone();
        }
    }
    Some(())
}

/// Both sides of a file: each command calls its function and the duplicate. `None` if nothing
/// merges, or an argument cannot be passed.
fn comparison(file: &File, target: Target, is_canonical: bool) -> Option<Comparison> {
    // Duplicates have other numbers of values.
    let compare = Compare { every_function: true, ..Compare::default() };
    let options = Options { target, compare, ..Options::default() };
    let effort = Effort { inputs: 1, fuel: 0 };
    let mut comparison = match is_canonical {
        false => {
            let unit = Parts { functions: &file.functions, data: &[], options: &options };
            Comparison::new(&unit, 0, effort)?
        }
        true => {
            let mut options = Options::default();
            (options.target, options.compare) = (target, compare);
            let unit = Unit { functions: file.functions.clone(), data: Vec::new(), options };
            Comparison::canonical(&unit, any_isa(), 0, effort)?
        }
    };
    let half = file.functions.len() / 2;
    for side in [0, 1] {
        let entries = &comparison.programs[side].entries;
        let both = file.commands.iter().flat_map(|(at, run)| {
            [*at, half + *at].map(|at| invocation(&entries[at], call_of(run)))
        });
        comparison.invocations[side] = both.collect::<Option<_>>()?;
    }
    Some(comparison)
}

pub fn call_of(command: &RunCommand) -> &cranelift_reader::Invocation {
    match command {
        RunCommand::Print(call) | RunCommand::Run(call, ..) => call,
    }
}

pub fn invocation(entry: &Entry, call: &cranelift_reader::Invocation) -> Option<Invocation> {
    let arguments = call.args.iter().map(|value| Argument::Bits(interpreter::bits(value)));
    let arguments: Vec<Argument> = arguments.collect();
    (arguments.len() == entry.signature.params.len()).then(|| Invocation {
        function: entry.function.clone(),
        symbol: entry.symbol.clone(),
        signature: entry.signature.clone(),
        arguments,
        memory_seed: 0,
        fuel: 0,
    })
}

/// Whether an outcome is what a command expects; a command that prints expects the function to
/// return.
pub fn is_expected(command: &RunCommand, signature: &Signature, outcome: &Outcome) -> bool {
    let End::Returned(results) = &outcome.end else {
        return false;
    };
    // A number that could be an address is not seen.
    if results
        .iter()
        .any(|&bits| bits >= SOME_ADDRESS && bits <= address_in_memory(MEMORY_BYTES as u64))
    {
        return true;
    }
    let results = results.iter().zip(&signature.returns);
    let results = results.map(|(&bits, result)| interpreter::value(bits, result.value_type));
    let results: Vec<DataValue> = results.collect();
    match command {
        RunCommand::Print(_) => true,
        RunCommand::Run(..) => command.run(|_, _| Ok(results.clone())).is_ok(),
    }
}

/// Checks that both sides do the same, and what the commands expect.
#[track_caller]
fn judge(file: &File, comparison: &Comparison, outcomes: [&[Outcome]; 2]) -> Tally {
    let tally = comparison.judge(outcomes);
    let tally = tally.unwrap_or_else(|difference| panic!("{}: {difference}", file.path.display()));
    let commands = file.commands.iter().flat_map(|(at, run)| [(*at, run); 2]);
    for ((at, run), outcome) in commands.zip(outcomes[1]) {
        let signature = &file.functions[at].body.signature;
        assert!(
            is_expected(run, signature, outcome),
            "{}: {run}: {outcome:x?}",
            file.path.display()
        );
    }
    tally
}

/// Runs all files here. With canonical bodies, a function and its duplicate are replaced by such a
/// body.
fn run_here(is_canonical: bool) {
    let (files, left_out) = files("x86_64");
    let (mut tally, mut cannot) = (Tally::default(), 0);
    for file in &files {
        let Some(comparison) = comparison(file, Target::x86_64(), is_canonical) else {
            tally.idle += 1;
            continue;
        };
        let Comparison { programs, invocations, .. } = &comparison;
        for level in Level::ALL {
            let outcomes = [0, 1].map(|side| {
                let run = || run_at(level, &programs[side], &invocations[side]);
                catch_unwind(AssertUnwindSafe(run)).ok()
            });
            match &outcomes {
                [Some(before), Some(after)] => tally += judge(file, &comparison, [before, after]),
                [None, None] => cannot += 1,
                // A canonical body may lack the instructions that the back end cannot compile.
                [None, Some(_)] if is_canonical => cannot += 1,
                // Otherwise a program that does not compile on one side must not compile on the
                // other.
                _ => panic!("{}: compiles on one side only", file.path.display()),
            }
        }
    }
    eprintln!("x86-64: {tally}; left out {left_out:?}, {cannot} do not compile");
    assert!(tally.units > 0 && tally.merged > 0, "{tally}");
}

#[test]
fn run_commands() {
    run_here(false);
}

#[test]
fn run_commands_of_canonical_bodies() {
    run_here(true);
}

/// A file about the NaN that an addition of two returns, which the interpreter chooses in another
/// way than machines do.
const CHOOSES_NAN: &str = "float-addition-keeps-operand-order.clif";

/// The results that a filetest expects were first computed by compiled functions. Cranelift's
/// interpreter is another implementation: it must compute equal results, where it can run a
/// command. Cranelift's own tests are not run here: some of them test what the interpreter does
/// wrong.
#[test]
fn run_commands_in_the_interpreter() {
    let (mut files, left_out) = files_in(&testkit::root().join("filetests"), "x86_64");
    files.retain(|file| !file.path.ends_with(CHOOSES_NAN));
    let options = Options::default();
    let (mut expected, mut not_supported, mut wrong) = (0, 0, Vec::new());
    for file in &files {
        let functions = &file.functions[..file.functions.len() / 2];
        let unit = Parts { functions, data: &[], options: &options };
        let program = Program::unmerged(&unit);
        let calls = file.commands.iter();
        let calls = calls.map(|(at, run)| invocation(&program.entries[*at], call_of(run)));
        let Some(calls) = calls.collect::<Option<Vec<_>>>() else {
            not_supported += file.commands.len();
            continue;
        };
        let outcomes = interpreter::run(&program, &calls);
        for ((at, run), outcome) in file.commands.iter().zip(outcomes) {
            // Its memory is not that of a machine: some accesses trap.
            let outcome = outcome.filter(|outcome| matches!(outcome.end, End::Returned(_)));
            let Some(outcome) = outcome else {
                not_supported += 1;
                continue;
            };
            if is_expected(run, &functions[*at].body.signature, &outcome) {
                expected += 1;
            } else {
                wrong.push(format!("{}: {run}: {outcome:x?}", file.path.display()));
            }
        }
    }
    eprintln!(
        "{expected} commands are right, {not_supported} cannot be run; left out {left_out:?}"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(expected > not_supported, "{expected} {not_supported}");
}

/// Adds both programs of a comparison to a batch, unmerged first. `Ok(false)` if neither can be
/// compiled at this level.
///
/// # Errors
///
/// Only one can be compiled.
pub fn compiles_into(
    batch: &mut Batch,
    level: Level,
    comparison: &Comparison,
) -> Result<bool, String> {
    let Comparison { programs, invocations, .. } = comparison;
    let mut sides = Vec::new();
    for (program, calls) in programs.iter().zip(invocations) {
        let mut alone = Batch::new(batch.cpu());
        let add = || alone.add(level, program, calls).is_ok();
        if catch_unwind(AssertUnwindSafe(add)).unwrap_or(false) {
            sides.push(alone);
        }
    }
    let compiled = sides.len();
    if compiled == 1 {
        return Err(format!("{level:?}: compiles on one side only"));
    }
    sides.into_iter().for_each(|side| batch.append(side));
    Ok(compiled == 2)
}

#[test]
fn run_commands_on_aarch64() {
    let (files, left_out) = files("aarch64");
    let (mut tally, mut cannot) = (Tally::default(), 0);
    let mut batch = Batch::new(Cpu::Aarch64);
    let mut compared = Vec::new();
    for file in &files {
        let Some(comparison) = comparison(file, Target::aarch64(false), false) else {
            tally.idle += 1;
            continue;
        };
        let mut levels = 0;
        for level in Level::ALL {
            if compiles_into(&mut batch, level, &comparison).unwrap_or_else(|error| {
                panic!("{}: {error}", file.path.display());
            }) {
                levels += 1;
            } else {
                cannot += 1;
            }
        }
        compared.push((file, comparison, levels));
    }
    let outcomes = batch.run();
    let mut outcomes = outcomes.chunks_exact(2);
    for (file, comparison, levels) in &compared {
        for level in outcomes.by_ref().take(*levels) {
            tally += judge(file, comparison, [&level[0], &level[1]]);
        }
    }
    eprintln!("aarch64: {tally}; left out {left_out:?}, {cannot} do not compile");
    assert!(tally.units > 0 && tally.merged > 0, "{tally}");
}
