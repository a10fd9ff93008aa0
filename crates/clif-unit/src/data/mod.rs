//! Data objects of a unit: their contents, and the attributes that the pass needs.
//!
//! How they are written is for `parse` and `print`.

pub mod compare;
pub mod parse;
mod print;

use crate::error::{Place, bail_at};
use crate::unit::Names;
use anyhow::Result;
use cranelift_codegen::ir::UserExternalName;
use cranelift_mergefunc::data::{Contents, DataAttributes, DataObject, DataReloc};
use cranelift_mergefunc::{Addresses, cranelift_codegen};
use std::collections::HashMap;

pub use parse::{Name, Parsed};
pub use print::print;

/// The width of a pointer.
pub const POINTER_BYTES: usize = 8;

/// A data object as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenData {
    /// The symbol by which the unit refers to it.
    pub symbol: UserExternalName,
    /// The attributes of its directive, defaults filled in.
    pub attributes: DataAttributes,
    /// Whether it says `used`: a linker must not drop it either. It is pinned then.
    pub used: bool,
    /// Its contents; nothing if it is an alias.
    pub object: DataObject,
    /// The data object for which the text says that it is another name. Its attributes are those of
    /// that object, but for what concerns the symbol.
    pub alias: Option<UserExternalName>,
    /// That of its name.
    pub place: Place,
}

impl GivenData {
    /// The attributes that the pass needs.
    ///
    /// An alias stays an alias, and a reference to it equals only a reference to the same alias: it
    /// equalled no other reference when the alias was made, so that merging a merged unit changes
    /// nothing.
    pub fn for_pass(&self) -> DataAttributes {
        match self.alias {
            None => self.attributes,
            Some(_) => DataAttributes {
                addresses: Addresses::Significant,
                pinned: true,
                ..self.attributes
            },
        }
    }

    /// Another name for `target`.
    pub fn into_alias(self, target: UserExternalName) -> GivenData {
        GivenData { object: nothing(), alias: Some(target), ..self }
    }
}

/// The contents of an alias.
fn nothing() -> DataObject {
    DataObject { contents: Contents::Zeros(0), relocations: Vec::new(), section: None }
}

/// Gives data objects their symbols. Each comes with the name of its text; `addresses` holds where
/// a directive says nothing.
///
/// # Errors
///
/// Pointers to symbols without a single address, and aliases of symbols that are no data objects,
/// with their places.
pub fn resolve(
    parsed: Vec<(&str, Parsed)>,
    names: &Names,
    addresses: Addresses,
) -> Result<Vec<GivenData>> {
    let by_name: HashMap<Name, usize> =
        parsed.iter().enumerate().map(|(at, (_, data))| (data.name.clone(), at)).collect();
    let objects = objects(&parsed, &by_name, names)?;
    let attributes: Vec<DataAttributes> = parsed
        .iter()
        .zip(&objects)
        .map(|((_, data), &object)| {
            let DataAttributes { linkage, externally_used, .. } = data.attributes(addresses);
            let of_object = parsed[object].1.attributes(addresses);
            DataAttributes { linkage, externally_used, ..of_object }
        })
        .collect();
    let thread_local = |name: &Name| by_name.get(name).is_some_and(|&at| attributes[at].tls);
    let mut all = Vec::with_capacity(parsed.len());
    for ((source, data), &attributes) in parsed.into_iter().zip(&attributes) {
        let mut relocations = Vec::with_capacity(data.pointers.len());
        for pointer in &data.pointers {
            let (line, column) = pointer.place;
            let target = names.symbol_of(&pointer.target);
            if thread_local(&pointer.target) {
                bail_at!(
                    Place::column(source, line, column),
                    "{} is thread-local: a pointer cannot hold the \
                     addresses of all threads",
                    names.display(&target),
                );
            }
            relocations.push(DataReloc { offset: pointer.offset, target, addend: pointer.addend });
        }
        let (line, column) = data.place;
        all.push(GivenData {
            symbol: names.symbol_of(&data.name),
            attributes,
            used: data.used(),
            alias: data.said.alias.map(|target| names.symbol_of(&target)),
            object: DataObject { contents: data.contents, relocations, section: data.said.section },
            place: Place::column(source, line, column),
        });
    }
    Ok(all)
}

/// The object behind each name: itself, or that to which a chain of aliases leads in the end.
fn objects(
    parsed: &[(&str, Parsed)],
    by_name: &HashMap<Name, usize>,
    names: &Names,
) -> Result<Vec<usize>> {
    let mut objects: Vec<Option<usize>> = vec![None; parsed.len()];
    let mut met = vec![false; parsed.len()];
    for start in 0..parsed.len() {
        // Every alias on the way is looked at only once, however long the chains are.
        let mut way = Vec::new();
        let mut at = start;
        let object = loop {
            if let Some(object) = objects[at] {
                break object;
            }
            let (source, data) = &parsed[at];
            let Some((target, (line, column))) = data.alias() else {
                break at;
            };
            if std::mem::replace(&mut met[at], true) {
                let name = names.display(&names.symbol_of(&data.name));
                bail_at!(Place::column(source, line, column), "{name} is an alias of itself");
            }
            way.push(at);
            at = match by_name.get(target) {
                Some(&at) => at,
                None => {
                    let target = names.display(&names.symbol_of(target));
                    bail_at!(
                        Place::column(source, line, column),
                        "{target} is no data object of the unit"
                    )
                }
            };
        };
        for at in way.into_iter().chain([start]) {
            objects[at] = Some(object);
        }
    }
    Ok(objects.into_iter().flatten().collect())
}
