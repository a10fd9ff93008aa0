//! Laws of sentences: those of comments and documents keep to the rules for words that a machine
//! can check, and comments and cells of tables are narrow.

use crate::documents::{Document, Line, comment, documents, paths, read};

/// Phrases whose noun a reader has to guess. `What` begins a clause; headings are none.
const BANNED: [&str; 7] =
    ["What", "so many", "So many", "as many", "in hand", "told", "tells apart"];

/// Columns of comments, as of code, and characters of a cell.
const WIDTH: usize = 100;
const CELL: usize = 160;

/// The banned phrases of a line, to which the first word of the next one belongs.
fn banned(text: &str, next: &str) -> Vec<&'static str> {
    let text = format!(" {text} {} ", next.split_whitespace().next().unwrap_or_default());
    // Code spans are names.
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join("_");
    let ends = [" ", ",", ".", ":", ";", ")"];
    let has = |phrase: &&str| ends.iter().any(|end| prose.contains(&format!(" {phrase}{end}")));
    BANNED.into_iter().filter(has).collect()
}

#[test]
fn sentences_keep_to_the_rules() {
    let mut found = Vec::new();
    for Document { path, lines } in documents(&paths()) {
        let is_heading = |line: &Line| line.text.trim_start().starts_with('#');
        let prose = |line: &&Line| !line.code && !is_heading(line);
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| prose(line)) {
            let next = lines.get(at + 1).filter(|next| next.number == line.number + 1);
            for phrase in banned(&line.text, next.map_or("", |next| &next.text)) {
                found.push(format!("{path}:{}: \"{phrase}\"", line.number));
            }
        }
    }
    assert!(found.is_empty(), "words to avoid:\n{}", found.join("\n"));
}

#[test]
fn comments_and_cells_are_narrow() {
    let mut found = Vec::new();
    for Document { path, lines } in documents(&paths()) {
        let cells = |line: &&Line| !line.code && line.text.trim_start().starts_with('|');
        let long = lines.iter().filter(cells).filter(|line| {
            line.text.replace("\\|", "_").split('|').any(|cell| cell.trim().chars().count() > CELL)
        });
        found.extend(long.map(|line| format!("{path}:{}: a long cell", line.number)));
        let text = read(&path);
        for (line, number) in text.lines().zip(1..) {
            let Some(text) = comment(line).filter(|_| path.ends_with(".rs")) else { continue };
            // Tables and commands have no place to break.
            let text = text.trim();
            let is_whole = text.starts_with('|') || (text.starts_with('`') && text.ends_with('`'));
            if line.chars().count() > WIDTH && !is_whole {
                found.push(format!("{path}:{number}: a wide comment"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn words_to_avoid_are_found() {
    assert_eq!(banned("It holds. What is held waits.", ""), ["What"]);
    assert_eq!(banned("It passes as", "many arguments."), ["as many"]);
    assert_eq!(banned("Somewhat, `What` and retold", ""), [""; 0]);
}
