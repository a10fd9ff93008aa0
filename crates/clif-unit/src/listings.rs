//! The texts of functions, and the lines of what is in them.
//!
//! It finds what stands where in files that were read; it does not read them, and draws nothing.

use crate::contain::contain;
use crate::error::Place;
use crate::scan::scan;
use crate::sources::Source;
use cranelift_codegen::ir::entities::AnyEntity;
use cranelift_mergefunc::cranelift_codegen;
use cranelift_mergefunc::explain::Site;
use cranelift_reader::ParseOptions;
use std::collections::HashMap;

/// The texts of all functions of a unit.
#[derive(Debug)]
pub struct Listings<'a>(HashMap<(&'a str, usize), &'a str>);

impl<'a> Listings<'a> {
    /// Of these files. Looks at each line once; of a file that is malformed, there are none.
    pub fn of(sources: &'a [Source]) -> Listings<'a> {
        let mut all = HashMap::new();
        for source in sources {
            let functions = scan(source).map_or(Vec::new(), |scan| scan.functions);
            let name = &*source.name;
            all.extend(functions.iter().map(|scanned| ((name, scanned.line), scanned.text)));
        }
        Listings(all)
    }

    /// The text from this `function` line on to the next one.
    fn whole(&self, function: &Place) -> Option<&'a str> {
        self.0.get(&(&*function.file, function.line)).copied()
    }

    /// The text from this `function` line on to the last brace.
    pub fn text(&self, function: &Place) -> Option<&'a str> {
        // Behind it, there may be directives of what comes next.
        self.whole(function).map(|text| text.rfind('}').map_or(text, |end| &text[..=end]))
    }

    /// Where the text of a function defines an entity. Reads the function again.
    pub fn place_of(&self, function: &Place, entity: AnyEntity) -> Option<Place> {
        let text = self.whole(function)?;
        let file =
            contain(|| cranelift_reader::parse_test(text, ParseOptions::default())).ok()?.ok()?;
        let (_, details) = file.functions.first()?;
        let line = details.map.location(entity)?.line_number;
        Some(Place::line(&function.file, function.line + line - 1))
    }

    /// The line in its file at which a function has a site, if it is written there. May read the
    /// function again.
    pub fn line_of(&self, function: &Place, site: Site) -> Option<usize> {
        let find = |what: &str| {
            let mut lines = self.text(function)?.lines();
            lines.position(|line| line.trim_start().starts_with(what)).map(|at| function.line + at)
        };
        let entity = |entity: AnyEntity| self.place_of(function, entity).map(|place| place.line);
        match site {
            Site::Block(block) => entity(block.into()),
            Site::Inst(inst) => entity(inst.into()),
            Site::StackSlots => find("ss0"),
            Site::StackLimit => find("stack_limit"),
            Site::DynamicTypes => find("dt0"),
            Site::Function | Site::Signature => None,
        }
    }
}
