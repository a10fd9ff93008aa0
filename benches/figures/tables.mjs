// The figures as Markdown, a table for each bench.

import { table, thousands } from "../shared/document.mjs";

/** The phases of the pass, in order: what a unit spends on them. */
export const PHASES = ["add", "bucket", "refine", "decide", "search", "align", "apply"];
/** The baselines of the pass. */
const BASELINES = ["visit", "hash of Cranelift", "clone"];

const FAMILIES = {
  mixed: "mixed: many sizes and calls, 40% have an equal",
  chains: "chains: two call chains through half the unit each",
  rings: "rings: ten rings of mutually recursive functions",
  equal: "equal: 30% are one function, the others as in mixed",
  constants: "constants: one shape, all constants different",
  shapes: "shapes: equally many instructions, all shapes different",
};

export function tables({ phases, module, scale, latency, parallel }) {
  return {
    ...(phases && { phases: ofPhases(phases), floor: floor(phases) }),
    ...(module && { module: ofModules(module) }),
    ...(scale && { scale: ofScale(scale) }),
    ...(latency && { latency: ofLatency(latency) }),
    ...(parallel && { parallel: ofThreads(parallel) }),
  };
}

/** A generated unit is named for its functions. */
export function title(unit) {
  const [, count] = /^generated-(\d+)$/.exec(unit) ?? [];
  return count ? `${thousands(Number(count))} generated` : unit;
}

/** Percent of the time of compiling. */
export function share(row, what) {
  return (100 * row[what]) / row.compile;
}

function ofPhases(units) {
  const head = ["percent of compiling", "compile", ...PHASES, "sum", "whole pass"];
  const rows = Object.entries(units).map(([unit, row]) => {
    const shares = PHASES.map((phase) => share(row, phase));
    const sum = shares.reduce((all, one) => all + one, 0);
    const numbers = [...shares, sum, share(row, "whole pass")].map((number) => number.toFixed(2));
    return [title(unit), `${row.compile.toFixed(3)} s`, ...numbers];
  });
  return table(head, rows);
}

/** How often a bare visit fits into the time of each. */
function floor(units) {
  const timed = [...BASELINES, "encode", "encode and hash", "bucket", "whole pass", "compile"];
  const rows = Object.entries(units).map(([unit, row]) => {
    const ratios = timed.map((what) => (what === "visit" ? perFunction(row) : (row[what] / row.visit).toFixed(1)));
    return [title(unit), ...ratios];
  });
  return table(["times a visit", "visit, ns per function", ...timed.slice(1)], rows);
}

function perFunction(row) {
  return ((row.visit * 1e9) / row.functions).toFixed(0);
}

function ofModules(units) {
  const head = ["unit", "without", "identical only", "ratio", "all", "ratio", "code saved", "peak memory", "ratio"];
  const rows = Object.entries(units).map(([unit, row]) => {
    const of = (variant, what) => row[`${variant}, ${what}`];
    const [without, identical, all] = ["without", "identical", "all"].map((variant) => of(variant, "seconds"));
    const saved = 100 * (1 - of("all", "bytes") / of("without", "bytes"));
    const memory = ["without", "all"].map((variant) => of(variant, "KiB"));
    return [
      unit,
      `${without.toFixed(3)} s`,
      `${identical.toFixed(3)} s`,
      of("identical", "ratio").toFixed(3),
      `${all.toFixed(3)} s`,
      of("all", "ratio").toFixed(3),
      `${saved.toFixed(2)}%`,
      memory.every(Boolean) ? `${memory.map(thousands).join(" → ")} KiB` : "–",
      memory.every(Boolean) ? (memory[1] / memory[0]).toFixed(3) : "–",
    ];
  });
  return table(head, rows);
}

function ofScale(rows) {
  const head = ["unit", "functions", "visit", "identical", "all", "bytes, identical", "bytes, all"];
  const lines = [];
  for (const [family, about] of Object.entries(FAMILIES)) {
    const own = Object.keys(rows).filter((row) => new RegExp(`^${family} \\d+$`).test(row));
    const shown = own.length > 1 ? [own[0], own.at(-1)] : own;
    shown.forEach((row, at) => {
      const figures = ["visit", "identical", "all", "bytes, identical", "bytes, all"];
      const numbers = figures.map((figure) => thousands(Math.round(rows[row][figure])));
      lines.push([at === 0 ? about : "", thousands(Number(row.split(" ")[1])), ...numbers]);
    });
    const exponent = rows[`${family} exponent`];
    if (exponent) {
      const numbers = ["visit", "identical", "all"].map((figure) => exponent[figure].toFixed(2));
      lines.push(["", "exponent", ...numbers, "", ""]);
    }
  }
  return table(head, lines);
}

function ofLatency(rows) {
  const lines = Object.entries(rows).map(([row, { add, compile, equal, functions, kept }]) => [
    row.replace(/^\d+(?= known)/, (count) => thousands(Number(count))),
    `${add.toFixed(1)} µs`,
    `${compile.toFixed(0)} µs`,
    `${((100 * add) / compile).toFixed(1)}%`,
    `${thousands(equal)} of ${thousands(functions)}`,
    kept ? kept.toFixed(0) : "–",
  ]);
  return table(["", "add", "compile", "share", "equal an earlier one", "bytes kept of each"], lines);
}

function ofThreads(rows) {
  const numbers = (row) => Object.keys(row).filter((column) => /^\d+$/.test(column));
  const threads = numbers(Object.values(rows)[0] ?? {});
  const limit = (sequential, processors) => (1 / (sequential + (1 - sequential) / processors)).toFixed(1);
  const lines = Object.entries(rows).map(([row, figures]) => [
    row,
    ...threads.map((count) => `${figures[count].toFixed(3)} s`),
    ...threads.slice(1).map((count) => (figures["1"] / figures[count]).toFixed(2)),
    ...("sequential" in figures
      ? [`${(100 * figures.sequential).toFixed(1)}%`, limit(figures.sequential, 16)]
      : ["–", "–"]),
  ]);
  const head = [
    "",
    ...threads.map((count) => (count === "1" ? "1 thread" : `${count} threads`)),
    ...threads.slice(1).map((count) => `times faster, ${count}`),
    "sequential",
    "limit of 16",
  ];
  return table(head, lines);
}
