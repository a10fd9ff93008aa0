// The figures as Markdown.

import { table, thousands } from "../shared/document.mjs";
import { SAMPLE } from "./units.mjs";

const TARGETS = { x86_64: "x86-64", aarch64: "aarch64" };
// The results of Binaryen's merging passes on a module, alone.
const BINARYEN = ["duplicates", "similar", "typed", "rounds", "closed", "tails"];

/** How much less `after` is than `before`, in percent; nothing where nothing was measured. */
export function saved(before, after) {
  return after === undefined ? undefined : (100 * (before - after)) / before;
}

export function percent(value) {
  return value === undefined ? "–" : `${(Math.abs(value) < 0.005 ? 0 : value).toFixed(2)}%`;
}

/** The most that Binaryen saves of a unit with any of its options. */
function binaryenBest(figures) {
  if (figures.encoded === undefined) return undefined;
  return Math.max(...BINARYEN.map((variant) => saved(figures.encoded, figures[variant]) ?? 0));
}

/** Whether a unit is in the overview: no sample, and at least 0.1% of it can be saved. */
export function isShown({ name, module: { x86_64: figures } }) {
  return name !== SAMPLE && saved(figures.bytes, figures.local) >= 0.1;
}

/** The table of README.md. */
export function overview({ units }) {
  const head = ["", "bytes", "linker, `--icf=all`", "Binaryen's merging, best options", "`cranelift-mergefunc`", "all local"];
  const rows = units.filter(isShown).map(({ name, about, module }) => {
    const { x86_64: figures } = module;
    const own = ["lld", "marked", "local"].map((column) => percent(saved(figures.bytes, figures[column])));
    return [`${name}: ${about}`, thousands(figures.bytes), own[0], percent(binaryenBest(figures)), own[1], own[2]];
  });
  return table(head, rows);
}

export function tables({ versions, units }) {
  const sections = [];
  const add = (title, content) => content && sections.push(`${title}:\n\n${content}`);
  const modules = units.filter(({ whole }) => whole);
  for (const [target, name] of Object.entries(TARGETS)) {
    add(`Functions of the programs, ${name}`, savings(units, "module", target));
  }
  for (const [target, name] of Object.entries(TARGETS)) {
    add(`The same with Wasmtime's trampolines, ${name}`, savings(modules, "whole", target));
  }
  add("It follows", conclusions(units));
  add("Identical functions only, by linker and by `clif-merge report --similar off`", linkers(units));
  add("One after the other, functions of the programs, x86-64", sequences(units));
  for (const unit of modules.filter(({ module }) => module.x86_64.llvm !== undefined)) {
    add(`LLVM's passes on ${unit.name}`, llvm(unit));
    add(`Binaryen's passes on ${unit.name}`, binaryen(unit));
  }
  add("Changes by `wasm-opt` without any pass, bytes, x86-64", encoded(modules));
  add("Versions", table(["tool", "version"], Object.entries(versions), 2));
  return `${sections.join("\n\n")}\n`;
}

function savings(units, part, target) {
  const columns = [
    ...["unit", "functions", "bytes", "linker ICF", "LLVM", "Binaryen: duplicates", "similar", "typed"],
    ...["`cranelift-mergefunc`", "with aliases", "all local"],
  ];
  const rows = units.map(({ name, [part]: { [target]: figures } }) => [
    name,
    thousands(figures.functions),
    thousands(figures.bytes),
    ...["lld", "llvm"].map((column) => percent(saved(figures.bytes, figures[column]))),
    ...["duplicates", "similar", "typed"].map((variant) => percent(saved(figures.encoded, figures[variant]))),
    ...["marked", "aliases", "local"].map((marks) => percent(saved(figures.bytes, figures[marks]))),
  ]);
  return table(columns, rows);
}

/** The conclusions of the text from the figures, as a list; nothing about units that were not measured. */
function conclusions(units) {
  const lines = [];
  const all = units.flatMap(({ module }) => Object.keys(TARGETS).map((target) => module[target]));
  const points = (number) => `${number.toFixed(2)} percentage points`;
  const most = (of) => Math.max(...all.map(of).filter((number) => number !== undefined));
  const part = (figures, column) => saved(figures.bytes, figures[column]);

  const more = most((figures) => part(figures, "lld") - part(figures, "identical"));
  const less = most((figures) => part(figures, "identical") - part(figures, "lld"));
  lines.push(
    `Of identical functions, lld folds at most ${points(more)} more than \`clif-merge --similar off\` merges, and at ` +
      `most ${points(less)} less.`,
  );

  const compared = all.filter((figures) => figures.encoded && part(figures, "marked") >= 0.1);
  if (compared.length > 0) {
    const least = Math.min(...compared.map((figures) => part(figures, "marked") / binaryenBest(figures)));
    lines.push(
      `\`cranelift-mergefunc\` saves at least ${least.toFixed(1)} times as much as Binaryen's two passes with the best of ` +
        "their options, on units of which it saves at least 0.1%.",
    );
  }
  const folded = most((figures) => part(figures, "mergedThenLld") - part(figures, "mergedObject"));
  lines.push(`Of what \`cranelift-mergefunc\` leaves, lld folds at most ${points(folded)}.`);
  const both = all.filter((figures) => figures.similarThenMarked !== undefined);
  if (both.length > 0) {
    const gains = both.map((figures) => saved(figures.encoded, figures.similarThenMarked) - part(figures, "marked"));
    lines.push(
      `Binaryen and then \`cranelift-mergefunc\` save at most ${points(Math.max(...gains))} more, and at most ` +
        `${points(-Math.min(...gains))} less, than \`cranelift-mergefunc\` alone.`,
    );
  }
  return lines.map((line) => `* ${line}`).join("\n");
}

function linkers(units) {
  const names = ["lld", "mold", "gold"];
  const head = ["unit"];
  const columns = [];
  for (const [target, title] of Object.entries(TARGETS)) {
    for (const linker of names) {
      head.push(`${title} ${linker}`);
      columns.push([target, linker]);
    }
    head.push("`clif-merge`");
    columns.push([target, "identical"]);
  }
  const rows = units.map(({ name, module }) => [
    name,
    ...columns.map(([target, column]) => percent(saved(module[target].bytes, module[target][column]))),
  ]);
  return table(head, rows);
}

function sequences(units) {
  const head = ["unit", "bytes", "linker ICF", "`clif-merge compile`, all local", "then linker ICF"];
  const rows = units.map(({ name, module: { x86_64: figures } }) => [
    name,
    thousands(figures.bytes),
    ...["lld", "mergedObject", "mergedThenLld"].map((column) => percent(saved(figures.bytes, figures[column]))),
    ...["similar", "similarThenMarked"].map((column) => percent(saved(figures.encoded, figures[column]))),
  ]);
  return table([...head, "Binaryen: similar", "then `cranelift-mergefunc`"], rows);
}

/** A table of what is saved of one unit: rows of a label, the column before and the column after. */
function details(unit, rows) {
  const parts = { module: "functions", whole: "with trampolines" };
  const head = ["passes"];
  for (const title of Object.values(TARGETS)) for (const part of Object.values(parts)) head.push(`${title}, ${part}`);
  const cells = (before, after) =>
    Object.keys(TARGETS).flatMap((target) =>
      Object.keys(parts).map((part) => percent(saved(unit[part][target][before], unit[part][target][after]))),
    );
  return table(head, rows.map(([label, before, after]) => [label, ...cells(before, after)]));
}

function llvm(unit) {
  return details(unit, [
    ["linker ICF alone", "bytes", "lld"],
    ["MergeFunctions", "bytes", "llvm"],
    ["MergeFunctions, then linker ICF", "bytes", "llvmThenLld"],
    ["MergeFunctions, GlobalMergeFunctions", "bytes", "llvmGlobal"],
    ["MergeFunctions, GlobalMergeFunctions, then linker ICF", "bytes", "llvmGlobalThenLld"],
    ["`cranelift-mergefunc`", "bytes", "marked"],
  ]);
}

function binaryen(unit) {
  return details(unit, [
    ["duplicates", "encoded", "duplicates"],
    ["duplicates, similar", "encoded", "similar"],
    ["typed", "encoded", "typed"],
    ["typed, two rounds and duplicates once more", "encoded", "rounds"],
    ["typed, with `--closed-world`", "encoded", "closed"],
    ["typed, with `--enable-tail-call`", "encoded", "tails"],
    ["`-Oz`, of `-Oz` without both passes", "ozUnmerged", "oz"],
    ["`-Oz --enable-gc`, of the same", "ozUnmerged", "ozTyped"],
    ["`cranelift-mergefunc`, of the same", "ozUnmerged", "ozUnmergedThenMarked"],
    ["`-Oz` and then `cranelift-mergefunc`, of the same", "ozUnmerged", "ozThenMarked"],
  ]);
}

function encoded(units) {
  const head = ["unit", "module", "written by `wasm-opt`", "code", "of the module written by `wasm-opt`"];
  const rows = units.map(({ name, wasm, module: { x86_64: figures } }) => [
    name,
    ...[wasm.original, wasm.encoded, figures.bytes, figures.encoded].map(thousands),
  ]);
  return table(head, rows);
}
