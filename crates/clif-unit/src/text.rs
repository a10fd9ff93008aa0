//! A function as text that Cranelift's reader reads back.
//!
//! Cranelift's own printer loses the names of symbols in global values (`userextname0` stands where
//! `u1:2` should), the table of dynamic types, and the memory flags of atomic operations, and
//! prints what fills gaps in the numbers of global values. This module mends that and leaves
//! everything else to that printer. It also finds the line of a block or an instruction.

use crate::entities::fills_gap;
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::entities::AnyEntity;
use cranelift_codegen::ir::{
    Block, ExternalName, Function, GlobalValueData, Inst, InstructionData, Value,
};
use cranelift_codegen::write::{FuncWriter, PlainWriter, decorate_function, write_operands};
use cranelift_mergefunc::cranelift_codegen;
use std::fmt::{self, Write};

/// The text of a function.
pub fn of(func: &Function) -> String {
    with_line_of(func, None).0
}

/// The text of a function, and the line, from 0, of a block's header or of an instruction.
pub fn with_line_of(func: &Function, entity: Option<AnyEntity>) -> (String, Option<usize>) {
    let mut text = String::new();
    let mut writer = Writer { marked: entity };
    decorate_function(&mut writer, &mut text, func).expect("a string can be written to");
    if entity.is_none() {
        return (text, None);
    }
    let line = text.lines().position(|line| line.starts_with(MARK));
    (text.replace(MARK, ""), line)
}

/// Stands before the line of the entity that is looked for. CLIF has no such character.
const MARK: char = '\u{1}';

struct Writer {
    marked: Option<AnyEntity>,
}

impl Writer {
    /// Writes the text of `entity`, which may begin with empty lines.
    fn write(&self, w: &mut dyn Write, text: &str, entity: AnyEntity) -> fmt::Result {
        let line = text.trim_start_matches('\n');
        w.write_str(&text[..text.len() - line.len()])?;
        if self.marked == Some(entity) {
            w.write_char(MARK)?;
        }
        w.write_str(line)
    }
}

impl FuncWriter for Writer {
    fn write_block_header(
        &mut self,
        w: &mut dyn Write,
        func: &Function,
        block: Block,
        indent: usize,
    ) -> fmt::Result {
        let mut text = String::new();
        PlainWriter.write_block_header(&mut text, func, block, indent)?;
        self.write(w, &text, block.into())
    }

    fn write_instruction(
        &mut self,
        w: &mut dyn Write,
        func: &Function,
        aliases: &SecondaryMap<Value, Vec<Value>>,
        inst: Inst,
        indent: usize,
    ) -> fmt::Result {
        let mut text = String::new();
        PlainWriter.write_instruction(&mut text, func, aliases, inst, indent)?;
        if let InstructionData::AtomicRmw { flags, .. } | InstructionData::AtomicCas { flags, .. } =
            func.dfg.insts[inst]
        {
            let mut operands = String::new();
            write_operands(&mut operands, &func.dfg, inst)?;
            let flags = func.dfg.mem_flags[flags];
            text = text.replacen(&operands, &format!("{flags}{operands}"), 1);
        }
        // The reader knows a dynamic type by its entry only. Entries that differ in the scale
        // alone are one and the same type in an instruction.
        for (dynamic, data) in &func.dfg.dynamic_types {
            if let Some(ty) = data.concrete() {
                text = text.replace(&format!(".{ty} "), &format!(".{dynamic} "));
            }
        }
        self.write(w, &text, inst.into())
    }

    fn write_preamble(&mut self, w: &mut dyn Write, func: &Function) -> Result<bool, fmt::Error> {
        for (dynamic, data) in &func.dfg.dynamic_types {
            writeln!(w, "    {dynamic} = {}*{}", data.base_vector_ty, data.dynamic_scale)?;
        }
        let any = self.super_preamble(w, func)?;
        Ok(any || !func.dfg.dynamic_types.is_empty())
    }

    fn write_entity_definition(
        &mut self,
        w: &mut dyn Write,
        func: &Function,
        entity: AnyEntity,
        value: &dyn fmt::Display,
    ) -> fmt::Result {
        if let AnyEntity::GlobalValue(gv) = entity
            && let GlobalValueData::Symbol { name, offset, colocated: _, tls: _ } =
                &func.global_values[gv]
        {
            if fills_gap(name) {
                return Ok(());
            }
            let nameless = name.display(None).to_string();
            let mut named = name.display(Some(&func.params)).to_string();
            // Without the space, the reader would take the sign for a part of the name's number.
            if matches!(name, ExternalName::User(_)) && offset.bits() < 0 {
                named.push(' ');
            }
            let value = value.to_string().replacen(&nameless, &named, 1);
            return self.super_entity_definition(w, func, entity, &value);
        }
        self.super_entity_definition(w, func, entity, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_printer_loses_is_printed() {
        let text = "\
function u0:1(i64) -> i32 fast {
    dt0 = i32x4*gv1
    dss0 = explicit_dynamic_slot dt0
    gv0 = symbol colocated u1:2+8
    gv1 = dyn_scale_target_const.i32x4

block0(v0: i64):
    v1 = symbol_value.i64 gv0
    v2 = load.dt0 v1
    v3 = extract_vector v2, 0
    v4 = extractlane v3, 1
    v5 = atomic_rmw.i32 user3 little add v0, v4
    v6 = atomic_cas notrap aligned v0, v4, v5
    return v4
}
";
        let functions = cranelift_reader::parse_functions(text).unwrap();
        assert_eq!(of(&functions[0]), text);
    }

    /// `u0:1-8` was printed, of which the reader takes `1-8` for a number, and `gv0 = symbol %` for
    /// a number that no text has.
    #[test]
    fn symbols_are_printed_so_that_they_can_be_read() {
        let text = "\
function u0:1() -> i64 fast {
    gv1 = symbol u0:1 -8
    gv3 = symbol colocated tls u0:1 -10000
    gv4 = symbol u0:1+0x2710
    gv5 = symbol %f-8

block0:
    v0 = symbol_value.i64 gv1
    return v0
}
";
        let functions = cranelift_reader::parse_functions(text).unwrap();
        assert_eq!(of(&functions[0]), text);
    }

    #[test]
    fn lines_are_found() {
        let text = "function %f() fast {\nblock0:\n    jump block1\n\nblock1:\n    return\n}\n";
        let func = &cranelift_reader::parse_functions(text).unwrap()[0];
        let line = |entity| with_line_of(func, entity);
        assert_eq!(line(None), (text.to_owned(), None));
        assert_eq!(line(Some(Block::from_u32(1).into())), (text.to_owned(), Some(4)));
        assert_eq!(line(Some(Inst::from_u32(1).into())), (text.to_owned(), Some(5)));
        assert_eq!(line(Some(Inst::from_u32(9).into())), (text.to_owned(), None));
    }
}
