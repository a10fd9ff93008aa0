//! The treemap of a page as SVG: native code by class, and what became of it.
//!
//! It needs no script. Colours and patterns are those of the page's style sheet.

use super::groups::{Group, Part};
use super::markup::escape;
use super::treemap::{Rect, sliced, squarified};
use crate::decisions::{Decision, Item};
use crate::table::thousands;
use std::cmp::Reverse;
use std::fmt::Write as _;

/// How many classes have a rectangle of their own. The others have one for each part that most of
/// their bytes are.
pub const MAX_CLASSES: usize = 600;

/// The size in units of the drawing, of which a letter has about 7.
const BOUNDS: Rect = Rect { x: 0.0, y: 0.0, width: 1000.0, height: 420.0 };

/// How wide a letter of a label is.
const LETTER: f64 = 7.2;

/// How high a line of a label is.
const LINE: f64 = 14.0;

/// A rectangle with its parts.
struct Cell {
    parts: [u64; 3],
    link: String,
    label: String,
    title: String,
}

impl Cell {
    fn bytes(&self) -> u64 {
        self.parts.iter().sum()
    }
}

/// The classes that have a rectangle of their own: the largest, by their places in `groups`.
pub fn drawn(groups: &[Group]) -> Vec<usize> {
    let mut all: Vec<usize> = (0..groups.len()).filter(|&at| groups[at].before > 0).collect();
    all.sort_by_key(|&at| (Reverse(groups[at].before), groups[at].class));
    all.truncate(MAX_CLASSES);
    all
}

/// The drawing.
pub fn svg(groups: &[Group], decisions: &[Decision], label: &str) -> String {
    let drawn = drawn(groups);
    let mut is_drawn = vec![false; groups.len()];
    drawn.iter().for_each(|&at| is_drawn[at] = true);
    let rest: Vec<&Group> =
        groups.iter().zip(is_drawn).filter(|(_, drawn)| !drawn).map(|(group, _)| group).collect();
    let mut cells: Vec<Cell> = drawn.iter().map(|&at| cell(&groups[at], decisions)).collect();
    cells.extend(Part::ALL.into_iter().filter_map(|part| smaller(&rest, part)));
    cells.sort_by_key(|cell| Reverse(cell.bytes()));
    let weights: Vec<f64> = cells.iter().map(|cell| cell.bytes() as f64).collect();
    let Rect { width, height, .. } = BOUNDS;
    let mut text = format!(
        "<svg class=\"treemap\" viewBox=\"0 0 {width} {height}\" role=\"group\" \
         aria-label=\"{}\">\n{PATTERNS}",
        escape(label)
    );
    for (cell, rect) in cells.iter().zip(squarified(&weights, BOUNDS)) {
        draw(&mut text, cell, rect);
    }
    text + "</svg>"
}

/// The patterns that distinguish the parts without colours.
const PATTERNS: &str = "\
<defs>
<pattern id=\"hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" \
patternTransform=\"rotate(45)\"><rect class=\"missed\" width=\"7\" height=\"7\"/>\
<rect class=\"missed-line\" width=\"2\" height=\"7\"/></pattern>
<pattern id=\"dots\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
<rect class=\"saved\" width=\"8\" height=\"8\"/>\
<circle class=\"saved-dot\" cx=\"4\" cy=\"4\" r=\"0.8\"/></pattern>
</defs>
";

/// A swatch of the legend.
pub fn swatch(part: Part) -> String {
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 22 14\" aria-hidden=\"true\">{}</svg>",
        rectangle(part, Rect { x: 0.0, y: 0.0, width: 22.0, height: 14.0 })
    )
}

fn cell(group: &Group, decisions: &[Decision]) -> Cell {
    let Group { class, members, representative, merged, .. } = group;
    let decision = &decisions[*representative];
    let parts = group.parts();
    let named: Vec<String> = Part::ALL
        .iter()
        .zip(parts)
        .filter(|&(_, bytes)| bytes > 0)
        .map(|(part, bytes)| format!("{} {}", thousands(bytes), part.title()))
        .collect();
    let title = format!(
        "class {class}: {}\n{} of {} merged\n{} bytes: {}",
        decision.described(),
        thousands(*merged as u64),
        thousands(members.len() as u64),
        thousands(group.before),
        named.join(", "),
    );
    // A new body has no name of the source, but what it replaces has.
    let named = match decision.item {
        Item::NewBody => &decisions[members[0]],
        Item::Function | Item::Data => decision,
    };
    let label = named.source_name.as_ref().unwrap_or(&named.name).clone();
    Cell { parts, link: format!("#class-{class}"), label, title }
}

/// All smaller classes most of whose bytes are one part.
fn smaller(groups: &[&Group], part: Part) -> Option<Cell> {
    let groups: Vec<&&Group> =
        groups.iter().filter(|group| group.before > 0 && group.mostly() == part).collect();
    let parts = groups.iter().fold([0; 3], |sums: [u64; 3], group| {
        let parts = group.parts();
        [0, 1, 2].map(|at| sums[at] + parts[at])
    });
    let count = thousands(groups.len() as u64);
    let label = format!("{count} smaller classes");
    let bytes = thousands(parts.iter().sum());
    let title = format!("{label}, mostly {}: {bytes} bytes", part.title());
    (!groups.is_empty()).then(|| Cell { parts, link: "#classes".to_owned(), label, title })
}

fn rectangle(part: Part, rect: Rect) -> String {
    let Rect { x, y, width, height } = rect;
    let fill = match part {
        Part::Saved => " fill=\"url(#dots)\"",
        Part::Kept => " class=\"kept\"",
        Part::CouldMerge => " fill=\"url(#hatch)\"",
    };
    format!("<rect{fill} x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"/>")
}

fn draw(text: &mut String, cell: &Cell, rect: Rect) {
    let Cell { parts, link, label, title } = cell;
    write!(text, "<a href=\"{link}\"><title>{}</title>", escape(title)).expect("is a string");
    let slices = sliced(parts.map(|bytes| bytes as f64), rect);
    for ((part, bytes), slice) in Part::ALL.into_iter().zip(parts).zip(slices) {
        if *bytes > 0 {
            *text += &rectangle(part, slice);
        }
    }
    let Rect { x, y, width, height } = rect;
    write!(
        text,
        "<rect class=\"outline\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" \
         height=\"{height:.2}\"/>"
    )
    .expect("is a string");
    let letters = ((width - 8.0) / LETTER).max(0.0) as usize;
    if letters >= 6 && height >= LINE + 6.0 {
        line(text, &shortened(label, letters), "name", x, y + LINE);
        let share = 100.0 * parts[0] as f64 / cell.bytes().max(1) as f64;
        let second = match parts[0] {
            0 => String::new(),
            _ => format!("{share:.0}% saved"),
        };
        if height >= 2.0 * LINE + 6.0 && second.len() <= letters {
            line(text, &second, "share", x, y + 2.0 * LINE);
        }
    }
    text.push_str("</a>\n");
}

fn line(text: &mut String, words: &str, class: &str, x: f64, y: f64) {
    if !words.is_empty() {
        let words = escape(words);
        write!(text, "<text class=\"{class}\" x=\"{:.2}\" y=\"{y:.2}\">{words}</text>", x + 4.0)
            .expect("is a string");
    }
}

/// The end of a name, which says the most, or its beginning if it has no path.
fn shortened(name: &str, letters: usize) -> String {
    let count = name.chars().count();
    if count <= letters {
        return name.to_owned();
    }
    match name.contains("::") {
        true => ['…'].into_iter().chain(name.chars().skip(count - letters + 1)).collect(),
        false => name.chars().take(letters - 1).chain(['…']).collect(),
    }
}
