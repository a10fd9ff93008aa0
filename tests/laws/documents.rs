//! Law of comments and documents: every file, link, feature, option, subcommand and target of Cargo
//! that they name exists.
//!
//! A name is a code span or a word of a command. CHANGELOG.md names what existed once, and is not
//! read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The ends of names of files.
const EXTENSIONS: &str = ".rs .md .clif .trycmd .mjs .toml .c .sh";

/// Beginnings of names of files of other projects, and options of other programs.
const FOREIGN_FILES: &str =
    "DATA.clif alias_analysis.rs egraph/ inst_predicates.rs machinst/ target/";
const FOREIGN_OPTIONS: &str = "--//:clif_merge --closed-world --enable-gc --enable-tail-call --icf \
    --locked --merge-similar-functions --no-default-features --nocapture --optimize-level \
    --shrink-level --skip-pass --testsuite";

/// One line of a comment or document, without its marker.
pub struct Line {
    pub number: usize,
    pub text: String,
    /// In a block of code.
    pub code: bool,
}

pub struct Document {
    pub path: String,
    pub lines: Vec<Line>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("is text")
}

/// The paths of all files of the repository, relative to its root, and of their directories.
pub fn paths() -> BTreeSet<String> {
    let (root, mut left, mut found) = (root(), vec![root()], BTreeSet::new());
    while let Some(path) = left.pop() {
        let inside =
            path.strip_prefix(&root).expect("is below the root").to_str().expect("is text");
        let name = path.file_name().unwrap_or_default();
        if name == ".git" || path.join("CACHEDIR.TAG").exists() {
            continue;
        }
        found.insert(inside.to_owned());
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("is readable");
            left.extend(entries.map(|entry| entry.expect("is readable").path()));
        }
    }
    found
}

/// The text of a comment that is alone on its line.
pub fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text))
}

pub fn documents(paths: &BTreeSet<String>) -> Vec<Document> {
    let is_read = |path: &&String| {
        (path.ends_with(".rs") || path.ends_with(".md")) && *path != "CHANGELOG.md"
    };
    let documents = paths.iter().filter(is_read).map(|path| {
        let text = read(path);
        let mut code = false;
        let lines = text.lines().zip(1..).filter_map(|(line, number)| {
            let text = if path.ends_with(".rs") { comment(line)? } else { line };
            let fence = text.trim_start().starts_with("```");
            code ^= fence;
            Some(Line { number, text: text.to_owned(), code: code || fence })
        });
        Document { path: path.clone(), lines: lines.collect() }
    });
    documents.collect()
}

/// The names that the repository has.
struct Names {
    paths: BTreeSet<String>,
    features: BTreeSet<String>,
    packages: BTreeSet<String>,
    /// The pinned command lines of `clif-merge`, with their help.
    help: String,
}

impl Names {
    fn new(paths: BTreeSet<String>) -> Names {
        let (mut features, mut packages) = (BTreeSet::new(), BTreeSet::new());
        for path in paths.iter().filter(|path| path.ends_with("Cargo.toml")) {
            let mut section = "";
            let text = read(path);
            for line in text.lines() {
                section = if line.starts_with('[') { line } else { section };
                match (section, line.split_once(" = ")) {
                    ("[features]", Some((name, _))) => drop(features.insert(name.to_owned())),
                    ("[package]", Some(("name", name))) => {
                        packages.insert(name.trim_matches('"').to_owned());
                    }
                    _ => {}
                }
            }
        }
        let pinned = paths.iter().filter(|path| path.ends_with(".trycmd"));
        let help = pinned.map(|path| read(path)).collect::<Vec<_>>().join("\n");
        Names { paths, features, packages, help }
    }

    /// Whether this is a path of the repository, or the end of one.
    fn has_path(&self, name: &str) -> bool {
        let name = name.trim_start_matches("./").trim_end_matches('/');
        let end = format!("/{name}");
        self.paths.iter().any(|path| path == name || path.ends_with(&end))
    }

    /// Whether a code span names a file: by its extension, or below a directory of the root.
    fn is_path(&self, span: &str) -> bool {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let first = span.split('/').next().filter(|first| !first.is_empty());
        let below = span.contains('/') && first.is_some_and(|first| self.paths.contains(first));
        let extension =
            EXTENSIONS.split(' ').any(|end| span.len() > end.len() && span.ends_with(end));
        span.chars().all(is_plain)
            && (below || extension)
            && !FOREIGN_FILES.split(' ').any(|start| span.starts_with(start))
    }

    fn has_option(&self, option: &str) -> bool {
        let ends = |c: char| !c.is_ascii_alphanumeric() && c != '-';
        FOREIGN_OPTIONS.split_whitespace().any(|other| other == option)
            || self.help.split(ends).any(|word| word == option)
    }

    fn has_subcommand(&self, name: &str) -> bool {
        self.help.contains(&format!("$ clif-merge {name}"))
    }

    /// Whether the name behind a word of a command exists.
    fn has_name(&self, word: &str, name: &str) -> bool {
        match word {
            "-p" => self.packages.contains(name),
            "--bench" => self.has_path(&format!("benches/{name}.rs")),
            "--example" => self.has_path(&format!("examples/{name}.rs")),
            "--test" => self.has_path(&format!("tests/{name}.rs")),
            "--bin" => self.has_path(&format!("fuzz_targets/{name}.rs")),
            "bash" | "sh" if name.contains('/') => self.has_path(name),
            _ => true,
        }
    }

    /// The names in a line that do not exist.
    fn dead(&self, document: &str, line: &Line) -> Vec<String> {
        let mut dead = Vec::new();
        let parts: Vec<&str> = line.text.split('`').collect();
        for pair in parts.chunks_exact(2).filter(|_| !line.code) {
            let [before, span] = [pair[0], pair[1]];
            let is_command = span.starts_with("--") || span.starts_with("clif-merge ");
            let words = span.split([' ', '=']).filter(|word| is_command && word.starts_with("--"));
            let command = span.strip_prefix("clif-merge ").and_then(|rest| rest.split(' ').next());
            let command = command.filter(|name| name.chars().all(|c| c.is_ascii_lowercase()));
            let is_feature = before.ends_with("feature ") || before.ends_with("features ");
            dead.extend(words.filter(|word| !self.has_option(word)));
            dead.extend(command.filter(|name| !self.has_subcommand(name)));
            dead.extend(Some(span).filter(|_| is_feature && !self.features.contains(span)));
            dead.extend(Some(span).filter(|_| self.is_path(span) && !self.has_path(span)));
        }
        let links = line.text.split("](").skip(1).filter(|_| document.ends_with(".md"));
        let links = links.filter_map(|rest| rest.split(')').next());
        dead.extend(links.filter(|_| !line.code).filter(|link| !leads(document, link)));
        let is_end = |c: char| " `'\",;:()".contains(c);
        let words: Vec<&str> = line.text.split(is_end).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let is_name = pair[1].starts_with(|c: char| c.is_ascii_lowercase());
            dead.extend(Some(pair[1]).filter(|name| is_name && !self.has_name(pair[0], name)));
        }
        dead.into_iter().map(|name| format!("{document}:{}: {name}", line.number)).collect()
    }
}

/// Whether a link of a document leads to a file, and its anchor to a heading there.
fn leads(document: &str, link: &str) -> bool {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let directory = Path::new(document).parent().expect("is a file");
    let path = if file.is_empty() { document.into() } else { directory.join(file) };
    let is_text = path.extension().is_some_and(|extension| extension == "md");
    if link.contains("://") || anchor.is_empty() || !is_text {
        return link.contains("://") || root().join(path).exists();
    }
    let slug = |line: &str| -> String {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor)
}

#[test]
fn names_in_comments_and_documents_exist() {
    let paths = paths();
    // A copy for tests or for a release has a part of the files.
    if !paths.contains("integrations") || !paths.contains("fuzz") {
        return;
    }
    let documents = documents(&paths);
    let names = Names::new(paths);
    let mut dead = Vec::new();
    for Document { path, lines } in &documents {
        dead.extend(lines.iter().flat_map(|line| names.dead(path, line)));
    }
    assert!(dead.is_empty(), "names of nothing:\n{}", dead.join("\n"));
}

#[test]
fn dead_names_are_found() {
    let names = Names::new(paths());
    let dead = |text: &str| {
        let line = Line { number: 7, text: text.to_owned(), code: false };
        names.dead("docs/a.md", &line)
    };
    assert!(
        dead("`src/lib.rs`, `lib.rs`, `--similar off`, `clif-merge why`, feature `std`").is_empty()
    );
    for (text, name) in [
        ("in `src/gone.rs`", "src/gone.rs"),
        ("by [it](gone.md)", "gone.md"),
        ("the feature `gone`", "gone"),
        ("with `--gone`", "--gone"),
        ("`clif-merge gone`", "gone"),
        ("cargo bench --bench gone", "gone"),
        ("bash benches/gone", "benches/gone"),
    ] {
        assert_eq!(dead(text), [format!("docs/a.md:7: {name}")]);
    }
}
