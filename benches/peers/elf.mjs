// Reads and rewrites 64-bit little-endian ELF files.

const SHT_PROGBITS = 1;
const SHT_SYMTAB = 2;
const SHT_STRTAB = 3;
const SHT_RELA = 4;
const SHF_ALLOC_EXEC = 6n;
const STT_FUNC = 2;
const SECTION_HEADER = 64;
const SYMBOL = 24;
const RELA = 24;
// Section numbers from here on do not fit into a symbol.
const SHN_LORESERVE = 0xff00;

/** How many functions an object or an image defines. */
export function functionCount(bytes) {
  return functions(read(bytes)).length;
}

/** The bytes of the functions whose symbols `counts` accepts. Code with several symbols counts once. */
export function codeBytes(bytes, counts = () => true) {
  const places = new Map();
  for (const { name, section, value, size } of functions(read(bytes))) {
    if (size === 0 || !counts(name)) continue;
    const place = `${section} ${value}`;
    if ((places.get(place) ?? size) !== size) throw new Error(`two sizes at ${place}`);
    places.set(place, size);
  }
  let total = 0;
  for (const size of places.values()) total += size;
  return total;
}

/**
 * Gives each function of an object a section of its own, as `ObjectBuilder::per_function_section` of
 * `cranelift-object` does; `clif-merge` writes one section. All calls are relocations, so the bytes stay as they are.
 */
export function splitSections(bytes) {
  const elf = read(bytes);
  const text = elf.sections.findIndex(({ name }) => name === ".text");
  const symbolsOf = new Map();
  for (const symbol of functions(elf).filter(({ section }) => section === text)) {
    // An eliminated function may be left as a symbol of size 0.
    const key = symbol.size === 0 ? 0n : symbol.value;
    symbolsOf.set(key, [...(symbolsOf.get(key) ?? []), symbol]);
  }
  const parts = [...symbolsOf.values()].map((symbols) => {
    const [{ name, value, size }] = [...symbols].sort((a, b) => b.size - a.size);
    return { name, value, size, symbols };
  });
  parts.sort((a, b) => Number(a.value - b.value));
  const code = elf.sections[text].data;
  const relocations = parts.map(() => []);
  for (const section of elf.sections.filter(({ type, info }) => type === SHT_RELA && info === text)) {
    let part = 0;
    const entries = [];
    for (let at = 0; at < section.data.length; at += RELA) entries.push(section.data.subarray(at, at + RELA));
    entries.sort((a, b) => Number(a.readBigUInt64LE() - b.readBigUInt64LE()));
    for (const entry of entries) {
      const offset = entry.readBigUInt64LE();
      while (part + 1 < parts.length && parts[part + 1].value <= offset) part++;
      const { value, size } = parts[part];
      if (offset < value || offset >= value + BigInt(size)) throw new Error("a relocation outside of functions");
      const moved = Buffer.from(entry);
      moved.writeBigUInt64LE(offset - value);
      relocations[part].push(moved);
    }
  }

  const sections = [{ name: "", type: 0, data: Buffer.alloc(0) }];
  const align = elf.machine === 183 ? 4n : 1n;
  const sectionOf = new Map();
  for (const { name, value, size, symbols } of parts) {
    for (const { index } of symbols) sectionOf.set(index, sections.length);
    const data = code.subarray(Number(value), Number(value) + size);
    sections.push({ name: `.text.${name}`, type: SHT_PROGBITS, flags: SHF_ALLOC_EXEC, align, data });
  }
  const symtab = sections.length + relocations.filter(({ length }) => length > 0).length;
  relocations.forEach((entries, part) => {
    if (entries.length === 0) return;
    sections.push({
      name: `.rela.text.${parts[part].name}`,
      type: SHT_RELA,
      flags: 0x40n,
      link: symtab,
      info: part + 1,
      align: 8n,
      entry: BigInt(RELA),
      data: Buffer.concat(entries),
    });
  });
  if (sections.length + 4 >= SHN_LORESERVE) throw new Error(`too many sections: ${sections.length}`);

  const symbols = Buffer.from(elf.symtab.data);
  for (let index = 1; index * SYMBOL < symbols.length; index++) {
    const at = index * SYMBOL;
    if (symbols.readUInt16LE(at + 6) !== text) {
      if (isSection(symbols.readUInt16LE(at + 6))) throw new Error("a symbol outside of .text");
      continue;
    }
    if (!sectionOf.has(index)) throw new Error("a symbol in .text that is no function");
    symbols.writeUInt16LE(sectionOf.get(index), at + 6);
    symbols.writeBigUInt64LE(0n, at + 8);
  }
  sections.push({
    ...{ name: ".symtab", type: SHT_SYMTAB, link: symtab + 1, info: elf.symtab.info },
    ...{ align: 8n, entry: BigInt(SYMBOL), data: symbols },
  });
  sections.push({ name: ".strtab", type: SHT_STRTAB, data: elf.sections[elf.symtab.link].data });
  sections.push({ name: ".note.GNU-stack", type: SHT_PROGBITS, data: Buffer.alloc(0) });
  return write(bytes.subarray(0, 64), sections);
}

function isSection(index) {
  return index !== 0 && index < SHN_LORESERVE;
}

function read(bytes) {
  if (bytes.readUInt32BE(0) !== 0x7f454c46 || bytes[4] !== 2 || bytes[5] !== 1) throw new Error("not a 64-bit ELF file");
  const table = Number(bytes.readBigUInt64LE(40));
  // If there are too many sections for this field, the first section has their number.
  const count = bytes.readUInt16LE(60) || Number(bytes.readBigUInt64LE(table + 32));
  const names = bytes.readUInt16LE(62);
  const sections = [];
  for (let index = 0; index < count; index++) {
    const at = table + index * SECTION_HEADER;
    const type = bytes.readUInt32LE(at + 4);
    const [offset, size] = [24, 32].map((field) => Number(bytes.readBigUInt64LE(at + field)));
    sections.push({
      nameAt: bytes.readUInt32LE(at),
      type,
      link: bytes.readUInt32LE(at + 40),
      info: bytes.readUInt32LE(at + 44),
      // SHT_NOBITS has a size and no bytes.
      data: type === 8 ? Buffer.alloc(0) : bytes.subarray(offset, offset + size),
    });
  }
  for (const section of sections) section.name = text(sections[names].data, section.nameAt);
  const symtab = sections.find(({ type }) => type === SHT_SYMTAB);
  if (!symtab) throw new Error("no symbols");
  return { machine: bytes.readUInt16LE(18), sections, symtab };
}

/** The functions that a file defines. */
function functions({ sections, symtab }) {
  const found = [];
  const names = sections[symtab.link].data;
  for (let index = 1; index * SYMBOL < symtab.data.length; index++) {
    const symbol = symtab.data.subarray(index * SYMBOL, (index + 1) * SYMBOL);
    const section = symbol.readUInt16LE(6);
    if ((symbol[4] & 15) !== STT_FUNC || !isSection(section)) continue;
    const name = text(names, symbol.readUInt32LE(0));
    found.push({ name, section, index, value: symbol.readBigUInt64LE(8), size: Number(symbol.readBigUInt64LE(16)) });
  }
  return found;
}

function text(data, at) {
  return data.toString("latin1", at, data.indexOf(0, at));
}

function write(header, sections) {
  sections.push({ name: ".shstrtab", type: SHT_STRTAB });
  const places = [];
  let length = 0;
  for (const { name } of sections) {
    places.push(length);
    length += name.length + 1;
  }
  sections.at(-1).data = Buffer.from(sections.map(({ name }) => `${name}\0`).join(""), "latin1");

  const pieces = [Buffer.from(header)];
  const headers = Buffer.alloc(sections.length * SECTION_HEADER);
  let end = header.length;
  const put = (data, align) => {
    const padding = (align - (end % align)) % align;
    pieces.push(Buffer.alloc(padding), data);
    const place = end + padding;
    end = place + data.length;
    return place;
  };
  sections.forEach(({ type, flags = 0n, link = 0, info = 0, align = 1n, entry = 0n, data }, index) => {
    if (type === 0) return;
    const at = index * SECTION_HEADER;
    const place = put(data, Number(align));
    headers.writeUInt32LE(places[index], at);
    headers.writeUInt32LE(type, at + 4);
    headers.writeBigUInt64LE(flags, at + 8);
    headers.writeBigUInt64LE(BigInt(place), at + 24);
    headers.writeBigUInt64LE(BigInt(data.length), at + 32);
    headers.writeUInt32LE(link, at + 40);
    headers.writeUInt32LE(info, at + 44);
    headers.writeBigUInt64LE(align, at + 48);
    headers.writeBigUInt64LE(entry, at + 56);
  });
  pieces[0].writeBigUInt64LE(BigInt(put(headers, 8)), 40);
  pieces[0].writeUInt16LE(sections.length, 60);
  pieces[0].writeUInt16LE(sections.length - 1, 62);
  return Buffer.concat(pieces);
}
