// Measures the units; `run` says how it is used.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { readArguments, runCommand } from "../shared/command.mjs";
import { Failure, replaceGenerated } from "../shared/document.mjs";
import { chart } from "./chart.mjs";
import { codeBytes, functionCount, splitSections } from "./elf.mjs";
import { overview, tables } from "./tables.mjs";
import { SAMPLE, units as known } from "./units.mjs";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
// The command that the marks in documents name.
const COMMAND = "benches/peers/run --update";
const BINARYEN = "binaryen@132.0.0";
const TARGETS = ["x86_64", "aarch64"];

// The features that the modules use, which most of them do not declare.
const FEATURES = [
  "mutable-globals",
  "sign-ext",
  "nontrapping-float-to-int",
  "bulk-memory",
  "multivalue",
  "reference-types",
  "simd",
  "threads",
].map((feature) => `--enable-${feature}`);
// These levels add no pass. They make `--duplicate-function-elimination` go on until it finds nothing; else it runs once.
const LEVELS = ["--optimize-level=3", "--shrink-level=2"];
const DUPLICATES = "--duplicate-function-elimination";
const SIMILAR = "--merge-similar-functions";
// In this order, as in `-Oz`.
const BOTH = [DUPLICATES, SIMILAR];
// `--merge-similar-functions` makes callees arguments only if there are typed references to functions, a part of `gc`.
const TYPED = "--enable-gc";
const WITHOUT_MERGING = [DUPLICATES, SIMILAR].map((pass) => `--skip-pass=${pass.slice(2)}`);
// Arguments of `wasm-opt` in addition to FEATURES.
const VARIANTS = {
  encoded: LEVELS,
  duplicates: [...LEVELS, DUPLICATES],
  similar: [...LEVELS, ...BOTH],
  typed: [...LEVELS, TYPED, ...BOTH],
};
// The same, measured only on the unit that is built here, to keep the run short.
const MORE_VARIANTS = {
  rounds: [...LEVELS, TYPED, ...BOTH, ...BOTH, DUPLICATES],
  closed: [...LEVELS, TYPED, "--closed-world", ...BOTH],
  tails: [...LEVELS, TYPED, "--enable-tail-call", ...BOTH],
  ozUnmerged: ["-Oz", ...WITHOUT_MERGING],
  oz: ["-Oz"],
  ozTyped: ["-Oz", TYPED],
};
// Variants after which `clif-merge` is measured as well.
const THEN_OURS = ["similar", "ozUnmerged", "oz"];
// Passes of LLVM that rustc is asked to add.
const LLVM_VARIANTS = { llvm: "mergefunc", llvmGlobal: "mergefunc,global-merge-func" };

const LOCAL = ["--linkage", "local", "--addresses", "insignificant"];

function main() {
  const { update, render, work, names } = readArguments({
    command: "benches/peers/run",
    kind: ["unit", "units"],
    known: known.map(({ name }) => name),
    work: path.join(ROOT, "target/peers"),
  });
  fs.mkdirSync(work, { recursive: true });
  const file = path.join(work, "figures.json");
  if (!render) measureAll(names, work, file);
  if (!fs.existsSync(file)) throw new Failure(`there are no figures in ${work} yet: run without --render`);
  const figures = JSON.parse(fs.readFileSync(file));
  if (update && figures.units.length < known.length) throw new Failure("--update takes figures of all units");

  const picture = chart(figures);
  const text = tables(figures);
  fs.writeFileSync(path.join(work, "figures.md"), text);
  fs.writeFileSync(path.join(work, "peers.svg"), picture);
  if (update) {
    fs.writeFileSync(path.join(ROOT, "docs/peers.svg"), picture);
    replaceGenerated(path.join(ROOT, "docs/peers.md"), COMMAND, text);
    replaceGenerated(path.join(ROOT, "README.md"), COMMAND, `${overview(figures)}\n`);
  }
  process.stdout.write(text);
}

/** Writes the figures of the units of these names, or of all, into a file, where those of other units are kept. */
function measureAll(names, work, file) {
  const units = chooseUnits(names);
  const tools = findTools(work, units);
  const before = fs.existsSync(file) ? JSON.parse(fs.readFileSync(file)) : { versions: {}, units: [] };
  const other = Object.entries(tools.versions).find(([tool, version]) => (before.versions[tool] ?? version) !== version);
  if (other) throw new Failure(`${file} has figures of another version of ${other[0]}: choose another --dir`);
  const versions = { ...before.versions, ...tools.versions };
  const results = new Map(before.units.map((result) => [result.name, result]));
  for (const unit of units) {
    note(unit.name);
    results.set(unit.name, measure(unit, tools, work));
    const measured = known.map(({ name }) => results.get(name)).filter(Boolean);
    fs.writeFileSync(file, `${JSON.stringify({ versions, units: measured }, null, 1)}\n`);
  }
}

/** The units of these names, or all; without those that are not published, if they are not here. */
function chooseUnits(names) {
  const corpus = process.env.CLIF_MERGE_UNITS;
  const units = known.filter(({ name, clif }) => {
    if (names.length > 0 && !names.includes(name)) return false;
    if (!clif || (corpus && fs.existsSync(path.join(corpus, clif)))) return true;
    const why = corpus ? `there is no ${clif} in ${corpus}` : "CLIF_MERGE_UNITS is not set";
    note(`${why}: ${name} is not measured, only ${SAMPLE}, a sample of such code`);
    return false;
  });
  const sample = known.find(({ name }) => name === SAMPLE);
  return units.length > 0 ? units : [sample];
}

/** Finds, fetches or builds the programs that are run, and asks for their versions. */
function findTools(work, units) {
  const [major] = process.versions.node.split(".");
  if (Number(major) < 18) throw new Failure(`needs Node.js 18 or newer, not ${process.versions.node}`);
  const { versions, linkers } = findLinkers();
  const { CLIF_MERGE: givenMerge, WASM_UNIT: givenUnit } = process.env;
  const modules = units.some((unit) => !isText(unit));
  const crates = units.some(({ crate }) => crate);
  if (crates || !givenMerge || (modules && !givenUnit)) need("cargo", "https://rustup.rs");
  if (crates) versions.rustc = findRustc();

  const cargo = (more, ...arguments_) => {
    const env = { ...process.env, CARGO_TARGET_DIR: path.join(work, "target"), ...more };
    run("cargo", ["build", "--quiet", "--locked", ...arguments_], { env, cwd: ROOT, loud: true });
  };
  if (!givenMerge) {
    note("building clif-merge");
    cargo({}, "--release", "-p", "clif-merge");
  }
  const merge = givenMerge ?? path.join(work, "target/release/clif-merge");
  versions["clif-merge"] = need(merge, "CLIF_MERGE=PATH");
  if (!modules) return { merge, linkers, versions, cargo };

  if (!givenUnit) {
    note("building wasm-unit, which takes minutes");
    cargo({}, "-p", "wasm-input", "--example", "wasm-unit");
  }
  const wasmUnit = givenUnit ?? path.join(work, "target/debug/examples/wasm-unit");
  if (!fs.existsSync(wasmUnit)) throw new Failure(`needs ${wasmUnit}: WASM_UNIT=PATH`);
  need("npm", "Debian's package npm");
  need("tar", "Debian's package tar");
  const lock = fs.readFileSync(path.join(ROOT, "Cargo.lock"), "utf8");
  versions.wasmtime = /name = "wasmtime"\nversion = "(.*)"/.exec(lock)[1];
  const wasmOpt = fetchWasmOpt(path.join(work, "binaryen"));
  versions["wasm-opt"] = need(wasmOpt, `npm install ${BINARYEN}`);
  return { merge, wasmUnit, wasmOpt, linkers, versions, cargo };
}

/** lld, and of mold and gold what is installed: programs by linker and target. */
function findLinkers() {
  const lld = process.env.LLD ?? "ld.lld";
  const versions = { lld: need(lld, "Debian's package lld, or LLD=PATH") };
  const linkers = { lld: { x86_64: lld, aarch64: lld } };
  // Each gold links for one target.
  const others = {
    mold: { x86_64: "mold", aarch64: "mold" },
    gold: { x86_64: "ld.gold", aarch64: "aarch64-linux-gnu-ld.gold" },
  };
  for (const [linker, programs] of Object.entries(others)) {
    for (const [target, program] of Object.entries(programs)) {
      const version = versionOf(program);
      if (!version) {
        note(`there is no ${program}: ${linker} is not measured for ${target}`);
        continue;
      }
      versions[linker] ??= version;
      linkers[linker] ??= {};
      linkers[linker][target] = program;
    }
  }
  return { versions, linkers };
}

function findRustc() {
  const version = need("rustc", "https://rustup.rs");
  const sysroot = run("rustc", ["--print", "sysroot"], { cwd: ROOT }).trim();
  if (!fs.existsSync(path.join(sysroot, "lib/rustlib/wasm32-unknown-unknown"))) {
    throw new Failure("rustc has no target wasm32-unknown-unknown: rustup target add wasm32-unknown-unknown");
  }
  return version;
}

function fetchWasmOpt(home) {
  const program = path.join(home, "node_modules/.bin/wasm-opt");
  if (!fs.existsSync(program)) npm("install", "--no-save", "--prefix", home, BINARYEN);
  return program;
}

function npm(command, ...arguments_) {
  try {
    run("npm", [command, "--silent", ...arguments_]);
  } catch {
    throw new Failure(`npm cannot fetch ${arguments_.at(-1)}; without network, there is 'benches/peers/run ${SAMPLE}'`);
  }
}

/** The version of a program that has to be there. */
function need(program, hint) {
  const version = versionOf(program);
  if (!version) throw new Failure(`needs ${program}: ${hint}`);
  return version;
}

/** The first line that `program --version` prints; `undefined` if the program does not run. */
function versionOf(program) {
  try {
    return run(program, ["--version"]).split("\n")[0].trim();
  } catch {
    return undefined;
  }
}

/** All figures of a unit. */
function measure(unit, tools, work) {
  const home = fs.mkdtempSync(path.join(work, `${unit.name}-`));
  try {
    return { name: unit.name, about: unit.about, ...measureIn(home, unit, tools, work) };
  } finally {
    fs.rmSync(home, { recursive: true });
  }
}

/** Whether the unit is a text, not a module. */
function isText({ clif, sample }) {
  return Boolean(clif ?? sample);
}

function measureIn(home, unit, tools, work) {
  if (isText(unit)) {
    const text = unit.clif ? path.join(process.env.CLIF_MERGE_UNITS, unit.clif) : path.join(ROOT, unit.sample);
    return { module: measureIr(text, home, tools) };
  }
  const wasm = path.join(home, "module.wasm");
  fs.writeFileSync(wasm, unit.crate ? crateModule(unit, tools, work) : packageModule(unit, work));
  const variants = unit.crate ? { ...VARIANTS, ...MORE_VARIANTS } : VARIANTS;
  const result = measureModule(wasm, home, tools, variants);
  if (unit.crate) {
    for (const [variant, passes] of Object.entries(LLVM_VARIANTS)) {
      fs.writeFileSync(wasm, crateModule(unit, tools, work, `-C passes=${passes}`));
      measureVariant(variant, wasm, result, home, tools);
    }
  }
  return result;
}

/** Builds the module of a unit in this repository. LLVM sees the crate at once, but not the standard library. */
function crateModule({ crate, from }, { cargo }, work, flags = "") {
  const env = { RUSTFLAGS: flags, CARGO_PROFILE_DEV_CODEGEN_UNITS: "1" };
  cargo(env, "--manifest-path", `${crate}/Cargo.toml`, "--target", "wasm32-unknown-unknown");
  return fs.readFileSync(path.join(work, "target", from));
}

/** Fetches the module of a unit from its npm package. */
function packageModule(unit, work) {
  const home = path.join(work, "npm", unit.name);
  const from = path.join(home, "package", unit.from);
  if (!fs.existsSync(from)) {
    fs.mkdirSync(home, { recursive: true });
    npm("pack", "--pack-destination", home, unit.package);
    const [archive] = fs.readdirSync(home).filter((name) => name.endsWith(".tgz"));
    run("tar", ["xzf", path.join(home, archive), "-C", home]);
  }
  let bytes = fs.readFileSync(from);
  if (unit.base64) {
    bytes = Buffer.from(/Buffer\.from\(.([\w+/=]+)/.exec(bytes.toString("latin1"))[1], "base64");
  }
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  if (sha256 !== unit.sha256) throw new Failure(`the module in ${unit.package} is another one: SHA-256 ${sha256}`);
  return bytes;
}

/** All figures of a module: of its functions (`module`), and of these and Wasmtime's trampolines (`whole`). */
function measureModule(wasm, home, tools, variants) {
  const original = path.join(home, "original");
  const marks = unitOf(wasm, original, tools);
  const functions = path.join(home, "functions");
  const result = {
    wasm: { original: fs.statSync(wasm).size },
    module: measureIr(functions, home, tools, withoutTrampolines(original, functions)),
    whole: measureIr(original, home, tools, marks),
  };

  for (const [variant, passes] of Object.entries(variants)) {
    const to = path.join(home, `${variant}.wasm`);
    run(tools.wasmOpt, ["--quiet", wasm, ...FEATURES, "--no-stack-ir", ...passes, "-o", to]);
    result.wasm[variant] = fs.statSync(to).size;
    measureVariant(variant, to, result, home, tools);
  }
  return result;
}

/** Adds the bytes of code of another module of the same program. */
function measureVariant(variant, wasm, { module, whole }, home, tools) {
  const [unit, functions] = [path.join(home, variant), path.join(home, "functions")];
  unitOf(wasm, unit, tools);
  const own = (name) => name.startsWith("u0:");
  for (const target of TARGETS) {
    const object = compile(unit, target, home, tools, "--no-merge");
    whole[target][variant] = codeBytes(object);
    module[target][variant] = codeBytes(object, own);
    if (!(variant in LLVM_VARIANTS)) continue;
    const image = link(tools.linkers.lld[target], "lld", "all", object, home);
    whole[target][`${variant}ThenLld`] = codeBytes(image);
    module[target][`${variant}ThenLld`] = codeBytes(image, own);
  }
  const thenOurs = (directory, marks, result) => {
    const native = report(directory, [...marks, "--no-alias"], tools);
    for (const target of TARGETS) result[target][`${variant}ThenMarked`] = native[target].after;
  };
  if (THEN_OURS.includes(variant)) thenOurs(functions, withoutTrampolines(unit, functions), module);
  if (variant in MORE_VARIANTS && THEN_OURS.includes(variant)) thenOurs(unit, marksOf(unit), whole);
  fs.rmSync(unit, { recursive: true });
}

/** Translates a module to IR, and returns the options that say what is reachable from outside. */
function unitOf(wasm, unit, tools) {
  run(tools.wasmUnit, [wasm, unit]);
  return marksOf(unit);
}

function marksOf(unit) {
  const list = (name) => path.join(unit, `${name}.txt`);
  return ["--export-file", list("exported"), "--externally-called-file", list("externally-called")];
}

/** Makes a unit of the functions of the module alone, and returns its options. */
function withoutTrampolines(unit, functions) {
  fs.rmSync(functions, { recursive: true, force: true });
  fs.mkdirSync(functions);
  for (const file of fs.readdirSync(unit).filter((name) => /^wasm\[\d+\]--function\[/.test(name))) {
    fs.symlinkSync(path.join(unit, file), path.join(functions, file));
  }
  for (const list of ["exported.txt", "externally-called.txt"]) {
    const lines = fs.readFileSync(path.join(unit, list), "utf8").split("\n");
    const own = lines.filter((line) => !/^u[1-9]/.test(line));
    fs.writeFileSync(path.join(functions, list), own.join("\n"));
  }
  return marksOf(functions);
}

/** The bytes of code of a unit: as it is, folded by linkers, merged, and first merged and then folded. */
function measureIr(unit, home, tools, marks) {
  const result = {};
  for (const target of TARGETS) {
    const object = compile(unit, target, home, tools, "--no-merge");
    const bytes = codeBytes(object);
    result[target] = { functions: functionCount(object), bytes };
    for (const [linker, programs] of Object.entries(tools.linkers)) {
      if (!programs[target]) continue;
      const unfolded = codeBytes(link(programs[target], linker, "none", object, home));
      if (unfolded !== bytes) throw new Error(`${linker} makes ${unfolded} bytes of ${bytes}`);
      result[target][linker] = codeBytes(link(programs[target], linker, "all", object, home));
    }
    const merged = compile(unit, target, home, tools);
    result[target].mergedObject = codeBytes(merged);
    result[target].mergedThenLld = codeBytes(link(tools.linkers.lld[target], "lld", "all", merged, home));
  }
  const reports = { identical: ["--similar", "off"], local: [] };
  if (marks) {
    reports.aliases = marks;
    reports.marked = [...marks, "--no-alias"];
  }
  for (const [name, options] of Object.entries(reports)) {
    const native = report(unit, options, tools);
    for (const target of TARGETS) {
      const { before, after } = native[target];
      if (before !== result[target].bytes) throw new Error(`report says ${before} bytes of ${result[target].bytes}`);
      result[target][name] = after;
    }
  }
  return result;
}

function report(unit, options, { merge }) {
  return JSON.parse(run(merge, ["report", "--quiet", "--format", "json", ...LOCAL, ...options, unit])).native;
}

/** Compiles a unit whose functions are all local. */
function compile(unit, target, home, { merge }, ...options) {
  const object = path.join(home, "unit.o");
  run(merge, ["compile", "--quiet", ...options, ...LOCAL, "--target", target, unit, "-o", object]);
  return fs.readFileSync(object);
}

/** Links an object to a shared library, which may leave symbols undefined. */
function link(program, linker, icf, object, home) {
  const split = path.join(home, "split.o");
  fs.writeFileSync(split, splitSections(object));
  const image = path.join(home, "image.so");
  // By default, gold stops after 3 rounds.
  const rounds = linker === "gold" && icf === "all" ? ["--icf-iterations=1000"] : [];
  run(program, ["-shared", `--icf=${icf}`, ...rounds, split, "-o", image]);
  return fs.readFileSync(image);
}

function run(program, arguments_, { loud = false, ...options } = {}) {
  const stdio = ["ignore", "pipe", loud ? "inherit" : "pipe"];
  try {
    return execFileSync(program, arguments_, { encoding: "utf8", maxBuffer: 1 << 30, stdio, ...options });
  } catch (error) {
    const said = error.stderr?.trim().split("\n").at(-1);
    throw new Failure(`${path.basename(program)} ${arguments_[0]} failed${said ? `: ${said}` : ""}`);
  }
}

function note(text) {
  console.error(`peers: ${text}`);
}

runCommand(main);
