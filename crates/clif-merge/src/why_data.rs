//! `clif-merge why` for data objects: their dispositions, and the first difference of two.
//!
//! Where they differ only in what they point to, it says which pair to ask about next.

use crate::snippet::{Excerpt, draw_excerpts};
use crate::why::Explainer;
use clif_unit::data::GivenData;
use clif_unit::data::compare::{Difference, class_of_address, first_difference};
use clif_unit::error::Place;
use clif_unit::words::{PREFIX, first_word};
use cranelift_codegen::ir::UserExternalName;
use cranelift_entity::EntityRef as _;
use cranelift_mergefunc::data::{Contents, DataIndex, DataReloc};
use cranelift_mergefunc::{Disposition, Reason, cranelift_codegen};
use std::fmt::Write as _;

/// Lines of a data object that are shown.
const LINES: usize = 6;
impl Explainer<'_> {
    fn object(&self, data: DataIndex) -> &GivenData {
        &self.unit.data[data.index()]
    }

    fn object_name(&self, data: DataIndex) -> String {
        self.names.display(&self.object(data).symbol)
    }

    /// The disposition of a data object, in one line.
    fn object_disposition(&self, data: DataIndex) -> String {
        let name = self.object_name(data);
        if let Some(target) = &self.object(data).alias {
            let target = self.names.display(target);
            return format!("{name}: an alias of {target} in the text, and stays one");
        }
        let entry = self.plan.data_entry(data);
        let what = match entry.disposition() {
            Disposition::Keep => "kept".to_owned(),
            Disposition::Redirect { to } => format!("redirected to {}", self.object_name(to)),
            Disposition::Alias { to } => format!("alias of {}", self.object_name(to)),
            Disposition::Thunk { to } => format!("thunk to {}", self.object_name(to)),
        };
        let reason = entry.reason();
        format!("{name}: {what} [{}]: {}", reason.id(), explanation(reason))
    }

    /// One data object: its disposition, and the others of its size.
    pub fn one_object(&self, data: DataIndex, limit: usize) -> String {
        let mut text = format!("{}\n", self.object_disposition(data));
        text += &draw_excerpts(&[self.object_excerpt(data, String::new())]);
        if self.object(data).alias.is_some() {
            return text;
        }
        let size = self.object(data).object.contents.size();
        let mut others: Vec<(DataIndex, Option<Difference<'_>>)> = self
            .plan
            .data_entries()
            .map(|(other, _)| other)
            .filter(|&other| other != data && self.object(other).object.contents.size() == size)
            .filter(|&other| self.object(other).alias.is_none())
            .map(|other| (other, first_difference(self.unit, self.plan, data, other)))
            .collect();
        // Those that are equal, and then by symbol.
        let symbol = |data| {
            let symbol = &self.object(data).symbol;
            (symbol.namespace, symbol.index)
        };
        others.sort_by_key(|&(other, difference)| (difference.is_some(), symbol(other)));
        if others.is_empty() {
            text.push_str("\nNo other data object has its size.\n");
            return text;
        }
        text.push_str("\nData objects of its size:\n");
        for (other, difference) in others.into_iter().take(limit) {
            let relation = match difference {
                None => "equal".to_owned(),
                Some(difference) => format!("first differs in: {}", difference.id()),
            };
            writeln!(text, "  {:<16} {relation}", self.object_name(other)).expect("a string");
        }
        text
    }

    /// Two data objects: merged, equal but not merged, or the first difference.
    pub fn two_objects(&self, a: DataIndex, b: DataIndex) -> String {
        let mut text =
            format!("{}\n{}\n\n", self.object_disposition(a), self.object_disposition(b));
        if a == b {
            text.push_str("This is one data object.\n");
            return text + &draw_excerpts(&[self.object_excerpt(a, String::new())]);
        }
        let Some(difference) = first_difference(self.unit, self.plan, a, b) else {
            let end = |data| self.plan.data_entry(data).disposition().representative();
            let [end_a, end_b] = [a, b].map(|data| end(data).unwrap_or(data));
            text += match end_a == end_b {
                true => "Equal, and merged.\n",
                false => "Equal, but not merged, for the reasons above.\n",
            };
            return text
                + &draw_excerpts(&[a, b].map(|data| self.object_excerpt(data, String::new())));
        };
        let (id, explanation) = (difference.id(), difference.explanation());
        writeln!(text, "Not equal: {explanation} [{id}].").expect("a string");
        if let Difference::Pointer(x, y) = difference
            && x.addend == y.addend
        {
            text += &self.targets(&x.target, &y.target);
        }
        let excerpts = [(a, true), (b, false)]
            .map(|(data, first)| self.object_excerpt(data, self.here(data, difference, first)));
        text + &draw_excerpts(&excerpts)
    }

    /// The first lines of a data object.
    fn object_excerpt(&self, data: DataIndex, label: String) -> Excerpt<'_> {
        let Place { file, line, column } = &self.object(data).place;
        let goes_on =
            |line: &&str| line.trim_start().starts_with(PREFIX) && first_word(line) == "+";
        let mut below = self.lines_from(file, *line);
        let lines: Vec<&str> =
            below.next().into_iter().chain(below.take_while(goes_on)).take(LINES).collect();
        Excerpt {
            path: file,
            first: *line,
            lines: lines.join("\n"),
            marked: 0,
            column: *column,
            label,
        }
    }

    /// The next comparison for two symbols that data objects point to.
    fn targets(&self, x: &UserExternalName, y: &UserExternalName) -> String {
        let by_class =
            [x, y].iter().all(|target| class_of_address(self.unit, self.plan, target).is_some());
        let [x, y] = [x, y].map(|symbol| self.names.display(symbol));
        match by_class {
            true => {
                format!("They point to {x} and {y}, which are not equal; ask why {x} {y} next.\n")
            }
            false => format!(
                "They point to {x} and {y}, of which one has an address that matters, may be \
                 replaced by another definition, or is not of the unit.\n"
            ),
        }
    }

    /// The contents of a data object, the first or the second, at the place of a difference.
    fn here(&self, data: DataIndex, difference: Difference<'_>, first: bool) -> String {
        let given = self.object(data);
        match difference {
            Difference::Key => format!("key {}", given.attributes.key),
            Difference::Section => match &given.object.section {
                Some(section) => format!("section {section}"),
                None => "in the usual section".to_owned(),
            },
            Difference::Size => format!("{} bytes", given.object.contents.size()),
            Difference::Byte(at) => match &given.object.contents {
                Contents::Bytes(bytes) => format!("byte {at} is 0x{:02x}", bytes[at]),
                Contents::Zeros(_) => String::new(),
            },
            Difference::Pointer(x, y) => {
                let DataReloc { target, addend, .. } = if first { x } else { y };
                let addend = match addend {
                    0 => String::new(),
                    addend => format!("{addend:+}"),
                };
                format!("pointer to {}{addend}", self.names.display(target))
            }
            Difference::Zeros | Difference::NoPointer(_) | Difference::Alias => String::new(),
        }
    }
}

/// One sentence for a person. The explanations of some reasons are about functions.
fn explanation(reason: Reason) -> &'static str {
    match reason {
        Reason::Prefiltered => "no other data object has its size, bytes, section and key",
        Reason::Different => "no other data object has its bytes and pointers",
        Reason::ReferencesDiffer => {
            "its bytes equal others, but they point to different functions or data objects"
        }
        Reason::Representative => "it replaces the other objects of its class",
        Reason::Pinned => "pinned: its symbol and place stay its own",
        Reason::AddressInsignificant => {
            "its address does not matter: references to it go to the representative"
        }
        Reason::Preemptible => "preemptible: another definition may take its place",
        _ => reason.explanation(),
    }
}
