//! Random calls of `Module`, made on a plain module and on one that merges.
//!
//! A plain module and a [`MergingModule`] around another one get the same calls: declarations of
//! all linkages, repeated and widened; definitions by IR and by bytes, of data with pointers,
//! twice, of imports, refused by the verifier or the compiler; attributes; flushes. Each call must
//! end in the same way, unless `MergingModule` documents that the error comes later. In the end the
//! objects are compared symbol by symbol, or every function is called in both JITs.
//!
//! * `handles` are functions and data objects of both modules;
//! * `shapes` is what functions and data objects are made of;
//! * `object` compares two object files;
//! * `jit` runs both modules.
//!
//! The results of functions do not matter here; they only have to refer to each other. The other
//! generators vary the code.

mod handles;
mod jit;
mod object;
mod shapes;

use crate::modules::{self, Item};
use arbitrary::{Result, Unstructured};
use cranelift_mergefunc::{Addresses, Disposition, Prove};
use cranelift_mergefunc_module::{BackEnd, MergingModule, ModuleOptions};
use cranelift_module::{DataId, FuncId, Linkage, Module, ModuleResult};
use cranelift_object::ObjectModule;
use handles::{Calls, DataHandle, FunctionHandle, Names, kind, same};
use shapes::{Contents, Ids, Shape};
use std::collections::BTreeSet;

/// Makes random calls on two modules, and panics if their observable behaviour differs.
///
/// # Errors
///
/// If `u` has too few bytes to draw from.
pub fn check(u: &mut Unstructured<'_>) -> Result<()> {
    check_on(u, Threads::One)
}

/// Checks a module that compiles on several threads.
///
/// # Errors
///
/// As [`check`].
pub fn check_in_parallel(u: &mut Unstructured<'_>) -> Result<()> {
    check_on(u, Threads::Pool)
}

fn check_on(u: &mut Unstructured<'_>, threads: Threads) -> Result<()> {
    let options = options(u)?;
    match u.arbitrary()? {
        true => check_object(u, options, threads),
        false => jit::check(u, options, threads),
    }
}

/// Where the module that merges compiles.
#[derive(Clone, Copy)]
enum Threads {
    /// On the thread that calls it.
    One,
    /// On those of the current pool.
    Pool,
}

fn options(u: &mut Unstructured<'_>) -> Result<ModuleOptions> {
    Ok(ModuleOptions {
        take_ir: u.ratio(1, 8)?,
        function_addresses: *u.choose(&Addresses::ALL)?,
        data_addresses: *u.choose(&Addresses::ALL)?,
        aliases: !u.ratio(1, 8)?,
        remember: !u.ratio(1, 8)?,
        similar: crate::unit::similar(u)?,
        merge_limit: match u.ratio(1, 8)? {
            true => Some(u.int_in_range(0..=4)?),
            false => None,
        },
        prove: Prove::default(),
        ..ModuleOptions::default()
    })
}

fn check_object(
    u: &mut Unstructured<'_>,
    mut options: ModuleOptions,
    threads: Threads,
) -> Result<()> {
    options.back_end = *u.choose(&[BackEnd::Object, BackEnd::Object, BackEnd::Any])?;
    // Here code is compared by its bytes. In a JIT it is run.
    options.similar = cranelift_mergefunc::Similar::OFF;
    let (sections, unwind, near) = (u.ratio(1, 4)?, u.ratio(1, 4)?, u.arbitrary()?);
    let builder = || {
        let mut builder = modules::object_builder(modules::host_isa(true));
        builder.per_function_section(sections).unwind_info(unwind);
        builder
    };
    let bare = ObjectModule::new(builder());
    let merging = match threads {
        Threads::One => MergingModule::with_options(ObjectModule::new(builder()), options),
        Threads::Pool => MergingModule::object_in_parallel(builder(), unwind, options),
    };
    let mut pair = Pair::new(bare, merging, true, near);
    for _ in 0..u.int_in_range(4..=40)? {
        if pair.step(u)?.is_none() {
            return Ok(());
        }
    }
    if pair.define_the_rest().is_none() {
        return Ok(());
    }
    if u.arbitrary()? && pair.flush().is_none() {
        return Ok(());
    }
    let names = pair.names();
    let Pair { bare, merging, functions, data, mut calls, .. } = pair;
    calls.add("finish".to_owned());
    let (product, map) = match merging.finish_with_map() {
        Ok(finished) => finished,
        Err(error) => panic!("finish: {error}"),
    };
    for (handle, names) in functions.iter().zip(&names.functions) {
        if handle.is_ir() {
            assert!(map.by_name(&names[1]).is_some(), "{} is not in the map", names[1]);
        }
    }
    let images = [bare.finish(), product].map(|product| product.emit().expect("an object file"));
    object::compare(&images, &functions, &data, &names);
    Ok(())
}

/// Two modules that get the same calls.
struct Pair<B> {
    bare: B,
    merging: MergingModule<B>,
    functions: Vec<FunctionHandle>,
    data: Vec<DataHandle>,
    /// Whether the back end is an object: it has thread-local data and sections.
    object: bool,
    /// Whether code may refer to everything as colocated.
    near: bool,
    calls: Calls,
}

/// The results of a definition in both modules.
enum Both {
    Defined,
    Refused,
    /// The wrapped module would refuse it at once; the one that merges accepted it.
    Doomed(String),
}

/// `None` when nothing more can be done with the modules.
type GoesOn = Option<()>;

const LINKAGES: [Linkage; 8] = [
    Linkage::Local,
    Linkage::Local,
    Linkage::Local,
    Linkage::Export,
    Linkage::Export,
    Linkage::Hidden,
    Linkage::Preemptible,
    Linkage::Import,
];

impl<B: Module> Pair<B> {
    fn new(bare: B, merging: MergingModule<B>, object: bool, near: bool) -> Pair<B> {
        let calls = Calls(vec![format!("{:?}, near: {near}", merging.options())]);
        Pair { bare, merging, functions: Vec::new(), data: Vec::new(), object, near, calls }
    }

    fn modules(&mut self) -> [&mut dyn Module; 2] {
        [&mut self.bare, &mut self.merging]
    }

    fn linkage(&self, function: usize) -> Linkage {
        self.bare.declarations().get_function_decl(self.functions[function].ids[0]).linkage
    }

    fn data_linkage(&self, data: usize) -> Linkage {
        self.bare.declarations().get_data_decl(self.data[data].ids[0]).linkage
    }

    fn names(&self) -> Names {
        let declarations = [self.bare.declarations(), self.merging.declarations()];
        let both = [0, 1];
        let functions = self.functions.iter().map(|handle| {
            both.map(|at| {
                let declaration = declarations[at].get_function_decl(handle.ids[at]);
                declaration.linkage_name(handle.ids[at]).into_owned()
            })
        });
        let data = self.data.iter().map(|handle| {
            both.map(|at| {
                let declaration = declarations[at].get_data_decl(handle.ids[at]);
                declaration.linkage_name(handle.ids[at]).into_owned()
            })
        });
        Names { functions: functions.collect(), data: data.collect() }
    }

    /// One random call.
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<Option<()>> {
        match u.int_in_range(0..=23)? {
            0..=3 => self.declare_function(u)?,
            4 => self.declare_anonymous_function(),
            5..=6 => self.declare_data(u)?,
            7 => self.declare_anonymous_data(u)?,
            8..=15 => return self.random_definition(u),
            16..=17 => return self.random_bytes(u),
            18..=20 if !self.data.is_empty() => {
                let data = u.choose_index(self.data.len())?;
                return Ok(self.define_data(data));
            }
            21..=22 => self.set_attributes(u)?,
            // Nothing can be defined after it.
            _ if self.merging.options().back_end == BackEnd::Object => {}
            _ => return Ok(self.flush()),
        }
        Ok(Some(()))
    }

    /// A name of the first kind; at times one that is taken by something of the other.
    fn name(&self, kinds: [char; 2], count: usize, u: &mut Unstructured<'_>) -> Result<String> {
        let number = u.choose_index(count)?;
        let [name, other] = kinds.map(|kind| format!("{kind}{number}"));
        let taken = self.bare.get_name(&other).is_some();
        Ok(if taken && u.ratio(1, 16)? { other } else { name })
    }

    fn declare_function(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let name = self.name(['f', 'd'], 8, u)?;
        let mut linkage = *u.choose(&LINKAGES)?;
        let wide = u.ratio(1, 32)?;
        let known = self.functions.iter().position(|handle| {
            let declaration = self.bare.declarations().get_function_decl(handle.ids[0]);
            declaration.name.as_deref() == Some(&name)
        });
        if let Some(known) = known {
            if self.functions[known].outside && linkage != Linkage::Import {
                // Emitted code would call another function than before.
                return Ok(());
            }
            if self.functions[known].wide != wide {
                // A module that refuses this has still widened the linkage, in one place of two.
                linkage = self.linkage(known);
            }
            let FunctionHandle { flushed, ids, .. } = self.functions[known];
            let flushed = flushed || self.merging.outcome(ids[1]).is_some();
            if flushed && linkage == Linkage::Preemptible {
                // The merging module refuses that if the function shares its body or has a local
                // name, and a plain module has no such state.
                return Ok(());
            }
        }
        let signature = shapes::signature(wide);
        let [bare, merging] =
            self.modules().map(|module| module.declare_function(&name, linkage, &signature));
        let what = format!("declare_function {name}, {linkage:?}, wide: {wide}");
        let ids = same(&what, bare, merging);
        self.calls.add(format!("{what}: {ids:?}"));
        if let Some(ids) = ids {
            self.add_function(ids, wide);
        }
        Ok(())
    }

    fn declare_anonymous_function(&mut self) {
        let signature = shapes::signature(false);
        let [bare, merging] =
            self.modules().map(|module| module.declare_anonymous_function(&signature));
        let ids = same("declare_anonymous_function", bare, merging).expect("never fails");
        self.calls.add(format!("declare_anonymous_function: {ids:?}"));
        self.add_function(ids, false);
    }

    fn add_function(&mut self, ids: [FuncId; 2], wide: bool) {
        match self.functions.iter().find(|handle| handle.ids[0] == ids[0]) {
            Some(known) => assert_eq!(known.ids, ids, "another function of that name"),
            None => {
                let significant =
                    self.merging.options().function_addresses == Addresses::Significant;
                self.functions.push(FunctionHandle {
                    ids,
                    wide,
                    shape: None,
                    significant,
                    address_taken: false,
                    stays: false,
                    alignment: 1,
                    flushed: false,
                    seen: false,
                    outside: false,
                });
            }
        }
    }

    fn declare_data(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let name = self.name(['d', 'f'], 6, u)?;
        let linkage = *u.choose(&LINKAGES)?;
        let writable = u.ratio(1, 6)?;
        let known = self.data.iter().position(|handle| {
            let declaration = self.bare.declarations().get_data_decl(handle.ids[0]);
            declaration.name.as_deref() == Some(&name)
        });
        let (tls, outside) = match known {
            // A module panics if it changes.
            Some(known) => (self.data[known].tls, self.data[known].outside),
            None => (self.object && u.ratio(1, 8)?, false),
        };
        let flushed = known.is_some_and(|known| {
            let data = self.data[known].ids[1];
            self.merging.data_outcome(data).is_some()
        });
        if outside && linkage != Linkage::Import || flushed && linkage == Linkage::Preemptible {
            return Ok(());
        }
        let [bare, merging] =
            self.modules().map(|module| module.declare_data(&name, linkage, writable, tls));
        let what = format!("declare_data {name}, {linkage:?}, writable: {writable}, tls: {tls}");
        let ids = same(&what, bare, merging);
        self.calls.add(format!("{what}: {ids:?}"));
        if let Some(ids) = ids {
            self.add_data(ids, tls, u)?;
        }
        Ok(())
    }

    fn declare_anonymous_data(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let writable = u.ratio(1, 6)?;
        let tls = self.object && u.ratio(1, 8)?;
        let [bare, merging] =
            self.modules().map(|module| module.declare_anonymous_data(writable, tls));
        let ids = same("declare_anonymous_data", bare, merging).expect("never fails");
        self.calls.add(format!("declare_anonymous_data, {writable}, {tls}: {ids:?}"));
        self.add_data(ids, tls, u)
    }

    fn add_data(&mut self, ids: [DataId; 2], tls: bool, u: &mut Unstructured<'_>) -> Result<()> {
        if let Some(known) = self.data.iter().find(|handle| handle.ids[0] == ids[0]) {
            assert_eq!(known.ids, ids, "another data object of that name");
            return Ok(());
        }
        let functions: Vec<usize> =
            (0..self.functions.len()).filter(|&at| !self.functions[at].wide).collect();
        let data: Vec<usize> = (0..self.data.len()).filter(|&at| !self.data[at].tls).collect();
        let contents = Contents::random(&functions, &data, self.object, u)?;
        let significant = self.merging.options().data_addresses == Addresses::Significant;
        self.data.push(DataHandle {
            ids,
            tls,
            contents,
            defined: false,
            significant,
            pinned: false,
            outside: false,
        });
        Ok(())
    }

    fn random_definition(&mut self, u: &mut Unstructured<'_>) -> Result<Option<()>> {
        if self.functions.is_empty() {
            return Ok(Some(()));
        }
        let function = u.choose_index(self.functions.len())?;
        let callees: Vec<usize> =
            (0..self.functions.len()).filter(|&at| !self.functions[at].wide).collect();
        // Imported objects hold nothing that could be called.
        let usable = |&at: &usize| !self.data[at].tls && self.data_linkage(at) != Linkage::Import;
        let data: Vec<(usize, &Contents)> =
            (0..self.data.len()).filter(usable).map(|at| (at, &self.data[at].contents)).collect();
        let shape = Shape::random(&callees, &data, u)?;
        Ok(self.define_function(function, shape))
    }

    fn define_function(&mut self, function: usize, shape: Shape) -> GoesOn {
        let what = format!("define_function {function} as {shape:?}");
        self.calls.add(what.clone());
        let wide = self.functions[function].wide;
        let results = [0, 1].map(|at| {
            let functions: Vec<FuncId> = self.functions.iter().map(|f| f.ids[at]).collect();
            let data: Vec<DataId> = self.data.iter().map(|d| d.ids[at]).collect();
            let (id, near) = (functions[function], self.near);
            let module = self.modules().into_iter().nth(at).expect("two modules");
            let mut context = module.make_context();
            context.func =
                shape.body(wide, function, &Ids { functions: &functions, data: &data, near });
            let defined = module.define_function(id, &mut context);
            if defined.is_ok() && at == 0 {
                assert!(context.compiled_code().is_some(), "{what}: no code in the context");
            }
            defined
        });
        let handle = &self.functions[function];
        let misplaced = handle.shape.is_some() || self.linkage(function) == Linkage::Import;
        match self.outcome(&what, results, misplaced) {
            Both::Defined => {
                self.functions[function].shape = Some(shape);
                Some(())
            }
            Both::Refused => Some(()),
            Both::Doomed(error) => self.flush_fails(&error),
        }
    }

    fn random_bytes(&mut self, u: &mut Unstructured<'_>) -> Result<Option<()>> {
        if self.functions.is_empty() {
            return Ok(Some(()));
        }
        let function = u.choose_index(self.functions.len())?;
        // Only to functions before it: jumps that lead back would never end. Imported functions can
        // be too far away.
        let is_near = |&at: &usize| !self.functions[at].wide && self.linkage(at) != Linkage::Import;
        let targets: Vec<usize> = (0..function).filter(is_near).collect();
        let jumps_to = match targets.is_empty() || u.ratio(1, 4)? {
            true => None,
            false => Some(*u.choose(&targets)?),
        };
        let inside = match u.ratio(1, 4)? && !self.functions[function].wide {
            // An offset into the code of an eliminated function means nothing.
            true => {
                let mut targets = vec![function];
                targets.extend((0..self.functions.len()).filter(|&at| {
                    !self.functions[at].flushed && self.linkage(at) != Linkage::Import
                }));
                Some(*u.choose(&targets)?)
            }
            false => None,
        };
        Ok(self.define_bytes(function, jumps_to, inside))
    }

    fn define_bytes(
        &mut self,
        function: usize,
        jumps_to: Option<usize>,
        inside: Option<usize>,
    ) -> GoesOn {
        let what = format!("define_function_bytes {function}, to {jumps_to:?}, in {inside:?}");
        self.calls.add(what.clone());
        let results = [0, 1].map(|at| {
            let id = |function: usize| self.functions[function].ids[at];
            let (bytes, relocs) = shapes::bytes(jumps_to.map(id), inside.map(id));
            let function = id(function);
            let module = self.modules().into_iter().nth(at).expect("two modules");
            module.define_function_bytes(function, 8, &bytes, &relocs)
        });
        match self.outcome(&what, results, true) {
            Both::Defined => {
                self.functions[function].shape = Some(Shape::Bytes { jumps_to, inside });
                // Other deferred functions are pinned by the flush.
                if let Some(inside) = inside {
                    self.functions[inside].stays = true;
                }
                Some(())
            }
            Both::Refused => Some(()),
            Both::Doomed(error) => self.flush_fails(&error),
        }
    }

    fn define_data(&mut self, data: usize) -> GoesOn {
        let what = format!("define_data {data} as {:?}", self.data[data].contents);
        self.calls.add(what.clone());
        let results = [0, 1].map(|at| {
            let functions: Vec<FuncId> = self.functions.iter().map(|f| f.ids[at]).collect();
            let ids: Vec<DataId> = self.data.iter().map(|d| d.ids[at]).collect();
            let contents = self.data[data].contents.clone();
            let module = self.modules().into_iter().nth(at).expect("two modules");
            let description = contents.description(module, &functions, &ids);
            module.define_data(ids[data], &description)
        });
        match self.outcome(&what, results, true) {
            Both::Defined => {
                self.data[data].defined = true;
                Some(())
            }
            Both::Refused => Some(()),
            Both::Doomed(error) => self.flush_fails(&error),
        }
    }

    /// How a definition ended in both modules. `misplaced`: it may come at a wrong time and be
    /// wrong itself, and modules do not agree on which error they look for first.
    fn outcome(&self, what: &str, results: [ModuleResult<()>; 2], misplaced: bool) -> Both {
        match results {
            [Ok(()), Ok(())] => Both::Defined,
            [Err(bare), Err(merging)] => {
                let [bare, merging] = [kind(&bare), kind(&merging)];
                let order = misplaced
                    && bare.starts_with("compilation")
                    && (merging.starts_with("duplicate") || merging.starts_with("import"));
                assert!(bare == merging || order, "{what}: {bare}, but merging: {merging}");
                Both::Refused
            }
            [Err(bare), Ok(())] => {
                let bare_kind = kind(&bare);
                let later = matches!(bare_kind.as_str(), "compilation: other" | "back end");
                assert!(later, "{what}: {bare}, but merging accepts it");
                Both::Doomed(bare_kind)
            }
            [Ok(()), Err(merging)] => panic!("{what}: merging says {merging}"),
        }
    }

    fn set_attributes(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if u.ratio(1, 4)? && !self.data.is_empty() {
            let data = u.choose_index(self.data.len())?;
            let handle = &mut self.data[data];
            if !handle.defined {
                let attributes = self.merging.data_attributes(handle.ids[1]);
                attributes.addresses = *u.choose(&Addresses::ALL)?;
                attributes.pinned = u.ratio(1, 6)?;
                attributes.key = u64::from(u.ratio(1, 8)?);
                self.calls.add(format!("data {data}: {attributes:?}"));
                handle.significant = attributes.addresses == Addresses::Significant;
                handle.pinned = attributes.pinned;
            }
        } else if !self.functions.is_empty() {
            let function = u.choose_index(self.functions.len())?;
            let handle = &mut self.functions[function];
            if !handle.flushed {
                let attributes = self.merging.attributes(handle.ids[1]);
                attributes.addresses = *u.choose(&Addresses::ALL)?;
                attributes.pinned |= u.ratio(1, 6)?;
                attributes.no_merge |= u.ratio(1, 8)?;
                attributes.key = u64::from(u.ratio(1, 8)?);
                attributes.address_taken = u.ratio(1, 6)?;
                attributes.externally_called = u.ratio(1, 6)?;
                attributes.alignment = *u.choose(&[1, 1, 1, 16, 64])?;
                self.calls.add(format!("function {function}: {attributes:?}"));
                handle.significant = attributes.addresses == Addresses::Significant;
                handle.address_taken = attributes.address_taken;
                handle.stays |= attributes.pinned || attributes.no_merge;
                handle.alignment = attributes.alignment;
            }
        }
        Ok(())
    }

    fn everything_is_flushed(&mut self) {
        for at in 0..self.functions.len() {
            let seen = self.linkage(at) != Linkage::Local;
            let handle = &mut self.functions[at];
            if handle.shape.is_some() && !handle.flushed {
                (handle.flushed, handle.seen) = (true, seen);
            }
        }
    }

    fn flush(&mut self) -> GoesOn {
        self.calls.add("flush".to_owned());
        if let Err(error) = self.merging.flush() {
            panic!("flush: {error}");
        }
        self.everything_is_flushed();
        self.check_outcomes();
        Some(())
    }

    /// The flush returns the error of the plain module, and all later calls fail.
    fn flush_fails(&mut self, wanted: &str) -> GoesOn {
        let error = self.merging.flush().expect_err("some function cannot be defined");
        assert_eq!(kind(&error), wanted, "the flush returns another error: {error}");
        let again = self.merging.flush().expect_err("nothing goes on").to_string();
        assert!(again.contains("a flush failed before"), "{again}");
        None
    }

    /// Defines everything that must be defined by the end.
    fn define_the_rest(&mut self) -> GoesOn {
        for function in 0..self.functions.len() {
            if self.functions[function].shape.is_none() && self.linkage(function) != Linkage::Import
            {
                match self.functions[function].wide {
                    true => self.define_bytes(function, None, None)?,
                    false => {
                        self.define_function(function, Shape::constant(function as i64 % 3))?
                    }
                }
            }
        }
        for data in 0..self.data.len() {
            if !self.data[data].defined && self.data_linkage(data) != Linkage::Import {
                self.data[data].contents.section = false;
                self.define_data(data)?;
                // A module still defines an object that it refused for its section.
                if !self.data[data].defined {
                    return None;
                }
            }
        }
        Some(())
    }

    /// Checks the outcomes and statistics that the merging module reports.
    fn check_outcomes(&self) {
        let id_of = |id: FuncId| self.functions.iter().find(|handle| handle.ids[1] == id);
        for handle in self.functions.iter().filter(|handle| handle.flushed) {
            let id = handle.ids[1];
            let outcome = self.merging.outcome(id);
            assert_eq!(outcome.is_some(), handle.is_ir(), "outcome of {id}: {outcome:?}");
            let body = self.merging.body_of(id);
            let Some((disposition, reason)) = outcome else {
                assert_eq!(body, id);
                continue;
            };
            let to = disposition.representative();
            assert_eq!(self.merging.body_of(to.unwrap_or(id)), body);
            assert_eq!(self.merging.body_of(body), body, "{body} has a body of its own");
            if to.is_none() {
                continue;
            }
            assert!(!handle.stays, "{id} must be kept, but became {disposition:?}: {reason}");
            // Other bodies are private copies and parameterised bodies.
            if let Some(representative) = id_of(body) {
                assert!(representative.is_ir() && !representative.stays);
                let became = self.merging.outcome(body).map(|(became, _)| became);
                assert_eq!(became, Some(Disposition::Keep));
                let [one, other] = [handle, representative].map(|h| h.shape.as_ref());
                let like = one.zip(other).is_some_and(|(one, other)| one.is_like(other));
                assert!(like, "{one:?} was merged with {other:?}");
            }
        }
        let stats = self.merging.stats();
        assert_eq!(stats.refuted, 0, "{:?}", self.merging.refutation());
        let ir = self.functions.iter().filter(|handle| handle.is_ir() && handle.flushed).count();
        assert_eq!(stats.functions, ir, "functions that were flushed");
        if let Some(limit) = self.merging.options().merge_limit {
            assert!(stats.merged() + stats.merged_data_objects <= limit as usize);
        }
    }

    /// Functions whose address some defined function or object takes.
    fn taken(&self) -> BTreeSet<usize> {
        let mut taken = BTreeSet::new();
        for shape in self.functions.iter().filter_map(|handle| handle.shape.as_ref()) {
            taken.extend(shape.takes());
        }
        for handle in self.data.iter().filter(|handle| handle.defined) {
            taken.extend(handle.contents.items.iter().filter_map(Item::function));
        }
        taken
    }

    /// Functions of IR whose addresses the program can compare.
    fn distinct(&self) -> Vec<usize> {
        let taken = self.taken();
        let is_distinct = |&at: &usize| {
            let handle = &self.functions[at];
            handle.is_ir()
                && handle.significant
                && (handle.seen || handle.address_taken || taken.contains(&at))
        };
        (0..self.functions.len()).filter(is_distinct).collect()
    }
}
