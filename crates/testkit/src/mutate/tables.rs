//! Every single change of a table entry that an instruction refers to: signatures, callees, global
//! values.
//!
//! All patterns name every field, as in `mutate`.

use cranelift_codegen::ir::immediates::{Imm64, Offset32};
use cranelift_codegen::ir::{
    AbiParam, ArgumentExtension, ArgumentPurpose, ExtFuncData, ExternalName, FuncRef, Function,
    GlobalValue, GlobalValueData, KnownSymbol, LibCall, MemFlags, MemFlagsData, Signature,
    TrapCode, Type, UserExternalName, types,
};
use cranelift_codegen::isa::CallConv;

/// A change that makes a new table entry in a copy of the function.
pub type Change<T> = Box<dyn FnOnce(&mut Function) -> T>;

const CALL_CONVS: [CallConv; 8] = [
    CallConv::Fast,
    CallConv::Tail,
    CallConv::SystemV,
    CallConv::WindowsFastcall,
    CallConv::AppleAarch64,
    CallConv::Probestack,
    CallConv::Winch,
    CallConv::PreserveAll,
];

/// A compile error where `CALL_CONVS` may lack a new one.
#[allow(dead_code, reason = "it is there to be compiled")]
fn call_convs_are_complete(call_conv: CallConv) {
    match call_conv {
        CallConv::Fast | CallConv::Tail | CallConv::SystemV | CallConv::WindowsFastcall => {}
        CallConv::AppleAarch64 | CallConv::Probestack | CallConv::Winch => {}
        CallConv::PreserveAll => {}
    }
}

/// Every single change of a signature, with what it is.
pub fn signature_mutants(signature: &Signature) -> Vec<(String, Signature)> {
    let Signature { params, returns, call_conv } = signature;
    let mut mutants = Vec::new();
    for (what, params) in param_mutants(params) {
        mutants.push((
            format!("signature: {what} of the parameters"),
            Signature { params, ..signature.clone() },
        ));
    }
    for (what, returns) in param_mutants(returns) {
        mutants.push((
            format!("signature: {what} of the results"),
            Signature { returns, ..signature.clone() },
        ));
    }
    for other in CALL_CONVS.into_iter().filter(|other| other != call_conv) {
        let mutant = Signature { call_conv: other, ..signature.clone() };
        mutants.push((format!("signature: {other}"), mutant));
    }
    mutants
}

fn param_mutants(params: &[AbiParam]) -> Vec<(String, Vec<AbiParam>)> {
    let mut mutants = Vec::new();
    for (at, &AbiParam { value_type, purpose, extension }) in params.iter().enumerate() {
        let other_type = if value_type == types::I32 { types::I64 } else { types::I32 };
        let mut others = vec![("type", AbiParam { value_type: other_type, purpose, extension })];
        let purposes = match purpose {
            ArgumentPurpose::Normal => [
                ArgumentPurpose::StructArgument(8),
                ArgumentPurpose::StructReturn,
                ArgumentPurpose::VMContext,
            ],
            ArgumentPurpose::StructArgument(size) => [
                ArgumentPurpose::StructArgument(size + 8),
                ArgumentPurpose::Normal,
                ArgumentPurpose::StructReturn,
            ],
            ArgumentPurpose::StructReturn => [
                ArgumentPurpose::Normal,
                ArgumentPurpose::VMContext,
                ArgumentPurpose::StructArgument(0),
            ],
            ArgumentPurpose::VMContext => [
                ArgumentPurpose::Normal,
                ArgumentPurpose::StructReturn,
                ArgumentPurpose::StructArgument(0),
            ],
        };
        for purpose in purposes {
            others.push(("purpose", AbiParam { value_type, purpose, extension }));
        }
        let extensions = match extension {
            ArgumentExtension::None => [ArgumentExtension::Uext, ArgumentExtension::Sext],
            ArgumentExtension::Uext => [ArgumentExtension::None, ArgumentExtension::Sext],
            ArgumentExtension::Sext => [ArgumentExtension::None, ArgumentExtension::Uext],
        };
        for extension in extensions {
            others.push(("extension", AbiParam { value_type, purpose, extension }));
        }
        for (what, other) in others {
            let mut mutant = params.to_vec();
            mutant[at] = other;
            mutants.push((format!("{what} {at}"), mutant));
        }
        let mut mutant = params.to_vec();
        mutant.remove(at);
        mutants.push((format!("removal {at}"), mutant));
        if params.get(at + 1).is_some_and(|next| *next != params[at]) {
            let mut mutant = params.to_vec();
            mutant.swap(at, at + 1);
            mutants.push((format!("exchange {at}"), mutant));
        }
    }
    let mut mutant = params.to_vec();
    mutant.push(AbiParam::new(types::I64));
    mutants.push(("one more".into(), mutant));
    mutants
}

/// A symbol in plain data: a user-defined one is an index in `ExternalName`.
#[derive(Clone, Debug, PartialEq)]
enum Symbol {
    User(UserExternalName),
    Other(ExternalName),
}

impl Symbol {
    fn of(func: &Function, name: &ExternalName) -> Symbol {
        match name {
            ExternalName::User(name) => Symbol::User(func.params.user_named_funcs()[*name].clone()),
            ExternalName::TestCase(_) | ExternalName::LibCall(_) | ExternalName::KnownSymbol(_) => {
                Symbol::Other(name.clone())
            }
        }
    }

    fn build(self, func: &mut Function) -> ExternalName {
        match self {
            Symbol::User(name) => ExternalName::User(func.params.ensure_user_func_name(name)),
            Symbol::Other(name) => name,
        }
    }
}

fn other_symbols(symbol: &Symbol) -> Vec<Symbol> {
    let mut others = vec![
        Symbol::User(UserExternalName::new(1, 500)),
        Symbol::User(UserExternalName::new(500, 1)),
        Symbol::Other(ExternalName::testcase("other")),
        Symbol::Other(ExternalName::testcase("othe")),
        Symbol::Other(ExternalName::LibCall(LibCall::FmaF32)),
        Symbol::Other(ExternalName::LibCall(LibCall::FmaF64)),
        Symbol::Other(ExternalName::KnownSymbol(KnownSymbol::ElfGlobalOffsetTable)),
        Symbol::Other(ExternalName::KnownSymbol(KnownSymbol::CoffTlsIndex)),
    ];
    if let Symbol::User(UserExternalName { namespace, index }) = symbol {
        others.push(Symbol::User(UserExternalName::new(*namespace, index + 256)));
        others.push(Symbol::User(UserExternalName::new(namespace + 256, *index)));
    }
    others.retain(|other| other != symbol);
    others
}

/// Every single change of a callee, as what makes it in a copy of the function.
pub fn callee_mutants(func: &Function, callee: FuncRef) -> Vec<(String, Change<FuncRef>)> {
    // `colocated` is a fact; that it does not count is said in `sensitivity`.
    let ExtFuncData { name, signature, colocated, patchable } = func.dfg.ext_funcs[callee].clone();
    let mut mutants: Vec<(String, Change<FuncRef>)> = Vec::new();
    let symbol = Symbol::of(func, &name);
    for other in other_symbols(&symbol) {
        mutants.push((
            format!("callee {other:?} instead"),
            Box::new(move |func| {
                let name = other.build(func);
                func.import_function(ExtFuncData { name, signature, colocated, patchable })
            }),
        ));
    }
    for (what, other) in signature_mutants(&func.dfg.signatures[signature]) {
        let name = name.clone();
        mutants.push((
            format!("callee's {what}"),
            Box::new(move |func| {
                let signature = func.import_signature(other);
                func.import_function(ExtFuncData { name, signature, colocated, patchable })
            }),
        ));
    }
    let patchable = !patchable;
    mutants.push((
        "patchable".into(),
        Box::new(move |func| {
            func.import_function(ExtFuncData { name, signature, colocated, patchable })
        }),
    ));
    mutants
}

/// A link of a global value's chain in plain data; `base` is the next link.
#[derive(Clone, Debug)]
enum Link {
    VMContext,
    Load { offset: Offset32, global_type: Type, flags: MemFlagsData },
    IAddImm { offset: Imm64, global_type: Type },
    Symbol { symbol: Symbol, offset: Imm64, colocated: bool, tls: bool },
    DynScale { vector_type: Type },
}

fn chain(func: &Function, mut global: GlobalValue) -> Vec<Link> {
    let mut links = Vec::new();
    loop {
        match &func.global_values[global] {
            GlobalValueData::VMContext => links.push(Link::VMContext),
            GlobalValueData::Load { base, offset, global_type, flags } => {
                let flags = func.dfg.mem_flags[*flags];
                links.push(Link::Load { offset: *offset, global_type: *global_type, flags });
                global = *base;
                continue;
            }
            GlobalValueData::IAddImm { base, offset, global_type } => {
                links.push(Link::IAddImm { offset: *offset, global_type: *global_type });
                global = *base;
                continue;
            }
            GlobalValueData::Symbol { name, offset, colocated, tls } => links.push(Link::Symbol {
                symbol: Symbol::of(func, name),
                offset: *offset,
                colocated: *colocated,
                tls: *tls,
            }),
            GlobalValueData::DynScaleTargetConst { vector_type } => {
                links.push(Link::DynScale { vector_type: *vector_type });
            }
        }
        return links;
    }
}

fn build_chain(func: &mut Function, links: Vec<Link>) -> GlobalValue {
    let mut global = None;
    for link in links.into_iter().rev() {
        let base = || global.expect("the last link has no base");
        let data = match link {
            Link::VMContext => GlobalValueData::VMContext,
            Link::Load { offset, global_type, flags } => {
                let flags: MemFlags = func.dfg.mem_flags.insert(flags).expect("few flags");
                GlobalValueData::Load { base: base(), offset, global_type, flags }
            }
            Link::IAddImm { offset, global_type } => {
                GlobalValueData::IAddImm { base: base(), offset, global_type }
            }
            Link::Symbol { symbol, offset, colocated, tls } => {
                GlobalValueData::Symbol { name: symbol.build(func), offset, colocated, tls }
            }
            Link::DynScale { vector_type } => GlobalValueData::DynScaleTargetConst { vector_type },
        };
        global = Some(func.create_global_value(data));
    }
    global.expect("a chain has a link")
}

/// Changes of a global value, at any link of its chain.
pub fn global_mutants(func: &Function, global: GlobalValue) -> Vec<(String, Change<GlobalValue>)> {
    let links = chain(func, global);
    let mut mutants: Vec<(String, Change<GlobalValue>)> = Vec::new();
    for (at, link) in links.iter().enumerate() {
        for (what, other) in link_mutants(link) {
            let mut links = links.clone();
            links[at] = other;
            let change: Change<GlobalValue> = Box::new(move |func| build_chain(func, links));
            mutants.push((format!("global value, link {at}: {what}"), change));
        }
    }
    let mut longer = links.clone();
    longer.insert(0, Link::IAddImm { offset: Imm64::new(8), global_type: types::I64 });
    mutants.push(("one more link".into(), Box::new(move |func| build_chain(func, longer))));
    mutants
}

fn link_mutants(link: &Link) -> Vec<(&'static str, Link)> {
    let flip = |offset: Imm64, bit: u32| Imm64::new(offset.bits() ^ 1 << bit);
    let other_type = |ty: Type| if ty == types::I32 { types::I64 } else { types::I32 };
    match link.clone() {
        Link::VMContext => {
            vec![("kind", Link::DynScale { vector_type: types::I8X16 })]
        }
        Link::Load { offset, global_type, flags } => {
            let mut mutants = Vec::new();
            for bit in [0, 31] {
                let offset = Offset32::new(i32::from(offset) ^ 1 << bit);
                mutants.push(("offset", Link::Load { offset, global_type, flags }));
            }
            let other = other_type(global_type);
            mutants.push(("type", Link::Load { offset, global_type: other, flags }));
            let trap = flags.with_trap_code(Some(TrapCode::unwrap_user(44)));
            for flags in [trap, flags.with_can_move(), MemFlagsData::new()] {
                mutants.push(("flags", Link::Load { offset, global_type, flags }));
            }
            let addition = Imm64::new(i64::from(i32::from(offset)));
            mutants.push(("kind", Link::IAddImm { offset: addition, global_type }));
            mutants
        }
        Link::IAddImm { offset, global_type } => vec![
            ("offset", Link::IAddImm { offset: flip(offset, 0), global_type }),
            ("offset", Link::IAddImm { offset: flip(offset, 63), global_type }),
            ("type", Link::IAddImm { offset, global_type: other_type(global_type) }),
        ],
        Link::Symbol { symbol, offset, colocated, tls } => {
            let mut mutants = Vec::new();
            for symbol in other_symbols(&symbol) {
                mutants.push(("symbol", Link::Symbol { symbol, offset, colocated, tls }));
            }
            for bit in [0, 63] {
                let (symbol, offset) = (symbol.clone(), flip(offset, bit));
                mutants.push(("offset", Link::Symbol { symbol, offset, colocated, tls }));
            }
            mutants.push(("tls", Link::Symbol { symbol, offset, colocated, tls: !tls }));
            mutants.push(("kind", Link::VMContext));
            mutants
        }
        Link::DynScale { vector_type } => {
            let other = if vector_type == types::I8X16 { types::I64X2 } else { types::I8X16 };
            vec![("vector type", Link::DynScale { vector_type: other }), ("kind", Link::VMContext)]
        }
    }
}
