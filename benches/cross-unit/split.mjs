// Gives each function of the objects in a directory a section of its own, for linkers that fold sections:
//
//   node split.mjs FROM TO

import fs from "node:fs";
import path from "node:path";
import { splitSections } from "../peers/elf.mjs";

const [from, to] = process.argv.slice(2);
for (const name of fs.readdirSync(from).filter((name) => name.endsWith(".o"))) {
  fs.writeFileSync(path.join(to, name), splitSections(fs.readFileSync(path.join(from, name))));
}
