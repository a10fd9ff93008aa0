//! The shapes of functions: signatures that use every way in which a value can be passed, for every
//! calling convention that can have them, and how a function that C can call calls them.

use core::fmt::Write as _;

/// A kind of function. The texts are only parts of functions: the body returns its results from its
/// arguments and a number `K` of its own, `fn0` is the function itself.
pub struct Shape {
    pub name: &'static str,
    /// The parameters, then the results.
    pub signature: [&'static str; 2],
    body: &'static str,
    /// Computes `v99` by a call to `fn0` from `v0`.
    call: &'static str,
    /// Stack slots of the caller.
    slot: Option<u32>,
    /// Whether it calls itself, or `callback`, which C defines.
    pub calls: Calls,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    Nothing,
    Itself,
    Callback,
}

const PLAIN: Shape = Shape {
    name: "plain",
    signature: ["i64", "i64"],
    body: "block0(v0: i64):
    v1 = iconst.i64 K
    v2 = imul v0, v1
    v3 = bxor v2, v0
    return v3",
    call: "v99 = call fn0(v0)",
    slot: None,
    calls: Calls::Nothing,
};

const RECURSIVE: Shape = Shape {
    name: "recursive",
    signature: ["i64", "i64"],
    body: "block0(v0: i64):
    v1 = iconst.i64 K
    v2 = iconst.i64 0
    v3 = icmp sgt v0, v2
    brif v3, block1, block2
block1:
    v4 = iconst.i64 -1
    v5 = iadd v0, v4
    v6 = call fn0(v5)
    v7 = iadd v6, v1
    return v7
block2:
    return v1",
    call: "v99 = call fn0(v0)",
    slot: None,
    calls: Calls::Itself,
};

/// Ten numbers and ten floats: more than any convention has registers for.
const STACK: Shape = Shape {
    name: "stack",
    signature: [
        "i64, f64, i64, f64, i64, f64, i64, f64, i64, f64, \
         i64, f64, i64, f64, i64, f64, i64, f64, i64, f64",
        "i64",
    ],
    body: "block0(v0: i64, v1: f64, v2: i64, v3: f64, v4: i64, v5: f64, v6: i64, v7: f64, \
           v8: i64, v9: f64, v10: i64, v11: f64, v12: i64, v13: f64, v14: i64, v15: f64, \
           v16: i64, v17: f64, v18: i64, v19: f64):
    v20 = iconst.i64 K
    v21 = imul v18, v20
    v22 = fsub v19, v17
    v23 = fcvt_to_sint_sat.i64 v22
    v24 = isub v16, v2
    v25 = imul v24, v23
    v26 = iadd v21, v25
    v27 = bxor v26, v0
    return v27",
    call: "v1 = iconst.i64 3
    v2 = iadd v0, v1
    v3 = imul v2, v2
    v4 = fcvt_from_sint.f64 v0
    v5 = fcvt_from_sint.f64 v3
    v99 = call fn0(v0, v4, v2, v5, v3, v4, v0, v5, v2, v4, v3, v5, v0, v4, v2, v4, v3, v4, v2, v5)",
    slot: None,
    calls: Calls::Nothing,
};

const RESULTS: Shape = Shape {
    name: "results",
    signature: ["i64", "i64, f64"],
    body: "block0(v0: i64):
    v1 = iconst.i64 K
    v2 = imul v0, v1
    v3 = fcvt_from_sint.f64 v1
    return v2, v3",
    call: "v1, v2 = call fn0(v0)
    v3 = fcvt_to_sint_sat.i64 v2
    v99 = iadd v1, v3",
    slot: None,
    calls: Calls::Nothing,
};

/// Only `tail` has registers for this number of results.
const MANY_RESULTS: Shape = Shape {
    name: "many-results",
    signature: ["i64", "i64, i64, i64, i64, i64, f64, f64"],
    body: "block0(v0: i64):
    v1 = iconst.i64 K
    v2 = imul v0, v1
    v3 = iadd v0, v2
    v4 = bxor v0, v3
    v5 = fcvt_from_sint.f64 v1
    v6 = fcvt_from_sint.f64 v0
    return v0, v1, v2, v3, v4, v5, v6",
    call: "v1, v2, v3, v4, v5, v6, v7 = call fn0(v0)
    v8 = imul v1, v2
    v9 = isub v8, v3
    v10 = imul v9, v4
    v11 = iadd v10, v5
    v12 = fsub v6, v7
    v13 = fcvt_to_sint_sat.i64 v12
    v99 = iadd v11, v13",
    slot: None,
    calls: Calls::Nothing,
};

const SRET: Shape = Shape {
    name: "sret",
    signature: ["i64 sret, i64", ""],
    body: "block0(v0: i64, v1: i64):
    v2 = iconst.i64 K
    v3 = imul v1, v2
    store v3, v0
    store v2, v0+24
    return",
    call: "v1 = stack_addr.i64 ss0
    call fn0(v1, v0)
    v2 = load.i64 v1
    v3 = load.i64 v1+24
    v99 = iadd v2, v3",
    slot: Some(32),
    calls: Calls::Nothing,
};

/// A shape for `preserve_all`, which has no results of any kind, with arguments on the stack.
const WRITES: Shape = Shape {
    name: "writes",
    signature: ["i64, i64, i64, i64, i64, i64, i64, i64, i64, i64", ""],
    body: "block0(v0: i64, v1: i64, v2: i64, v3: i64, v4: i64, v5: i64, v6: i64, v7: i64, \
           v8: i64, v9: i64):
    v10 = iconst.i64 K
    v11 = imul v8, v10
    v12 = isub v11, v9
    store v12, v0
    store v10, v0+24
    return",
    call: "v1 = stack_addr.i64 ss0
    v2 = iconst.i64 5
    v3 = iadd v0, v2
    call fn0(v1, v0, v2, v3, v0, v2, v3, v0, v3, v2)
    v4 = load.i64 v1
    v5 = load.i64 v1+24
    v99 = iadd v4, v5",
    slot: Some(32),
    calls: Calls::Nothing,
};

const WRITES_RECURSIVELY: Shape = Shape {
    name: "writes-recursively",
    signature: ["i64, i64", ""],
    body: "block0(v0: i64, v1: i64):
    v2 = iconst.i64 K
    v3 = load.i64 v0
    v4 = iadd v3, v2
    store v4, v0
    v5 = iconst.i64 0
    v6 = icmp sgt v1, v5
    brif v6, block1, block2
block1:
    v7 = iconst.i64 -1
    v8 = iadd v1, v7
    call fn0(v0, v8)
    return
block2:
    return",
    call: "v1 = stack_addr.i64 ss0
    store v0, v1
    call fn0(v1, v0)
    v99 = load.i64 v1",
    slot: Some(8),
    calls: Calls::Itself,
};

/// A structure by value, which only x86-64 has.
const STRUCTURE: Shape = Shape {
    name: "structure",
    signature: ["i64 sarg(64), i64", "i64"],
    body: "block0(v0: i64, v1: i64):
    v2 = iconst.i64 K
    v3 = load.i64 v0
    v4 = load.i64 v0+56
    v5 = imul v3, v2
    v6 = isub v5, v4
    v7 = iadd v6, v1
    return v7",
    call: "v1 = stack_addr.i64 ss0
    v2 = iconst.i64 17
    v3 = iadd v0, v2
    store v3, v1
    store v0, v1+56
    v99 = call fn0(v1, v2)",
    slot: Some(64),
    calls: Calls::Nothing,
};

/// Calls C, which counts the frames up to `main`.
const UNWINDS: Shape = Shape {
    name: "unwinds",
    signature: ["i64", "i64"],
    body: "block0(v0: i64):
    v1 = iconst.i64 K
    v2 = call fn0(v0)
    v3 = imul v2, v1
    return v3",
    call: "v99 = call fn0(v0)",
    slot: None,
    calls: Calls::Callback,
};

/// A calling convention and the shapes that its functions can have.
pub struct Convention {
    pub name: &'static str,
    /// Whether only x86-64 has it.
    pub only_x86_64: bool,
    pub shapes: &'static [&'static Shape],
}

pub const CONVENTIONS: [Convention; 5] = [
    Convention {
        name: "system_v",
        only_x86_64: false,
        shapes: &[&PLAIN, &STACK, &RESULTS, &RECURSIVE, &SRET, &UNWINDS],
    },
    Convention {
        name: "fast",
        only_x86_64: false,
        shapes: &[&PLAIN, &STACK, &RESULTS, &RECURSIVE, &UNWINDS],
    },
    Convention {
        name: "tail",
        only_x86_64: false,
        shapes: &[&PLAIN, &STACK, &MANY_RESULTS, &RECURSIVE, &UNWINDS],
    },
    Convention {
        name: "windows_fastcall",
        only_x86_64: true,
        shapes: &[&PLAIN, &STACK, &RESULTS, &RECURSIVE, &SRET],
    },
    Convention {
        name: "preserve_all",
        only_x86_64: false,
        shapes: &[&WRITES, &WRITES_RECURSIVELY],
    },
];

/// A structure by value in the convention that C shares.
pub const BY_VALUE: &Shape = &STRUCTURE;
pub const SIMPLE: &Shape = &PLAIN;
pub const SELF_CALLING: &Shape = &RECURSIVE;

impl Shape {
    /// The signature as it stands in a function of `convention`.
    pub fn signature(&self, convention: &str) -> String {
        let [parameters, results] = self.signature;
        let arrow = if results.is_empty() { "" } else { " -> " };
        format!("({parameters}){arrow}{results} {convention}")
    }

    /// The function of the symbol `name`. `callee` declares `fn0`.
    pub fn function(&self, name: &str, convention: &str, callee: &str, k: i64) -> String {
        let fn0 = match self.calls {
            Calls::Nothing => String::new(),
            Calls::Itself | Calls::Callback => format!("    fn0 = {callee}\n"),
        };
        let signature = self.signature(convention);
        let body = self.body.replace('K', &k.to_string());
        format!("function {name}{signature} {{\n{fn0}{body}\n}}\n")
    }

    /// A function that C can call, of one number, that calls a function of this shape.
    pub fn caller(&self, name: &str, callee: &str) -> String {
        let mut text = format!("function {name}(i64) -> i64 system_v {{\n");
        if let Some(size) = self.slot {
            let _ = writeln!(text, "    ss0 = explicit_slot {size}, align = 8");
        }
        let call = self.call;
        let _ =
            write!(text, "    fn0 = {callee}\nblock0(v0: i64):\n    {call}\n    return v99\n}}\n");
        text
    }
}
