//! Targets without a jump that can replace a function: there, a call thunk does.
//!
//! A package of its own, because a code generator that is switched on for one test of a package is
//! switched on for all, the program included.

#[cfg(test)]
mod tests {
    use cranelift_codegen::isa;
    use cranelift_codegen::settings::{self, Configurable, Flags};
    use cranelift_mergefunc::{Disposition, Reason};
    use cranelift_mergefunc_module::MergingModule;
    use cranelift_module::{FuncId, Linkage, Module};
    use cranelift_object::object::read::elf::ElfFile64;
    use cranelift_object::object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
    use cranelift_object::{ObjectBuilder, ObjectModule};

    fn riscv64() -> ObjectModule {
        let mut flags = settings::builder();
        flags.set("is_pic", "true").unwrap();
        let isa = isa::lookup("riscv64gc-unknown-linux-gnu".parse().unwrap()).unwrap();
        let isa = isa.finish(Flags::new(flags)).unwrap();
        let names = cranelift_module::default_libcall_names();
        ObjectModule::new(ObjectBuilder::new(isa, "unit", names).unwrap())
    }

    /// Declares a function as exported and defines it.
    fn define(module: &mut dyn Module, name: &str, text: &str) -> FuncId {
        let mut context = module.make_context();
        context.func = cranelift_reader::parse_functions(text).unwrap().remove(0);
        let id = module.declare_function(name, Linkage::Export, &context.func.signature).unwrap();
        module.define_function(id, &mut context).unwrap();
        id
    }

    /// A function of `steps` multiplications and exclusive ors.
    fn long(name: &str, convention: &str, steps: usize) -> String {
        let mut text = format!("function %{name}(i64) -> i64 {convention} {{\nblock0(v0: i64):\n");
        for step in 0..steps {
            let [before, product, next] = [2 * step, 2 * step + 1, 2 * step + 2];
            text += &format!("    v{product} = imul v{before}, v{before}\n");
            text += &format!("    v{next} = bxor v{product}, v{before}\n");
        }
        text + &format!("    return v{}\n}}\n", 2 * steps)
    }

    #[test]
    fn a_call_thunk_replaces_a_longer_function() {
        for convention in ["system_v", "tail"] {
            let mut module = MergingModule::new(riscv64());
            let [f, g] =
                ["f", "g"].map(|name| define(&mut module, name, &long(name, convention, 40)));
            module.flush().unwrap();
            let thunk = (Disposition::Thunk { to: f }, Reason::VisibleOutside);
            assert_eq!(module.outcome(g), Some(thunk), "{convention}");
            assert_eq!((module.stats().compiled, module.stats().thunks), (1, 1));
            assert!(module.stats().saved_code_bytes > 0);

            let bytes = module.finish().unwrap().emit().unwrap();
            let file: ElfFile64<'_> = ElfFile64::parse(&*bytes).unwrap();
            let symbol = |name: &str| file.symbols().find(|s| s.name() == Ok(name)).unwrap();
            let [f, g] = ["f", "g"].map(|name| (symbol(name).address(), symbol(name).size()));
            assert!(g.1 < f.1, "{convention}: {} bytes in the place of {}", g.1, f.1);
            // The thunk calls the body, by whatever name.
            let text = file.section_by_name(".text").unwrap();
            let places = text
                .relocations()
                .filter(|(at, _)| (g.0..g.0 + g.1).contains(at))
                .filter_map(|(_, relocation)| match relocation.target() {
                    RelocationTarget::Symbol(index) => file.symbol_by_index(index).ok(),
                    _ => None,
                })
                .map(|symbol| symbol.address());
            assert_eq!(Vec::from_iter(places).first(), Some(&f.0), "{convention}");
        }
    }

    #[test]
    fn a_function_shorter_than_a_call_keeps_its_body() {
        let mut module = MergingModule::new(riscv64());
        let [_, g] = ["f", "g"].map(|name| define(&mut module, name, &long(name, "system_v", 1)));
        module.flush().unwrap();
        let kept = (Disposition::Keep, Reason::ThunkNotSmaller);
        assert_eq!(module.outcome(g), Some(kept));
        assert_eq!(module.stats().compiled, 2);
    }
}
