//! The program that uses the unit, in C: it calls every function, obtains its address in every way,
//! and prints the results.

use crate::cases::{Case, in_c};
use core::fmt::Write as _;
use cranelift_mergefunc::Addresses;

/// Numbers that every function is called with.
const ARGUMENTS: [i64; 3] = [0, 3, -7];

const BEGINNING: &str = r#"#include <stdio.h>
#include <unwind.h>

typedef long number;
typedef number function(number);

struct row {
    const char *name;
    function *call;
    /* The address, as the unit says it, as its data holds it, and as C knows it. */
    function *(*address)(void);
    function **pointer;
    function *symbol;
    /* What calls it through a table, and the function itself, where C can call it. */
    function *via;
    function *direct;
};

int main(void);

struct walk {
    int frames;
    int found;
};

static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *data) {
    struct walk *walk = data;
    void *code = (char *)_Unwind_GetIP(context) - 1;
    walk->frames++;
    if (_Unwind_FindEnclosingFunction(code) == (void *)main)
        walk->found = walk->frames;
    return _URC_NO_REASON;
}

static int lost;

/* Called by functions of the unit: how many frames are there up to main? */
number callback(number x) {
    struct walk walk = { 0, 0 };
    _Unwind_Backtrace(frame, &walk);
    lost += !walk.found;
    return x + 100 * walk.found;
}

"#;

const MAIN: &str = r#"
int main(void) {
    for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *row = &rows[i];
        printf("%s", row->name);
        for (unsigned j = 0; j < sizeof(arguments) / sizeof(*arguments); j++) {
            number result = row->call(arguments[j]);
            printf(" %ld", result);
            if (row->via && row->via(arguments[j]) != result)
                printf(" via %ld", row->via(arguments[j]));
            if (row->direct && row->direct(arguments[j]) != result)
                printf(" (%ld)", row->direct(arguments[j]));
        }
        if (row->address) {
            function *address = row->address();
            if (*row->pointer != address)
                printf(" pointer differs");
            if (row->symbol && row->symbol != address)
                printf(" symbol differs");
        }
        printf("\n");
    }
    for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i += 2)
        if (rows[i].address)
            printf("%s %s\n", rows[i].address() == rows[i + 1].address() ? "one" : "two",
                   rows[i].name);
    printf("lost %d\n", lost);
    return 0;
}
"#;

/// The program. `shared` says that the unit is a shared library.
pub fn program(cases: &[Case], shared: bool) -> String {
    let mut text = BEGINNING.to_owned();
    let arguments = ARGUMENTS.map(|argument| argument.to_string()).join(", ");
    let _ = writeln!(text, "static const number arguments[] = {{ {arguments} }};");
    let mut rows = String::new();
    for case in cases {
        for which in 0..2 {
            let name = case.name(which);
            let _ = writeln!(text, "function call_{name};");
            if case.taken {
                let _ = writeln!(text, "extern function *addr_{name}(void), *ptr_{name}[1];");
            }
            let via = case.taken && case.is_like_c();
            if via {
                let _ = writeln!(text, "function via_{name};");
            }
            let visible = case.is_visible(which, shared);
            if visible {
                let _ = writeln!(text, "function {name};");
            }
            if case.is_in_c(which, shared) {
                let _ = writeln!(text, "number {name}(number x) {{ return {} + x; }}", in_c(0));
            }
            let or_null = |is: bool, expression: String| match is {
                true => expression,
                false => "0".to_owned(),
            };
            let _ = writeln!(
                rows,
                "    {{ \"{name}\", call_{name}, {}, {}, {}, {}, {} }},",
                or_null(case.taken, format!("addr_{name}")),
                or_null(case.taken, format!("ptr_{name}")),
                or_null(case.taken && visible, name.clone()),
                or_null(via, format!("via_{name}")),
                or_null(case.is_like_c() && visible, name.clone()),
            );
        }
    }
    let _ = write!(text, "\nstatic const struct row rows[] = {{\n{rows}}};\n{MAIN}");
    text
}

/// The output of the program.
#[derive(Clone, PartialEq, Eq)]
pub struct Printed {
    /// For each function its name, its results, and how its addresses differ.
    pub results: Vec<String>,
    /// For each case whose addresses are taken the number of addresses, and its first name.
    pub addresses: Vec<String>,
    /// How often `main` was not found on the stack.
    pub lost: String,
}

impl Printed {
    pub fn of(text: &str) -> Printed {
        let is_address = |line: &&str| line.starts_with("one ") || line.starts_with("two ");
        let (addresses, results): (Vec<&str>, Vec<&str>) = text.lines().partition(is_address);
        let (lost, results): (Vec<&str>, Vec<&str>) =
            results.into_iter().partition(|line| line.starts_with("lost "));
        let owned = |lines: Vec<&str>| lines.into_iter().map(str::to_owned).collect();
        Printed { results: owned(results), addresses: owned(addresses), lost: lost.concat() }
    }
}

/// How many addresses the two functions of a case may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// As the table says.
    Kept,
    /// As the table says, but functions that may share an address need not, and an address that
    /// nothing compares may be that of a thunk in one place, and of the code in another.
    Several,
    /// The linker folds, too, regardless of address significance.
    Folded,
}

/// Compares what the merged unit did with what the unit did before.
#[track_caller]
pub fn compare(
    cases: &[Case],
    shared: bool,
    before: &Printed,
    after: &Printed,
    identity: Identity,
) {
    let mut wrong = Vec::new();
    assert_eq!(before.lost, after.lost);
    assert_eq!(before.results.len(), cases.len() * 2, "one line for each function");
    assert_eq!(after.results.len(), cases.len() * 2, "one line for each function");
    for (index, (before, after)) in before.results.iter().zip(&after.results).enumerate() {
        let case = &cases[index / 2];
        // For a preemptible function it is guaranteed that the definition that preempts it gets all
        // calls. Calls of another function may reach either definition, but calls of its duplicate
        // must not reach the definition in C.
        let undecided = case.is_in_c(index % 2, shared) && !case.is_in_c(index % 2, false);
        let after = match case.addresses {
            Addresses::Insignificant if identity == Identity::Several => {
                &after.replace(" pointer differs", "").replace(" symbol differs", "")
            }
            Addresses::Insignificant | Addresses::Significant => after,
        };
        if before != after && !undecided {
            wrong.push(format!("{}:\n    before {before}\n    after  {after}", case.describe()));
        }
    }
    let taken = cases.iter().filter(|case| case.taken);
    for (case, addresses) in taken.clone().zip(&after.addresses) {
        let one = addresses.starts_with("one ");
        let in_c = (0..2).any(|which| case.is_in_c(which, shared));
        let must = case.shares_its_address() && !in_c && identity == Identity::Kept;
        let may = case.shares_its_address() || identity == Identity::Folded;
        if one && !may || !one && must {
            wrong.push(format!("{}: {addresses}", case.describe()));
        }
    }
    assert_eq!(after.addresses.len(), taken.count());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
