// Markdown that is made: tables, and parts of documents between two marks.

import fs from "node:fs";

/** An error that is reported in one line, without a trace. */
export class Failure extends Error {}

/** Replaces what is between the two marks of a document, of which the first names a command. */
export function replaceGenerated(file, command, text) {
  const [begin, end] = [`<!-- begin: ${command} -->\n`, "<!-- end -->\n"];
  const [before, rest] = fs.readFileSync(file, "utf8").split(begin);
  const at = rest?.indexOf(end) ?? -1;
  if (at < 0) throw new Failure(`${file} has no marks for ${command}`);
  fs.writeFileSync(file, `${before}${begin}\n${text}\n${rest.slice(at)}`);
}

/** A table whose columns but the first few are numbers; nothing if there are no rows. */
export function table(head, rows, texts = 1) {
  if (rows.length === 0) return undefined;
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const rule = `|${head.map((_, index) => (index < texts ? "---" : "---:")).join("|")}|`;
  return [line(head), rule, ...rows.map(line)].join("\n");
}

export function thousands(number) {
  return number.toLocaleString("en-US");
}
