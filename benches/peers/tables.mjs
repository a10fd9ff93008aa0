// The figures as Markdown.

const TARGETS = { x86_64: "x86-64", aarch64: "aarch64" };

/** How much less `after` is than `before`, in percent; nothing where nothing was measured. */
export function saved(before, after) {
  return after === undefined ? undefined : (100 * (before - after)) / before;
}

export function percent(value) {
  return value === undefined ? "–" : `${(Math.abs(value) < 0.005 ? 0 : value).toFixed(2)}%`;
}

export function tables({ versions, units }) {
  const sections = [];
  const add = (title, content) => sections.push(`${title}:\n\n${content}`);
  const modules = units.filter(({ whole }) => whole);
  for (const [target, name] of Object.entries(TARGETS)) {
    add(`Functions of the programs, ${name}`, savings(units, "module", target));
  }
  if (modules.length > 0) {
    for (const [target, name] of Object.entries(TARGETS)) {
      add(`The same with Wasmtime's trampolines, ${name}`, savings(modules, "whole", target));
    }
  }
  add("Identical functions only, by linker and by `clif-merge report --similar off`", linkers(units));
  add("One after the other, functions of the programs, x86-64", sequences(units));
  if (modules.length > 0) add("What `wasm-opt` changes without any pass, bytes, x86-64", encoded(modules));
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

function encoded(units) {
  const head = ["unit", "module", "written by `wasm-opt`", "code", "of the module written by `wasm-opt`"];
  const rows = units.map(({ name, wasm, module: { x86_64: figures } }) => [
    name,
    ...[wasm.original, wasm.encoded, figures.bytes, figures.encoded].map(thousands),
  ]);
  return table(head, rows);
}

function table(head, rows, texts = 1) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const rule = `|${head.map((_, index) => (index < texts ? "---" : "---:")).join("|")}|`;
  return [line(head), rule, ...rows.map(line)].join("\n");
}

function thousands(number) {
  return number.toLocaleString("en-US");
}
