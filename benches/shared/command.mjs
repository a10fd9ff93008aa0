// The common part of the commands of benches: arguments, and how they fail.

import path from "node:path";
import { Failure } from "./document.mjs";

/** The arguments of a command: options, and names among the known ones. `kind` is what they name, and in the plural. */
export function readArguments({ command, kind: [one, several], known, work }) {
  const all = process.argv.slice(2);
  const read = { update: false, render: false, work, names: [] };
  for (let at = 0; at < all.length; at++) {
    if (all[at] === "--update") read.update = true;
    else if (all[at] === "--render") read.render = true;
    else if (all[at] === "--dir" && at + 1 < all.length) read.work = path.resolve(all[++at]);
    else if (known.includes(all[at])) read.names.push(all[at]);
    else {
      console.error(`usage: ${command} [--update] [--render] [--dir DIR] [${one.toUpperCase()}…]
${several}: ${known.join(", ")}`);
      process.exit(2);
    }
  }
  return read;
}

/** Runs a command; a failure is one line. */
export function runCommand(main) {
  try {
    main();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    console.error(`error: ${error.message}`);
    process.exit(1);
  }
}
