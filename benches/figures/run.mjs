// Runs the benches; `run` says how it is used.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { readArguments, runCommand } from "../shared/command.mjs";
import { Failure, replaceGenerated } from "../shared/document.mjs";
import { chart } from "./chart.mjs";
import { tables } from "./tables.mjs";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
// The command that the marks in documents name before each table.
const COMMAND = "benches/figures/run --update";

/** Arguments of `cargo bench`. */
const BENCHES = {
  phases: ["--bench", "phases"],
  module: ["-p", "clif-merge", "--bench", "module"],
  scale: ["--bench", "scale"],
  latency: ["--bench", "latency"],
  parallel: ["--features", "object,parallel", "--bench", "parallel"],
};
const DOCUMENT = "docs/performance.md";

function main() {
  const { update, render, work, names } = readArguments({
    command: "benches/figures/run",
    kind: ["bench", "benches"],
    known: Object.keys(BENCHES),
    work: path.join(ROOT, "target/figures"),
  });
  fs.mkdirSync(work, { recursive: true });
  if (!render) measure(names.length > 0 ? names : Object.keys(BENCHES), work);
  const figures = {};
  for (const bench of Object.keys(BENCHES)) {
    const file = path.join(work, `${bench}.json`);
    if (fs.existsSync(file)) figures[bench] = JSON.parse(fs.readFileSync(file, "utf8"));
  }
  const found = Object.keys(figures);
  if (found.length === 0) throw new Failure(`there are no figures in ${work} yet: run without --render`);
  if (update && found.length < Object.keys(BENCHES).length) throw new Failure("--update takes figures of all benches");

  const made = tables(figures);
  const picture = chart(figures);
  const text = Object.values(made).join("\n\n");
  fs.writeFileSync(path.join(work, "figures.md"), `${text}\n`);
  fs.writeFileSync(path.join(work, "performance.svg"), picture);
  if (update) {
    fs.writeFileSync(path.join(ROOT, "docs/performance.svg"), picture);
    for (const [name, table] of Object.entries(made)) {
      replaceGenerated(path.join(ROOT, DOCUMENT), `${COMMAND}: ${name}`, `${table}\n`);
    }
  }
  process.stdout.write(`${text}\n`);
}

function measure(names, work) {
  const env = { CLIF_MERGE_FUNCTIONS: "1000000", ...process.env, CLIF_MERGE_FIGURES: work };
  if (env.CLIF_MERGE_UNITS) env.CLIF_MERGE_UNITS = path.resolve(env.CLIF_MERGE_UNITS);
  for (const name of names) {
    console.error(`figures: ${name}`);
    // All share the build of one.
    const options = { env, cwd: ROOT, stdio: ["ignore", process.stderr, "inherit"] };
    try {
      execFileSync("cargo", ["bench", "--quiet", "--locked", ...BENCHES[name]], options);
    } catch {
      throw new Failure(`cargo bench ${BENCHES[name].join(" ")} failed`);
    }
  }
}

runCommand(main);
