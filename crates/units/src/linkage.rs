//! Who can see a function. It decides nothing.

/// The visibility of a function's symbol, with the meaning of `cranelift_module::Linkage`.
///
/// See the [example](crate#example).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Linkage {
    /// Visible outside the linked image.
    Export,
    /// Visible to other units of the same linked image.
    Hidden,
    /// Visible in this unit only.
    Local,
    /// Visible outside, and another definition may take its place when the image is loaded.
    Preemptible,
}

impl Linkage {
    /// All linkages, in the order in which a representative is chosen.
    pub const ALL: [Linkage; 4] =
        [Linkage::Export, Linkage::Hidden, Linkage::Local, Linkage::Preemptible];

    /// The name used in directives, options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Linkage::Export => "export",
            Linkage::Hidden => "hidden",
            Linkage::Local => "local",
            Linkage::Preemptible => "preemptible",
        }
    }

    /// Whether other units can name the function.
    pub fn is_visible_outside(self) -> bool {
        match self {
            Linkage::Export | Linkage::Hidden | Linkage::Preemptible => true,
            Linkage::Local => false,
        }
    }
}
