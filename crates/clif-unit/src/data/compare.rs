//! The first difference between two data objects.
//!
//! Written a second time here, apart from how the pass compares them: it explains why two objects
//! did not merge, and checks those that did. It takes the classes from the plan and finds none.

use super::GivenData;
use crate::unit::Unit;
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::data::{Contents, DataIndex, DataReloc};
use cranelift_mergefunc::{Addresses, Linkage, Plan, cranelift_codegen};

/// Where two data objects first differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference<'a> {
    /// They have different keys.
    Key,
    /// They ask for different sections.
    Section,
    /// They have different sizes.
    Size,
    /// One is all zeros and takes no room in a file, the other has bytes.
    Zeros,
    /// The byte here.
    Byte(usize),
    /// Only one has a pointer here.
    NoPointer(u32),
    /// Pointers to different targets, or with different addends.
    Pointer(&'a DataReloc, &'a DataReloc),
    /// One of them is an alias, which is not compared.
    Alias,
}

impl Difference<'_> {
    /// A short word for the rule.
    pub fn id(self) -> &'static str {
        match self {
            Difference::Key => "key",
            Difference::Section => "section",
            Difference::Size => "size",
            Difference::Zeros => "zeros",
            Difference::Byte(_) => "bytes",
            Difference::NoPointer(_) => "pointers",
            Difference::Pointer(..) => "reference",
            Difference::Alias => "alias",
        }
    }

    /// One sentence for a person.
    pub fn explanation(self) -> String {
        match self {
            Difference::Key => "data objects with different keys never merge".to_owned(),
            Difference::Section => "the sections must be the same".to_owned(),
            Difference::Size => "the sizes must be equal".to_owned(),
            Difference::Zeros => {
                "one is all zeros and takes no room in a file, the other has bytes".to_owned()
            }
            Difference::Byte(at) => format!("they differ in byte {at}"),
            Difference::NoPointer(at) => format!("only one of them holds a pointer at byte {at}"),
            Difference::Pointer(pointer, _) => {
                format!("they hold different pointers at byte {}", pointer.offset)
            }
            Difference::Alias => "an alias stays one, and is compared by its name".to_owned(),
        }
    }
}

/// Where two data objects of a planned unit first differ; `None` if they are equal, whether or not
/// they may merge. Their pointers are compared by the classes of `plan`.
pub fn first_difference<'a>(
    unit: &'a Unit,
    plan: &Plan,
    a: DataIndex,
    b: DataIndex,
) -> Option<Difference<'a>> {
    let [a, b] = [a, b].map(|data| &unit.data[data.index()]);
    if a.symbol == b.symbol {
        return None;
    }
    if a.alias.is_some() || b.alias.is_some() {
        return Some(Difference::Alias);
    }
    if a.attributes.key != b.attributes.key {
        return Some(Difference::Key);
    }
    if a.object.section != b.object.section {
        return Some(Difference::Section);
    }
    if a.object.contents.size() != b.object.contents.size() {
        return Some(Difference::Size);
    }
    let byte = match (&a.object.contents, &b.object.contents) {
        (Contents::Zeros(_), Contents::Zeros(_)) => None,
        (Contents::Bytes(a), Contents::Bytes(b)) => a.iter().zip(b).position(|(a, b)| a != b),
        (Contents::Zeros(_), Contents::Bytes(_)) | (Contents::Bytes(_), Contents::Zeros(_)) => {
            return Some(Difference::Zeros);
        }
    };
    let pointer = first_pointer(unit, plan, a, b);
    match (byte, pointer) {
        (Some(byte), Some((at, _))) if byte < at as usize => Some(Difference::Byte(byte)),
        (_, Some((_, difference))) => Some(difference),
        (byte, None) => byte.map(Difference::Byte),
    }
}

/// The first pointer that differs, and where it is.
fn first_pointer<'a>(
    unit: &Unit,
    plan: &Plan,
    a: &'a GivenData,
    b: &'a GivenData,
) -> Option<(u32, Difference<'a>)> {
    let [mut a, mut b] = [a, b].map(|data| data.object.relocations.iter());
    // The text has pointers in their order, and none upon another.
    loop {
        let (a, b) = match (a.next(), b.next()) {
            (None, None) => return None,
            (Some(one), None) | (None, Some(one)) => {
                return Some((one.offset, Difference::NoPointer(one.offset)));
            }
            (Some(a), Some(b)) => (a, b),
        };
        if a.offset != b.offset {
            let first = a.offset.min(b.offset);
            return Some((first, Difference::NoPointer(first)));
        }
        if a.addend != b.addend || !same_address(unit, plan, &a.target, &b.target) {
            return Some((a.offset, Difference::Pointer(a, b)));
        }
    }
}

/// Whether two symbols may have one address after merging.
fn same_address(unit: &Unit, plan: &Plan, a: &UserExternalName, b: &UserExternalName) -> bool {
    let class = |symbol| class_of_address(unit, plan, symbol);
    a == b || class(a).is_some_and(|a| class(b) == Some(a))
}

/// The class by which an address is compared, if it is not compared by symbol.
pub fn class_of_address(unit: &Unit, plan: &Plan, symbol: &UserExternalName) -> Option<u32> {
    if let Some(function) = plan.function(symbol) {
        let attributes = unit.given.get(function.index())?.attributes;
        let by_class = attributes.addresses == Addresses::Insignificant
            && attributes.linkage != Linkage::Preemptible
            && !attributes.no_merge;
        return by_class.then(|| plan.entry(function).class());
    }
    let data = plan.data(symbol)?;
    is_compared(&unit.data[data.index()]).then(|| plan.data_entry(data).class())
}

/// Whether a data object may equal another one at all.
pub fn is_compared(data: &GivenData) -> bool {
    let attributes = data.for_pass();
    attributes.addresses == Addresses::Insignificant
        && attributes.linkage != Linkage::Preemptible
        && !attributes.writable
        && !attributes.tls
}
