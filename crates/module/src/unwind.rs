//! The section `.eh_frame` of an object whose functions are defined by bytes.
//!
//! `ObjectModule` writes unwind information only for functions that it compiles itself. This writes
//! what it would have written, byte by byte: one entry for each function that was compiled, in the
//! order in which they were defined, and none for jumps.

use crate::ObjectFixups;
use cranelift_codegen::gimli::RunTimeEndian;
use cranelift_codegen::gimli::write::{
    Address, CommonInformationEntry, EhFrame, EndianVec, FrameTable, RelocateWriter, Relocation,
    RelocationTarget,
};
use cranelift_codegen::ir::Endianness;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::{UnwindInfo, systemv};
use cranelift_codegen::{CodegenResult, CompiledCode};
use cranelift_module::FuncId;
use cranelift_object::ObjectProduct;
use cranelift_object::object::write::{Relocation as ObjectRelocation, StandardSection};
use cranelift_object::object::{RelocationEncoding, RelocationFlags, RelocationKind};

/// The unwind information of functions, in the order in which they were defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnwindTable {
    functions: Vec<(FuncId, systemv::UnwindInfo)>,
    /// The part that all entries share; `None` if the target has no unwind information of this
    /// kind.
    common: Option<CommonInformationEntry>,
    endian: RunTimeEndian,
    /// Bytes.
    alignment: u64,
}

impl UnwindTable {
    pub fn new(isa: &dyn TargetIsa) -> UnwindTable {
        let endian = match isa.endianness() {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        };
        let alignment = u64::from(isa.pointer_bytes());
        UnwindTable { functions: Vec::new(), common: isa.create_systemv_cie(), endian, alignment }
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Writes the section, if there is anything to write.
    ///
    /// # Panics
    ///
    /// Where `ObjectModule::finish` panics: if the format has no relocation for absolute addresses.
    pub fn write(&self, product: &mut ObjectProduct) {
        let Some(common) = self.common.as_ref().filter(|_| !self.is_empty()) else {
            return;
        };
        let mut table = FrameTable::default();
        let common = table.add_cie(common.clone());
        for (symbol, (_, info)) in self.functions.iter().enumerate() {
            table.add_fde(common, info.to_fde(Address::Symbol { symbol, addend: 0 }));
        }
        let mut section =
            EhFrame(Section { writer: EndianVec::new(self.endian), relocations: Vec::new() });
        table.write_eh_frame(&mut section).expect("failed to write .eh_frame");
        let EhFrame(Section { writer, relocations }) = section;
        let id = product.object.section_id(StandardSection::EhFrame);
        product.object.append_section_data(id, writer.slice(), self.alignment);
        for Relocation { offset, size, target, addend, eh_pe: _ } in relocations {
            let RelocationTarget::Symbol(at) = target else {
                unreachable!("entries refer to functions only");
            };
            // Cranelift's entries have absolute addresses.
            let flags = RelocationFlags::Generic {
                kind: RelocationKind::Absolute,
                encoding: RelocationEncoding::Generic,
                size: size * 8,
            };
            let symbol = product.function_symbol(self.functions[at].0);
            let relocation = ObjectRelocation { offset: offset as u64, symbol, addend, flags };
            product.object.add_relocation(id, relocation).expect("failed to emit .eh_frame");
        }
    }
}

impl ObjectFixups {
    /// Adds the unwind information of a function that is about to be defined by bytes, if it is
    /// wanted.
    ///
    /// # Errors
    ///
    /// Those of `CompiledCode::create_unwind_info`.
    pub(crate) fn add_unwind_info(
        &mut self,
        function: FuncId,
        code: &CompiledCode,
        isa: &dyn TargetIsa,
    ) -> CodegenResult<()> {
        if let Some(table) = &mut self.unwind
            && let Some(UnwindInfo::SystemV(info)) = code.create_unwind_info(isa)?
        {
            table.functions.push((function, info));
        }
        Ok(())
    }
}

/// The bytes of the section, and the addresses in them.
struct Section {
    writer: EndianVec<RunTimeEndian>,
    relocations: Vec<Relocation>,
}

impl RelocateWriter for Section {
    type Writer = EndianVec<RunTimeEndian>;

    fn writer(&self) -> &Self::Writer {
        &self.writer
    }

    fn writer_mut(&mut self) -> &mut Self::Writer {
        &mut self.writer
    }

    fn relocate(&mut self, relocation: Relocation) {
        self.relocations.push(relocation);
    }
}
