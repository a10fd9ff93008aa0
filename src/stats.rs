//! Counters of a run, flat and public, named `phase_event`.

/// What happened in a run of the pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Functions taken into the unit.
    pub add_functions: usize,
    /// Data objects taken into the unit.
    pub add_data_objects: usize,
    /// Functions walked when they were added ([`Compare::every_function`](crate::Compare::every_function)).
    pub walk_add_functions: usize,
    /// Functions walked because their bucket has others.
    pub walk_functions: usize,
    /// Instructions in them, `nop` and unreachable ones left out.
    pub walk_instructions: usize,
    /// Functions that could not be walked; the verifier refuses them.
    pub walk_malformed: usize,
    /// Data objects compared because their bucket has others.
    pub walk_data_objects: usize,
    /// Bytes of all encodings written.
    pub walk_bytes: usize,
    /// Classes before refinement, functions alone in theirs included.
    pub refine_classes_before: usize,
    /// Classes after refinement.
    pub refine_classes_after: usize,
    /// Functions that share their final class with another.
    pub plan_members: usize,
    /// Functions whose bodies are not needed any more.
    pub plan_merged: usize,
    /// Data objects that are not needed any more.
    pub plan_merged_data_objects: usize,
    /// Their bytes.
    pub plan_merged_data_bytes: u64,
    /// Functions walked to compare them with another one of their shape, once for each time that they are compared.
    pub similar_walks: usize,
    /// Parameterised bodies that were made in order to know whether they pay.
    pub similar_tried: usize,
    /// Parameterised bodies.
    pub similar_bodies: usize,
    /// Functions that parameterised bodies replace.
    pub similar_merged: usize,
    /// Functions that share bodies with functions of other units, as a sharing map says.
    pub shared_functions: usize,
    /// What a sharing map says and does not fit the unit: sets that make no body, shapes of which the record is damaged, and one if
    /// the whole map is for another target, version or settings.
    pub shared_ignored: usize,
    /// Functions and parameterised bodies that are emitted under digests of their contents.
    pub content_bodies: usize,
}

impl Stats {
    /// Adds what was walked in order to group equal functions.
    pub(crate) fn add_walks(&mut self, other: &Stats) {
        self.walk_functions += other.walk_functions;
        self.walk_instructions += other.walk_instructions;
        self.walk_malformed += other.walk_malformed;
        self.walk_data_objects += other.walk_data_objects;
        self.walk_bytes += other.walk_bytes;
    }
}
