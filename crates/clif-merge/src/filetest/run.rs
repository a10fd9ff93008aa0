//! `test run`: every command returns the same results before and after merging, on this machine.
//!
//! The unit is compiled twice: as it is, and merged. A command calls the function under which it
//! stands before merging, and the function that the plan replaces it with after merging, so that it
//! is really the representative that runs. Whatever a command expects, its results after merging
//! are compared with those before, bit for bit. Faults that both sides have in common are noticed
//! only if the command says the result: whether Cranelift compiles a function correctly is for
//! Cranelift's own tests.

use super::lines::Lines;
use super::merge::{self, MergeOptions, references};
use super::{Stop, catch};
use crate::jit::{Code, Definition, Jit, Unlinkable};
use anyhow::{Result, anyhow, ensure};
use clif_unit::data::GivenData;
use clif_unit::pass::{CALL_THUNKS, Emit, Merged};
use clif_unit::unit::Unit;
use cranelift_codegen::data_value::{DataValue, DisplayDataValues};
use cranelift_codegen::ir::{Signature, UserExternalName, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::thunk::call_thunk;
use cranelift_mergefunc::{Disposition, ExtraArgument, FunctionIndex, Options, cranelift_codegen};
use cranelift_reader::{RunCommand, parse_run_command};
use std::collections::HashSet;

/// A run command.
#[derive(Debug)]
pub struct Command {
    /// `path:line`.
    place: String,
    /// As it is written.
    text: String,
    /// The function under which it stands.
    function: usize,
    command: RunCommand,
}

/// The result of running a file's commands for one target.
#[derive(Debug)]
pub struct Outcome {
    /// How many functions were merged away.
    pub merged: usize,
    /// The output of the `print:` commands.
    pub printed: Vec<String>,
}

/// The run commands of a file. With `strict`, a command must name the function it stands under.
///
/// # Errors
///
/// Malformed commands, with their lines.
pub fn commands(path: &str, lines: &Lines<'_>, unit: &Unit, strict: bool) -> Result<Vec<Command>> {
    let mut commands = Vec::new();
    for (function, given) in unit.given.iter().enumerate() {
        let name = unit.names.display(&given.symbol);
        for (line, text) in lines.commands(function) {
            let place = format!("{path}:{line}");
            let command = parse_run_command(text, &unit.functions[function].signature)
                .map_err(|error| anyhow!("{place}: {}", error.message))?
                .ok_or_else(|| anyhow!("{place}: not a run command"))?;
            let (RunCommand::Run(call, ..) | RunCommand::Print(call)) = &command;
            // A name such as u0:1 cannot be written in a command.
            let named = !strict || !text.contains('%') || !name.starts_with('%');
            ensure!(
                named || name[1..] == call.func,
                "{place}: the command is for %{}, but it stands under {name}",
                call.func,
            );
            commands.push(Command { place, text: text.to_owned(), function, command });
        }
    }
    Ok(commands)
}

/// Runs the commands before and after merging.
///
/// # Errors
///
/// The first command whose outcome is wrong, and what cannot be compiled. For a `foreign` file,
/// what already goes wrong before merging is a reason to skip it.
pub fn run(
    unit: &Unit,
    commands: &[Command],
    options: &MergeOptions,
    isa: &OwnedTargetIsa,
    foreign: bool,
) -> Result<Outcome, Stop> {
    let before_merging = |stop: Stop| match stop {
        Stop::Fail(reason) if foreign => Stop::Skip(format!("before merging: {reason}")),
        Stop::Fail(reason) => Stop::Fail(format!("before merging: {reason}")),
        Stop::Skip(reason) => Stop::Skip(reason),
    };
    let before: Vec<(UserExternalName, Emit)> = unit
        .given
        .iter()
        .zip(&unit.functions)
        .map(|(given, func)| (given.symbol.clone(), Emit::Body(Box::new(func.clone()))))
        .collect();
    if let Some(symbol) = undefined(&before, &unit.data) {
        let symbol = unit.names.display(&symbol);
        return Err(Stop::Skip(format!("{symbol} is not defined in the file")));
    }
    let own_target = options.for_isa(Some(&**isa));
    let compile = |functions, data: &[GivenData]| {
        catch(|| compile(unit, commands, isa, &own_target, functions, data))
    };
    let own = |command: &Command| unit.given[command.function].symbol.clone();
    let jit = compile(before, &unit.data).map_err(before_merging)?;
    let expected = call_all(unit, commands, &jit, own);
    drop(jit);
    check_expectations(unit, commands, &expected).map_err(Stop::Fail).map_err(before_merging)?;

    let merged = merge::merge(&*options.unit(unit, Some(&**isa))?, &own_target, Some(&**isa))?;
    let after = merged.plan.entries().zip(&merged.emit);
    let after = after.map(|((function, entry), emit)| {
        let emit = match entry.disposition() {
            // A parameterised body can be called only with its extra arguments: this thunk passes
            // them.
            Disposition::Redirect { to } if !entry.extra_arguments().is_empty() => {
                let to = merged.plan.entry(to).symbol().clone();
                Emit::Thunk(to, merged.plan.thunk_arguments(function))
            }
            _ => emit.clone(),
        };
        (entry.symbol().clone(), emit)
    });
    let after: Vec<_> = after.collect();
    let data: Vec<GivenData> = merged.data.iter().flatten().cloned().collect();
    let jit = compile(after, &data).map_err(|stop| match stop {
        Stop::Skip(reason) | Stop::Fail(reason) => Stop::Fail(format!("after merging: {reason}")),
    })?;
    let target = |command: &Command| target(&merged, command.function);
    let results = call_all(unit, commands, &jit, target);
    for ((command, before), after) in commands.iter().zip(&expected).zip(&results) {
        if !before.iter().zip(after).all(|(before, after)| before.bitwise_eq(after)) {
            let Command { place, command, .. } = command;
            let (before, after) = (DisplayDataValues(before), DisplayDataValues(after));
            return Err(Stop::Fail(format!(
                "{place}: {command}: got {before} before merging, and {after} after merging"
            )));
        }
    }
    let printed = commands.iter().zip(&results).filter_map(|(command, results)| {
        let RunCommand::Print(call) = &command.command else { return None };
        Some(format!("{call} -> {}", DisplayDataValues(results)))
    });
    Ok(Outcome { merged: merge::merged_away(unit, &merged), printed: printed.collect() })
}

/// The function that a caller of `function` reaches after merging.
fn target(merged: &Merged, function: usize) -> UserExternalName {
    let function = FunctionIndex::new(function);
    let extra = !merged.plan.entry(function).extra_arguments().is_empty();
    let target = if extra { function } else { merged.plan.call_target(function) };
    merged.plan.entry(target).symbol().clone()
}

/// A symbol that a function or a data object refers to and that is not there.
fn undefined(
    functions: &[(UserExternalName, Emit)],
    data: &[GivenData],
) -> Option<UserExternalName> {
    let there = functions.iter().map(|(symbol, _)| symbol);
    let there: HashSet<_> = there.chain(data.iter().map(|data| &data.symbol)).collect();
    let bodies = functions.iter().filter_map(|(_, emit)| match emit {
        Emit::Body(func) => Some(&**func),
        Emit::Thunk(..) | Emit::Alias(_) | Emit::Nothing => None,
    });
    let pointers = data.iter().flat_map(|data| &data.object.relocations);
    let aliases = data.iter().filter_map(|data| data.alias.as_ref());
    let used = bodies.flat_map(references).chain(pointers.map(|reloc| &reloc.target));
    let used = used.chain(aliases);
    used.into_iter().find(|symbol| !there.contains(symbol)).cloned()
}

fn compile(
    unit: &Unit,
    commands: &[Command],
    isa: &OwnedTargetIsa,
    options: &Options<'_>,
    functions: Vec<(UserExternalName, Emit)>,
    data: &[GivenData],
) -> Result<Jit, Stop> {
    if let Some(symbol) = undefined(&functions, data) {
        return Err(Stop::Fail(format!("{} is not defined", unit.names.display(&symbol))));
    }
    let mut definitions = Vec::new();
    for (at, (symbol, emit)) in functions.into_iter().enumerate() {
        let code = match emit {
            Emit::Nothing => continue,
            Emit::Body(func) => Code::Body(func),
            // The JIT has no aliases; a jump leads to the same code.
            Emit::Alias(to) => thunk(&symbol, &unit.functions[at].signature, &[], &to, options),
            Emit::Thunk(to, arguments) => {
                thunk(&symbol, &unit.functions[at].signature, &arguments, &to, options)
            }
        };
        // The new bodies come last; their functions have their signatures.
        let signature = match (&code, unit.functions.get(at)) {
            (_, Some(func)) => func.signature.clone(),
            (Code::Body(func), None) => func.signature.clone(),
            (Code::Thunk(_), None) => unreachable!("a new body is no thunk"),
        };
        definitions.push(Definition { symbol, signature, code });
    }
    let called = commands.iter().map(|command| unit.functions[command.function].signature.clone());
    Jit::compile(isa.clone(), definitions, data, called).map_err(|error| {
        match error.is::<Unlinkable>() {
            true => Stop::Skip(error.to_string()),
            false => Stop::Fail(format!("{error:#}")),
        }
    })
}

/// A jump, or where there is none a function that calls.
fn thunk(
    symbol: &UserExternalName,
    signature: &Signature,
    arguments: &[ExtraArgument],
    to: &UserExternalName,
    options: &Options<'_>,
) -> Code {
    let optimize = options.similar.policy.optimize_for();
    match options.target.thunk_code(signature, arguments, to, optimize) {
        Some(code) => Code::Thunk(code),
        None => {
            let name = UserFuncName::User(symbol.clone());
            Code::Body(Box::new(call_thunk(name, signature, arguments, to, &CALL_THUNKS)))
        }
    }
}

/// Performs the commands, and returns the results of each.
fn call_all(
    unit: &Unit,
    commands: &[Command],
    jit: &Jit,
    target: impl Fn(&Command) -> UserExternalName,
) -> Vec<Vec<DataValue>> {
    let call = |command: &Command| {
        let (RunCommand::Run(call, ..) | RunCommand::Print(call)) = &command.command;
        jit.call(&target(command), &unit.functions[command.function].signature, &call.args)
    };
    commands.iter().map(call).collect()
}

/// Compares the results of commands with those that the commands expect.
fn check_expectations(
    unit: &Unit,
    commands: &[Command],
    results: &[Vec<DataValue>],
) -> Result<(), String> {
    for (command, results) in commands.iter().zip(results) {
        let Command { place, text, function, command: run } = command;
        match run {
            // The file says nothing about the results.
            RunCommand::Print(_) => {}
            // A bare `run` asks for anything but zero. The reader says so with a zero of a type
            // that no result has.
            RunCommand::Run(..) if !text.contains(':') => {
                let ty = unit.functions[*function].signature.returns[0].value_type;
                let zero = DataValue::from_integer(0, ty);
                if zero.is_ok_and(|zero| *results == [zero]) {
                    return Err(format!("{place}: run: returned 0"));
                }
            }
            RunCommand::Run(..) => {
                if run.run(|_, _| Ok(results.clone())).is_err() {
                    return Err(format!("{place}: {run}: got {}", DisplayDataValues(results)));
                }
            }
        }
    }
    Ok(())
}
