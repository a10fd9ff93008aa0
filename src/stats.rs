//! Counters of a run, public, in groups by subject.
//!
//! The [example](crate#example) of a unit reads one.

/// The statistics of a run of the pass.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Functions taken into the unit.
    pub add_functions: usize,
    /// Data objects taken into the unit.
    pub add_data_objects: usize,
    /// The walks for finding equal functions.
    pub walks: Walks,
    /// Classes before refinement, functions alone in theirs included.
    pub refine_classes_before: usize,
    /// Classes after refinement.
    pub refine_classes_after: usize,
    /// Functions that share their final class with another.
    pub plan_members: usize,
    /// The functions and data objects that were merged away.
    pub merged: Merged,
    /// Merging of similar functions.
    pub similar: SimilarCounts,
    /// Functions that share bodies with functions of other units, as a sharing map says.
    pub shared_functions: usize,
    /// Entries of a sharing map that do not fit the unit: sets that make no body, shapes of which
    /// the record is damaged, and one if the whole map is for another target, version or settings.
    pub shared_ignored: usize,
    /// Functions and parameterised bodies that are emitted under digests of their contents.
    pub content_bodies: usize,
}

/// The walks for finding equal functions.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Walks {
    /// Functions walked when they were added
    /// ([`Compare::every_function`](crate::Compare::every_function)).
    pub added: usize,
    /// Functions walked because their bucket has others.
    pub functions: usize,
    /// Instructions in them, `nop` and unreachable ones left out.
    pub instructions: usize,
    /// Functions that could not be walked; the verifier refuses them.
    pub malformed: usize,
    /// Data objects compared because their bucket has others.
    pub data_objects: usize,
    /// Bytes of all encodings written.
    pub bytes: usize,
}

/// The functions and data objects that were merged away.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Merged {
    /// Functions whose bodies are not needed any more.
    pub functions: usize,
    /// Data objects that are not needed any more.
    pub data_objects: usize,
    /// Their bytes.
    pub data_bytes: u64,
}

/// Merging of similar functions.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimilarCounts {
    /// Functions walked to compare them with another one of their shape, once for each time that
    /// they are compared.
    pub walks: usize,
    /// Functions scanned to find those that resemble them, though they have another shape.
    pub scans: usize,
    /// Functions walked to align them with another one of another shape.
    pub outlines: usize,
    /// Copies of functions that parameterised bodies were made of.
    pub copies: usize,
    /// Parameterised bodies that were made in order to know whether they pay.
    pub tried: usize,
    /// Parameterised bodies.
    pub bodies: usize,
    /// Functions that parameterised bodies replace.
    pub merged: usize,
}

impl SimilarCounts {
    /// Adds the counts for a part of the functions.
    pub(crate) fn add(&mut self, other: &SimilarCounts) {
        let SimilarCounts { walks, scans, outlines, copies, tried, bodies, merged } = other;
        self.walks += walks;
        self.scans += scans;
        self.outlines += outlines;
        self.copies += copies;
        self.tried += tried;
        self.bodies += bodies;
        self.merged += merged;
    }
}

impl Walks {
    /// Adds the walks for grouping equal functions.
    pub(crate) fn add(&mut self, other: &Walks) {
        let Walks { added, functions, instructions, malformed, data_objects, bytes } = other;
        self.added += added;
        self.functions += functions;
        self.instructions += instructions;
        self.malformed += malformed;
        self.data_objects += data_objects;
        self.bytes += bytes;
    }
}
