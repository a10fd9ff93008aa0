//! Addresses in a JIT: every function has one, comparisons of addresses give what they give without
//! merging, and the merge map leads from each address back to the functions there.

use cranelift_mergefunc::explain::{MergeMap, Original};
use cranelift_mergefunc::{Addresses, Disposition};
use cranelift_mergefunc_module::{BackEnd, MergingModule};
use cranelift_module::Module;
use testkit::modules::{
    address, call, call_at, calls, define_all, id, insignificant, jit, merging_jit, plus,
};

/// Equal functions of every linkage, and users of them.
fn program() -> String {
    let mut program = String::new();
    for linkage in ["export", "hidden", "local", "preemptible"] {
        for copy in 1..=2 {
            let name = format!("{linkage}{copy}");
            program += &plus(linkage, &name, 5);
            program += &calls(linkage, &format!("calls_{name}"), &name);
            program += &address(linkage, &format!("address_of_{name}"), &name);
        }
    }
    program
}

#[test]
fn every_function_has_an_address_at_which_it_works() {
    for options in [Default::default(), insignificant()] {
        let mut module = MergingModule::with_options(jit(), options);
        define_all(&mut module, &program());
        let sig = testkit::modules::signature(testkit::modules::I64);
        let anonymous: Vec<_> = (0..2)
            .map(|_| {
                let f = module.declare_anonymous_function(&sig).unwrap();
                let mut ctx = module.make_context();
                ctx.func = testkit::modules::function(&module, &plus("export", "export1", 5));
                module.define_function(f, &mut ctx).unwrap();
                f
            })
            .collect();
        module.finalize_definitions().unwrap();
        for linkage in ["export", "hidden", "local", "preemptible"] {
            for copy in 1..=2 {
                let name = format!("{linkage}{copy}");
                assert_eq!(call(&module, &name, 2), 49, "{name}");
                assert_eq!(call(&module, &format!("calls_{name}"), 2), 50, "{name}");
                let taken = call(&module, &format!("address_of_{name}"), 0);
                let extra = module.get_finalized_function(id(&module, &name));
                assert_eq!(taken, extra as i64, "{name}");
            }
        }
        for f in anonymous {
            assert_eq!(call_at(module.get_finalized_function(f), 2), 49);
            assert_eq!(module.get_address(&f.into()), module.get_finalized_function(f));
        }
    }
}

#[test]
fn significant_addresses_differ_and_insignificant_ones_may_not() {
    for functions in Addresses::ALL {
        let options = cranelift_mergefunc_module::ModuleOptions {
            function_addresses: functions,
            ..insignificant()
        };
        let mut module = MergingModule::with_options(jit(), options);
        define_all(&mut module, &program());
        module.finalize_definitions().unwrap();
        let mut addresses: Vec<_> = ["export", "hidden", "local", "preemptible"]
            .iter()
            .flat_map(|linkage| [format!("{linkage}1"), format!("{linkage}2")])
            .map(|name| module.get_finalized_function(id(&module, &name)))
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        match functions {
            Addresses::Significant => assert_eq!(addresses.len(), 8),
            Addresses::Insignificant => assert_eq!(addresses.len(), 1),
        }
    }
}

fn names<'a>(originals: impl Iterator<Item = &'a Original>) -> Vec<&'a str> {
    let mut names: Vec<&str> = originals.map(|original| &*original.name).collect();
    names.sort_unstable();
    names
}

fn start(map: &MergeMap, code: *const u8) -> u64 {
    map.at(code as u64).expect("code").start
}

#[test]
fn the_merge_map_leads_both_ways() {
    let mut module = merging_jit();
    let program = plus("export", "a", 5)
        + &plus("export", "b", 5)
        + &plus("local", "c", 5)
        + &plus("local", "alone", 6);
    define_all(&mut module, &program);
    module.finalize_definitions().unwrap();
    let map = module.finalized_map();

    let dispositions: Vec<&str> =
        ["a", "b", "c", "alone"].map(|name| map.by_name(name).unwrap().disposition.name()).to_vec();
    assert_eq!(dispositions, ["keep", "thunk", "redirect", "keep"]);
    for name in ["a", "b", "c"] {
        let [function, a] = [name, "a"].map(|name| &map.by_name(name).unwrap().symbol);
        assert_eq!(map.body_of(function), *a);
    }

    let at = |name: &str| module.get_finalized_function(id(&module, name));
    assert_eq!(names(map.originals_at(at("a") as u64)), ["a", "b", "c"]);
    assert_eq!(names(map.originals_at(at("a") as u64 + 3)), ["a", "b", "c"]);
    assert_eq!(names(map.originals_at(at("b") as u64)), ["b"]);
    assert_eq!(at("c"), at("a"));
    assert_eq!(names(map.originals_at(at("alone") as u64)), ["alone"]);
    assert_eq!(start(&map, at("alone").wrapping_add(1)), at("alone") as u64);
    assert!(map.at(call as *const () as u64).is_none());

    let symbol = map.by_name("a").unwrap().symbol.clone();
    assert_eq!(map.behind(&symbol).next().unwrap().name, "a", "the body's own name is first");
    assert_eq!(names(map.behind(&symbol)), ["a", "b", "c"]);
    assert_eq!(map.originals().count(), 4);
}

#[test]
fn the_merge_map_grows_with_every_flush() {
    let mut module = merging_jit();
    define_all(&mut module, &plus("export", "a", 5));
    assert_eq!(module.merge_map().originals().count(), 0, "nothing is flushed yet");
    for (name, linkage) in [("b", "export"), ("c", "local"), ("d", "export")] {
        module.finalize_definitions().unwrap();
        define_all(&mut module, &plus(linkage, name, 5));
    }
    module.finalize_definitions().unwrap();
    let map = module.finalized_map();
    let a = map.by_name("a").unwrap().symbol.clone();
    assert_eq!(names(map.behind(&a)), ["a", "b", "c", "d"]);
    let disposition = &map.by_name("c").unwrap().disposition;
    assert_eq!(*disposition, Disposition::Redirect { to: a });
}

#[test]
fn the_perf_map_has_a_line_for_each_piece_of_code() {
    let mut module = merging_jit();
    let program = plus("export", "a", 5) + &plus("export", "b", 5) + &plus("local", "c", 5);
    define_all(&mut module, &program);
    module.finalize_definitions().unwrap();
    let text = module.finalized_map().perf_map().to_string();
    let mut lines: Vec<(u64, u64, &str)> = text
        .lines()
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
            (number(), number(), words.next().unwrap())
        })
        .collect();
    lines.sort_unstable();
    let at = |name: &str| module.get_finalized_function(id(&module, name)) as u64;
    assert_eq!(lines.len(), 2);
    assert_eq!((lines[0].0, lines[0].2), (at("a"), "a [merged: b, c]"));
    assert_eq!((lines[1].0, lines[1].2), (at("b"), "b [thunk]"));
    assert!(lines.iter().all(|line| line.1 > 0));
    assert_eq!(lines.iter().map(|line| line.1).sum::<u64>(), module.stats().code_bytes);
}

/// No other definition can take a symbol of a JIT: a preemptible function is as good a body as any.
#[test]
fn preemptible_functions_of_a_jit_merge_as_exported_ones() {
    for functions in Addresses::ALL {
        let options = cranelift_mergefunc_module::ModuleOptions {
            function_addresses: functions,
            ..insignificant()
        };
        let mut module = MergingModule::with_options(jit(), options);
        let mut program = String::new();
        for name in ["a", "b", "c"] {
            program += &plus("preemptible", name, 5);
            program += &calls("export", &format!("calls_{name}"), name);
        }
        define_all(&mut module, &program);
        module.finalize_definitions().unwrap();
        assert_eq!((module.stats().merged(), module.stats().new_bodies), (4, 0));
        for name in ["b", "c"] {
            assert_eq!(module.body_of(id(&module, name)), id(&module, "a"));
            assert_eq!(call(&module, &format!("calls_{name}"), 2), 50);
        }
    }
}

#[test]
fn the_module_can_move_to_another_thread() {
    let mut module: MergingModule<Box<dyn SendModule>> = MergingModule::with_options(
        Box::new(jit()),
        cranelift_mergefunc_module::ModuleOptions { back_end: BackEnd::Any, ..insignificant() },
    );
    define_all(&mut module, &(plus("export", "a", 5) + &plus("export", "b", 5)));
    let merged = std::thread::spawn(move || {
        module.flush().unwrap();
        module.stats().merged()
    });
    assert_eq!(merged.join().unwrap(), 1);

    let mut module = merging_jit();
    define_all(&mut module, &(plus("export", "a", 5) + &plus("export", "b", 5)));
    let result = std::thread::spawn(move || {
        module.finalize_definitions().unwrap();
        call(&module, "b", 2)
    });
    assert_eq!(result.join().unwrap(), 49);
}

trait SendModule: Module + Send {}
impl<M: Module + Send> SendModule for M {}
