//! Summaries: the record of each function and data object between
//! [`Merger::add`](crate::Merger::add) and the first look at a second one.
//!
//! Of each function its symbol, its bucket, its counts and a pointer to its attributes, which
//! takes 32 bytes, and of the symbols those of which more than the behaviour is observed. It keeps
//! no IR.

use super::Bucketer;
use crate::canon::{self, Counts, data};
use crate::options::Options;
use crate::stats::Stats;
use crate::unit::{
    AddError, Addresses, Attributes, Bodies, DataAttributes, DataIndex, DataObject, DataSummary,
    Defined, FunctionIndex, Linkage, Observe, Observed, Unit,
};
use cranelift_codegen::ir::{Function, UserExternalName};
use cranelift_entity::{EntityRef, PrimaryMap};

/// The summaries of a unit, to which functions and data objects are added one after the other.
#[derive(Default)]
pub(crate) struct Summaries {
    pub unit: Unit,
    /// Of each function, for finding those that resemble it.
    pub counts: PrimaryMap<FunctionIndex, Counts>,
    pub observed: Observed,
    /// Whether there is a local function with a significant address. The dispositions of all other
    /// functions do not depend on uses of their addresses.
    addresses_matter: bool,
    /// The number of functions that were added before the first such function.
    unscanned: usize,
    pub bucketer: Bucketer,
    pub stats: Stats,
}

impl Summaries {
    /// Adds a function: see [`Merger::add`](crate::Merger::add).
    pub fn add(
        &mut self,
        symbol: UserExternalName,
        func: &Function,
        attributes: Attributes,
        options: &Options<'_>,
    ) -> Result<FunctionIndex, AddError> {
        self.unit.check(&symbol, u64::from(attributes.alignment))?;
        if func.layout.entry_block().is_none() {
            return Err(AddError::NoBody(symbol));
        }
        self.observed.add_tables(func);
        self.addresses_matter |= matters(&attributes);
        let scanned = self.addresses_matter;
        if scanned {
            self.observed.add_address_uses(func);
        }
        let bucket = match options.compare.every_function {
            false => canon::bucket(func, attributes.key),
            true => {
                self.stats.walks.added += 1;
                self.bucketer.hash_alone(func, attributes.key, options)
            }
        };
        self.stats.add_functions += 1;
        self.counts.push(Counts::of(func, attributes.key));
        self.unscanned += usize::from(!scanned);
        Ok(self.unit.add(symbol, attributes, bucket))
    }

    /// Changes the attributes of a function: see
    /// [`Merger::set_attributes`](crate::Merger::set_attributes).
    pub fn set_attributes(
        &mut self,
        function: FunctionIndex,
        attributes: Attributes,
    ) -> Result<(), AddError> {
        let alignment = u64::from(attributes.alignment);
        if !alignment.is_power_of_two() {
            return Err(AddError::Alignment(alignment));
        }
        // Functions that were added while no address mattered are still to be scanned.
        self.addresses_matter |= matters(&attributes);
        let attributes = self.unit.attributes.intern(attributes);
        self.unit.functions[function].attributes = attributes;
        Ok(())
    }

    /// Adds a data object: see [`Merger::add_data`](crate::Merger::add_data).
    pub fn add_data(
        &mut self,
        symbol: UserExternalName,
        data: &DataObject,
        attributes: DataAttributes,
    ) -> Result<DataIndex, AddError> {
        self.unit.check(&symbol, attributes.alignment)?;
        for reloc in &data.relocations {
            self.observed.add_address(&reloc.target, reloc.addend);
        }
        self.stats.add_data_objects += 1;
        let bucket = data::bucket(data, attributes.key);
        let size = data.contents.size();
        Ok(self.unit.add_data(DataSummary { symbol, attributes, bucket, size }))
    }

    /// Needs the complete unit: scans the functions whose address uses were not scanned when they
    /// were added, pins those that something points into, and keeps apart those that do not get the
    /// body that is compared.
    pub fn complete(&mut self, bodies: &mut dyn Bodies) {
        if self.addresses_matter {
            for index in 0..core::mem::take(&mut self.unscanned) {
                let body = bodies.body(FunctionIndex::new(index));
                self.observed.add_address_uses(body);
            }
        }
        let Unit { functions, attributes: interned, .. } = &mut self.unit;
        for Defined { symbol, attributes } in functions.values_mut() {
            let own = **attributes;
            let pinned = own.pinned || self.observed.points_inside(symbol);
            let pinned = Attributes { pinned, ..own };
            if pinned != own {
                *attributes = interned.intern(pinned);
            }
        }
    }
}

/// Whether the disposition of a function with these attributes depends on whether its address is
/// used.
fn matters(attributes: &Attributes) -> bool {
    attributes.linkage == Linkage::Local && attributes.addresses == Addresses::Significant
}
