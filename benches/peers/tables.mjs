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
  for (const [target, name] of Object.entries(TARGETS)) {
    sections.push(`Functions of the programs, bytes of ${name} code:\n\n${savings(units, "module", target)}`);
  }
  const modules = units.filter(({ whole }) => whole);
  if (modules.length > 0) {
    for (const [target, name] of Object.entries(TARGETS)) {
      sections.push(`With Wasmtime's trampolines, bytes of ${name} code:\n\n${savings(modules, "whole", target)}`);
    }
  }
  sections.push(`Identical functions, by each linker and by \`clif-merge report --similar off\`:\n\n${linkers(units)}`);
  sections.push(`One after the other, bytes of x86-64 code of the functions of the programs:\n\n${sequences(units)}`);
  if (modules.length > 0) {
    sections.push(`What \`wasm-opt\` changes without any pass, x86-64:\n\n${encoded(modules)}`);
  }
  sections.push(`Versions:\n\n${table(["tool", "version"], Object.entries(versions), 2)}`);
  return `${sections.join("\n\n")}\n`;
}

function savings(units, part, target) {
  const head = ["unit", "functions", "bytes", "linker ICF", "LLVM", "`wasm-opt` duplicates", "and similar", "and typed references"];
  const rows = units.map(({ name, [part]: { [target]: figures } }) => [
    name,
    thousands(figures.functions),
    thousands(figures.bytes),
    ...["lld", "llvm"].map((column) => percent(saved(figures.bytes, figures[column]))),
    ...["duplicates", "similar", "typed"].map((variant) => percent(saved(figures.encoded, figures[variant]))),
    ...["marked", "aliases", "local"].map((marks) => percent(saved(figures.bytes, figures[marks]))),
  ]);
  return table([...head, "`cranelift-mergefunc`", "with aliases", "all local"], rows);
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
  const head = ["unit", "bytes", "linker ICF", "`clif-merge`, all local", "then linker ICF"];
  const rows = units.map(({ name, module: { x86_64: figures } }) => [
    name,
    thousands(figures.bytes),
    ...["lld", "mergedObject", "mergedThenLld"].map((column) => percent(saved(figures.bytes, figures[column]))),
    ...["similar", "similarThenMarked"].map((column) => percent(saved(figures.encoded, figures[column]))),
  ]);
  return table([...head, "`wasm-opt` similar", "then `cranelift-mergefunc`"], rows);
}

function encoded(units) {
  const head = ["unit", "module", "written again", "code", "of what is written again"];
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
