//! What one flush leaves binds the next ones: promises of functions that stay, functions that are gone, and addresses that
//! are passed.

use crate::incremental::{
    calls_with_two, for_size, interposed, linked, mixes, mixes_call, optimising_object,
    reads_vector, unmerged,
};
use crate::support::{calls, declare, define_all, id, insignificant, object, plus};
use cranelift_mergefunc::{BackEnd, Disposition, MergingModule};
use cranelift_module::Linkage;

/// A function equals one of an earlier flush, promises more, and stays, because it is pinned. Its caller is found to equal
/// one of a later flush, which calls the function that promises less: the code it reaches promised more.
#[test]
fn a_function_that_stays_promises_no_more_than_what_it_equals() {
    let main = "#include <stdio.h>\n#include <sys/mman.h>\nlong e(char *, char *);
        int main(void) {
            char *cell = mmap((void *)0x10000000, 4096, 3, 0x32, -1, 0);
            printf(\"%ld\\n\", e(cell + 8, cell + 8));
        }";
    let printed = [insignificant(), unmerged(insignificant())].map(|options| {
        let mut module = optimising_object(options);
        define_all(&mut module, &reads_vector("weak", 5, ""));
        module.flush().unwrap();
        define_all(&mut module, &reads_vector("strong", 5, "aligned"));
        let strong = id(&module, "strong");
        module.attributes(strong).pinned = true;
        define_all(&mut module, &calls_with_two("d", "strong"));
        module.flush().unwrap();
        define_all(&mut module, &calls_with_two("e", "weak"));
        module.flush().unwrap();
        if options.merge_limit.is_none() {
            assert_eq!(module.outcome(strong).unwrap().0, Disposition::Keep);
            assert_eq!(module.body_of(id(&module, "e")), id(&module, "d"));
        }
        linked(module.finish().unwrap(), main)
    });
    assert_eq!(printed[0], printed[1]);
}

/// Of functions that share a parameterised body no code is left: what equals one of them later has nothing to be merged
/// into.
#[test]
fn what_equals_a_function_that_is_gone_is_not_merged_into_it() {
    let main = "#include <stdio.h>\nlong d(long), e(long);
        int main(void) { printf(\"%ld %ld\\n\", d(7), e(7)); }";
    let options = for_size(BackEnd::Object);
    for linkage in ["local", "export"] {
        let printed = [options, unmerged(options)].map(|options| {
            let mut module = MergingModule::with_options(object(), options);
            define_all(&mut module, &(mixes("local", "a", 1) + &mixes("local", "b", 2)));
            define_all(&mut module, &calls("export", "d", "a"));
            module.flush().unwrap();
            let merges = options.merge_limit.is_none();
            assert_eq!(module.stats().redirects, if merges { 2 } else { 0 });
            define_all(&mut module, &mixes(linkage, "c", 1));
            define_all(&mut module, &calls("export", "e", "c"));
            module.flush().unwrap();
            assert_ne!(module.body_of(id(&module, "c")), id(&module, "a"));
            linked(module.finish().unwrap(), main)
        });
        assert_eq!(printed[0], printed[1], "{linkage}");
    }
}

/// A function that is near is passed by its near address, and is exported afterwards: in a shared library, near code cannot
/// refer to its symbol any more.
#[test]
fn a_function_that_is_passed_and_exported_later_is_near_all_the_same() {
    let main = "#include <stdio.h>\nlong d(long), d2(long);
        int main(void) { printf(\"%ld %ld\\n\", d(7), d2(7)); }";
    let options = for_size(BackEnd::Object);
    let caller =
        |name, callee| mixes_call("local", name, callee).replace("fn0 = %", "fn0 = colocated %");
    let printed = [options, unmerged(options)].map(|options| {
        let mut module = MergingModule::with_options(object(), options);
        let functions = mixes("local", "f", 1) + &plus("local", "g", 5);
        define_all(&mut module, &(functions + &caller("x", "f") + &caller("y", "g")));
        define_all(&mut module, &(calls("export", "d", "x") + &calls("export", "d2", "y")));
        module.flush().unwrap();
        let merges = options.merge_limit.is_none();
        assert_eq!(module.stats().redirects, if merges { 2 } else { 0 });
        if merges {
            for name in ["f", "g"] {
                declare(&mut module, name, Linkage::Export, "(i64) -> i64 system_v");
            }
        }
        match merges {
            true => interposed(module.finish().unwrap(), main),
            false => linked(module.finish().unwrap(), main),
        }
    });
    assert_eq!(printed[0], printed[1]);
}
