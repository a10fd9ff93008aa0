// The figures as a bar chart.

import { box as rect, image, line, text } from "../shared/svg.mjs";
import { isShown, percent, saved } from "./tables.mjs";

const LEFT = 222;
const BAR = 12;
const STEP = 14;
const GROUP = 14;
const TOP = 156;
const SCALE = 9.4;

const SERIES = {
  icf: { label: "linker, --icf=all" },
  llvm: { label: "LLVM MergeFunctions" },
  duplicates: { label: "wasm-opt, duplicate functions" },
  similar: { label: "wasm-opt, similar functions as well", pale: "with typed references", more: "typed" },
  ours: { label: "cranelift-mergefunc", pale: "if no function has to keep its symbol", more: "all local" },
};
// Places in the legend: x, y, and x of the pale box.
const LEGEND = { icf: [20, 78], llvm: [180, 78], duplicates: [370, 78], similar: [20, 100, 290], ours: [20, 122, 290] };

const TITLE = "Code saved by merging functions, x86-64";
const STYLE = `
    .ours.value { font-weight: 600 }
    rect.icf { fill: #818b98 }
    rect.llvm { fill: #8250df }
    rect.duplicates { fill: #80ccff }
    rect.similar { fill: #0969da }
    rect.ours { fill: #d15704 }
    .more { opacity: 0.38 }
    @media (prefers-color-scheme: dark) {
      rect.icf { fill: #8b949e }
      rect.llvm { fill: #a371f7 }
      rect.duplicates { fill: #a5d6ff }
      rect.similar { fill: #388bfd }
      rect.ours { fill: #f0883e }
    }`;

export function chart({ units: all }) {
  const units = all.filter(isShown);
  const groups = units.map((unit) => bars(unit));
  const height = TOP + groups.reduce((all, { length }) => all + length * STEP + GROUP, 0) + 26;
  const parts = [
    text(20, 32, TITLE, "title"),
    text(20, 52, "Percent of the machine code of the functions of each program, compiled by Cranelift with and without merging.", "quiet"),
  ];
  for (const [key, { label, pale }] of Object.entries(SERIES)) {
    const [x, y, paleX] = LEGEND[key];
    parts.push(box(x, y - 11, 13, key), text(x + 20, y, label));
    if (pale) parts.push(box(paleX, y - 11, 13, `${key} more`), text(paleX + 20, y, pale));
  }
  const bottom = height - 34;
  for (let tick = 0; tick <= 40; tick += 10) {
    const x = LEFT + tick * SCALE;
    parts.push(line(x, TOP - 8, x, bottom, "axis"));
    parts.push(text(x, TOP - 13, `${tick}%`, "quiet", "middle"));
  }
  let y = TOP;
  units.forEach((unit, index) => {
    parts.push(text(20, y + 17, unit.name, "unit"), text(20, y + 33, unit.about, "quiet"));
    for (const bar of groups[index]) {
      parts.push(...drawn(bar, y));
      y += STEP;
    }
    y += GROUP;
  });
  parts.push(text(20, height - 12, note(all), "quiet"));
  return image({ title: TITLE, description: summary(units), height, style: STYLE, parts });
}

/** The bars of a unit; `more` is where the pale part ends. */
function bars({ module: { x86_64: figures }, whole }) {
  const of = (column) => saved(figures.bytes, figures[column]);
  const encoded = (variant) => saved(figures.encoded, figures[variant]);
  const all = [{ key: "icf", value: of("lld") }];
  if (figures.llvm !== undefined) all.push({ key: "llvm", value: of("llvm") });
  if (whole) {
    all.push({ key: "duplicates", value: encoded("duplicates") });
    all.push({ key: "similar", value: encoded("similar"), more: encoded("typed") });
  } else {
    all.push({ key: "similar", absent: "wasm-opt: not measured, the module is not published" });
  }
  all.push({ key: "ours", value: of("marked"), more: of("local") });
  return all;
}

function drawn({ key, value, more, absent }, y) {
  const base = y + BAR - 2;
  if (absent) return [text(LEFT + 5, base, absent, "quiet halo")];
  const width = (number) => Math.max(0, number ?? 0) * SCALE;
  const [inner, outer] = [width(value), Math.max(width(value), width(more))];
  const parts = [box(LEFT, y, Math.max(inner, value === undefined ? 0 : 1), key)];
  if (outer > inner) parts.push(box(LEFT + inner, y, outer - inner, `${key} more`));
  const figures = [];
  if (value !== undefined) figures.push(percent(value));
  if (more !== undefined && percent(more) !== percent(value)) {
    const what = `${percent(more)} ${SERIES[key].more}`;
    figures.push(value === undefined ? what : `(${what})`);
  }
  parts.push(text(LEFT + outer + 5, base, figures.join(" "), `${key} value halo`));
  return parts;
}

function box(x, y, width, name) {
  return rect(x, y, width, BAR, name);
}

/** Which units are measured and not drawn. */
function note(units) {
  const left = units.filter((unit) => !isShown(unit)).map(({ name }) => name);
  const what = left.length > 0 ? `Not drawn: ${left.join(", ")}. ` : "";
  return `${what}What exactly is compared, and all figures: docs/peers.md`;
}

function summary(units) {
  const each = units.map((unit) => {
    const measured = bars(unit).filter(({ absent }) => !absent);
    const figures = measured.map(({ key, value, more }) => `${SERIES[key].label} ${percent(value ?? more)}`);
    return `${unit.name}: ${figures.join(", ")}`;
  });
  return `Percent of the code of each unit. ${each.join("; ")}.`;
}
