// The figures as bars: where the time goes, what merging costs a compiler, how the pass scales.

import { WIDTH, box, image, line, text } from "../shared/svg.mjs";
import { PHASES, share, title } from "./tables.mjs";

const LEFT = 170;
const RIGHT = 70;
const BAR = 12;
const STEP = 14;
const TITLE = "Time of the pass";
const COLOURS = {
  add: ["#818b98", "#8b949e"],
  bucket: ["#0969da", "#388bfd"],
  refine: ["#8250df", "#a371f7"],
  decide: ["#1a7f37", "#3fb950"],
  search: ["#d15704", "#f0883e"],
  "second-pass": ["#bf8700", "#d29922"],
  apply: ["#cf222e", "#f85149"],
  visit: ["#818b98", "#8b949e"],
  identical: ["#0969da", "#388bfd"],
  all: ["#d15704", "#f0883e"],
};

export function chart(figures) {
  const parts = [text(20, 32, TITLE, "title")];
  const said = [];
  let y = 56;
  for (const panel of [phases(figures.phases), modules(figures.module), scale(figures.scale)]) {
    if (!panel) continue;
    const drawn = draw(panel, y);
    parts.push(...drawn.parts);
    said.push(`${panel.about} ${drawn.said.join("; ")}.`);
    y = drawn.bottom + 34;
  }
  parts.push(text(20, y - 8, "What is measured, and all figures: docs/performance.md", "quiet"));
  return image({ title: TITLE, description: said.join(" "), height: y + 8, style: style(), parts });
}

function style() {
  const rules = (at) => Object.entries(COLOURS).map(([name, colours]) => `rect.${name} { fill: ${colours[at]} }`);
  const dark = `@media (prefers-color-scheme: dark) {\n      ${rules(1).join("\n      ")}\n    }`;
  return `\n    ${rules(0).join("\n    ")}\n    ${dark}`;
}

/** Stacked bars: the phases, in percent of compiling. */
function phases(units) {
  if (!units) return undefined;
  const groups = Object.entries(units).map(([unit, row]) => {
    const pieces = PHASES.map((phase) => ({ name: css(phase), value: share(row, phase) }));
    const sum = pieces.reduce((all, { value }) => all + value, 0);
    return { label: title(unit), bars: [{ pieces, value: `${sum.toFixed(1)}%` }] };
  });
  const about = "Where the time goes: phases of the pass, percent of the time of compiling the unit without merging.";
  return { about, groups, keys: PHASES, tick: (value) => `${value}%` };
}

/** The time of a compiler with merging, in percent of that without. */
function modules(units) {
  if (!units) return undefined;
  const groups = Object.entries(units).map(([unit, row]) => {
    const bars = ["identical", "all"].map((name) => {
      const value = 100 * row[`${name}, ratio`];
      return { pieces: [{ name, value }], value: `${value.toFixed(1)}%` };
    });
    return { label: unit, bars };
  });
  const about = "From functions to an object file, percent of the time without merging, one thread.";
  return { about, groups, keys: ["identical", "all"], tick: (value) => `${value}%` };
}

/** How much longer a function takes in the largest generated unit than in one of 10,000. */
function scale(rows) {
  const families = Object.keys(rows ?? {}).filter((row) => row.endsWith(" exponent"));
  if (families.length === 0) return undefined;
  const groups = families.map((row) => {
    const bars = ["visit", "identical", "all"].map((name) => {
      const value = rows[row][name];
      return { pieces: [{ name, value }], value: value.toFixed(2) };
    });
    return { label: row.split(" ")[0], bars };
  });
  const about = "Scale: the exponent of time over the number of functions of generated units; 1 is linear.";
  return { about, groups, keys: ["visit", "identical", "all"], tick: (value) => value.toFixed(1) };
}

/** A panel: a line of text, a legend, an axis, and bars in groups. */
function draw({ about, groups, keys, tick }, top) {
  const parts = [text(20, top, about, "quiet")];
  let x = 20;
  for (const key of keys) {
    parts.push(box(x, top + 11, 13, BAR, css(key)), text(x + 19, top + 21, key));
    x += 40 + 7.5 * key.length;
  }
  const length = ({ pieces }) => pieces.reduce((all, { value }) => all + value, 0);
  const most = Math.max(...groups.flatMap(({ bars }) => bars.map(length)));
  const step = ticks(most);
  const scaled = (value) => (value * (WIDTH - LEFT - RIGHT)) / most;
  const begin = top + 56;
  const heights = groups.map(({ bars }) => bars.length * STEP + 8);
  const bottom = begin + heights.reduce((all, height) => all + height, 0);
  for (let value = 0; value <= most * 1.0001; value += step) {
    parts.push(line(LEFT + scaled(value), begin - 6, LEFT + scaled(value), bottom, "axis"));
    parts.push(text(LEFT + scaled(value), begin - 10, tick(Number(value.toFixed(6))), "quiet", "middle"));
  }
  const said = [];
  let y = begin;
  groups.forEach(({ label, bars }, index) => {
    parts.push(text(20, y + 10, label, "unit"));
    for (const bar of bars) {
      let from = LEFT;
      for (const { name, value } of bar.pieces) {
        parts.push(box(from, y, scaled(value), BAR, name));
        from += scaled(value);
      }
      parts.push(text(from + 5, y + BAR - 2, bar.value, "value halo"));
      y += STEP;
    }
    said.push(`${label}: ${bars.map(({ value }) => value).join(", ")}`);
    y = begin + heights.slice(0, index + 1).reduce((all, height) => all + height, 0);
  });
  return { parts, said, bottom };
}

/** The distance of ticks: 1, 2 or 5 of some power of ten, at most eight up to `most`. */
function ticks(most) {
  const power = 10 ** Math.floor(Math.log10(most / 8));
  return power * [1, 2, 5, 10].find((factor) => factor * power * 8 >= most);
}

function css(key) {
  return key.replace(/ /g, "-");
}
