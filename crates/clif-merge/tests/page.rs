//! Pages of `clif-merge` in a real browser.
//!
//! Each test has a browser of its own, and works in it with the mouse or with the keyboard.
//! Requirements of a page apart from that, such as the same bytes with any number of jobs, are
//! tested here as well.

#[path = "page/browser.rs"]
mod browser;
#[path = "page/explore.rs"]
mod explore;

use browser::Page;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The program.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clif-merge"));
    command.current_dir(testkit::root());
    command
}

/// The page that the program writes of a unit.
fn page(arguments: &[&str]) -> Vec<u8> {
    let output = program().args(["report", "--format", "html"]).args(arguments).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A page in a file.
struct Written {
    directory: TempDir,
}

impl Written {
    fn new(arguments: &[&str]) -> Written {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(directory.path().join("page.html"), page(arguments)).expect("a file");
        Written { directory }
    }

    fn url(&self) -> String {
        format!("file://{}", self.directory.path().join("page.html").display())
    }

    /// Nothing must have been reported, and only the page requested.
    #[track_caller]
    fn expect_silence(&self, page: &Page) {
        let reported = page.reported();
        let is_page = |line: &&String| line.starts_with(&format!("request: {}", self.url()));
        let others: Vec<&String> = reported.iter().filter(|line| !is_page(line)).collect();
        // Icons are data.
        let others: Vec<_> = others.iter().filter(|line| **line != "request: data:,").collect();
        assert!(others.is_empty(), "{others:#?}");
    }
}

const SAMPLE: [&str; 5] =
    ["samples/rust-generics.clif", "--linkage", "local", "--addresses", "insignificant"];

const ROWS: &str = "document.querySelectorAll('#class-table tbody tr').length";
const FIRST: &str = "document.querySelector('#class-table tbody tr').cells";
const MARKS: &str = "document.querySelectorAll('#comparison mark').length";

#[test]
fn a_person_searches_sorts_and_compares() {
    let written = Written::new(&SAMPLE);
    let page = Page::open(&written.url(), |_| ());
    page.wait_until_ready();
    let headline = page.text("document.querySelector('h1').innerText");
    assert!(headline.contains("% of 1") && headline.ends_with(" code saved"), "{headline}");
    assert!(!headline.contains("time"), "{headline}");
    let all = page.number(ROWS);
    assert!(all > 30, "{all}");

    // Sorting: by saved bytes at first, then by members in both directions.
    let saved = |page: &Page| page.text(&format!("{FIRST}[6].innerText"));
    assert_eq!(saved(&page), "1,519");
    page.click("#class-table thead th:nth-child(3) button");
    let members = page.text(&format!("{FIRST}[2].innerText"));
    assert!(members.parse::<u32>().expect("a number") > 30, "{members}");
    let sorted = "document.querySelector('#class-table thead th:nth-child(3)').ariaSort";
    assert_eq!(page.text(sorted), "descending");
    page.click("#class-table thead th:nth-child(3) button");
    assert_eq!(page.text(&format!("{FIRST}[2].innerText")), "1");
    assert_eq!(page.text(sorted), "ascending");
    page.click("#class-table thead th:nth-child(7) button");
    assert_eq!(saved(&page), "1,519");

    // Searching: a function that is not the representative of its class.
    page.click("#search");
    page.type_text("u0:1510");
    assert_eq!(page.number(ROWS), 1);
    assert!(page.text("document.getElementById('found').innerText").ends_with(", 1 class"));
    page.click("#class-table tbody a");
    page.wait("document.getElementById('detail').open");
    page.click("#detail .detail-top button");
    page.wait("!document.getElementById('detail').open && location.hash === ''");

    // Two members of a class.
    page.click("#search");
    page.value("document.getElementById('search').select()");
    page.type_text("similar-not-smaller");
    assert_eq!(page.number("document.querySelectorAll('#misses tbody tr').length"), 1);
    page.click("#misses tbody a");
    page.wait("document.querySelectorAll('#comparison tr').length > 10");
    assert!(page.number(MARKS) > 0);
    let verdict = "document.getElementById('verdict').innerText";
    assert!(page.text(verdict).contains("lines differ"), "{}", page.text(verdict));
    assert!(page.text("document.getElementById('comparison').innerText").contains("≠"));
    let rule = page.text("document.getElementById('members').innerText");
    assert!(rule.contains("similar-not-smaller") && rule.contains("does not pay"), "{rule}");
    page.click("#members tbody tr:nth-child(2) td:nth-child(1) input");
    page.wait(&format!("{MARKS} === 0 && document.querySelectorAll('#comparison tr').length > 10"));
    page.click("#detail .detail-top button");
    page.wait("!document.getElementById('detail').open");

    // Light and dark.
    let background = "getComputedStyle(document.body.parentElement).backgroundColor";
    let before = page.text(background);
    page.click("#theme");
    assert_ne!(page.text(background), before);
    page.click("#theme");
    assert_eq!(page.text(background), before);
    written.expect_silence(&page);
}

/// From the search to the marked differences, with keys only.
#[test]
fn the_keyboard_suffices() {
    let written = Written::new(&SAMPLE);
    let page = Page::open(&written.url(), |_| ());
    page.wait_until_ready();
    page.press("/");
    assert_eq!(page.text("document.activeElement.id"), "search");
    page.type_text("u0:1505");
    assert_eq!(page.number(ROWS), 1);
    // On to the first link of a class.
    let at_class = "document.activeElement.matches('#class-table tbody a')";
    for _ in 0..40 {
        if page.value(at_class) == true {
            break;
        }
        page.press("Tab");
    }
    assert_eq!(page.value(at_class), true);
    let outline = page.text("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, "solid", "the focus is to be seen");
    page.press("Enter");
    page.wait("document.querySelectorAll('#comparison tr').length > 10");
    let chosen = "document.querySelector('input[name=right]:checked').value";
    let first = page.text(chosen);
    for _ in 0..10 {
        if page.value("document.activeElement.name === 'right'") == true {
            break;
        }
        page.press("Tab");
    }
    page.press("ArrowDown");
    page.wait(&format!("{chosen} !== '{first}'"));
    page.wait(&format!("{MARKS} > 0"));
    page.press("Escape");
    page.wait("!document.getElementById('detail').open");
    assert_eq!(page.value(at_class), true, "back to where it was opened");
    page.press_with_shift("Tab");
    // With an empty search, arrows go from row to row.
    page.press("/");
    page.press("Escape");
    let rows = page.number(ROWS);
    assert!(rows > 30, "{rows}");
    page.value("document.querySelector('#class-table tbody a').focus()");
    page.press("ArrowDown");
    page.press("ArrowDown");
    page.press("ArrowUp");
    assert_eq!(page.number("document.activeElement.closest('tr').rowIndex"), 2);
    // The treemap as well.
    page.value("document.querySelector('.treemap a').focus()");
    page.press("Enter");
    page.wait("document.getElementById('detail').open");
    written.expect_silence(&page);
}

#[test]
fn a_phone_scrolls_in_one_direction() {
    let written = Written::new(&SAMPLE);
    let page = Page::open(&written.url(), Page::be_a_phone);
    page.wait_until_ready();
    let root = "document.scrollingElement";
    assert_eq!(page.number("innerWidth"), 390);
    assert_eq!(page.number(&format!("{root}.scrollWidth")), 390);
    // No table is cut, whatever the numbers of the first one are, and neither is the treemap.
    let number =
        "document.querySelectorAll('#totals td').forEach((it) => it.textContent = '123,456,789')";
    page.value(number);
    let cut = "document.querySelector('.treemap').getBoundingClientRect().right <= 390";
    assert_eq!(page.value(cut), true);
    let cut = "[...document.querySelectorAll('table')].filter(\
               (it) => it.offsetParent !== null && it.getBoundingClientRect().right > 390).length";
    assert_eq!(page.number(cut), 0);
    page.value("document.querySelector('#class-table tbody a').click()");
    page.wait("document.querySelectorAll('#comparison tr').length > 10");
    assert_eq!(page.number(&format!("{root}.scrollWidth")), 390);
    let dialog = "document.getElementById('detail')";
    assert_eq!(page.value(&format!("{dialog}.scrollWidth <= {dialog}.clientWidth")), true);
    assert_eq!(
        page.value("document.getElementById('members').getBoundingClientRect().right < 391"),
        true
    );
    written.expect_silence(&page);
}

/// A reader adds up: the parts are the bytes before merging, and what is saved is the difference to
/// those after it.
#[test]
fn numbers_agree() {
    let written = Written::new(&SAMPLE);
    let page = Page::open(&written.url(), |_| ());
    let numbers = |of: &str| -> Vec<i64> {
        let text = page.text(&format!(
            "[...document.querySelectorAll('{of}')].map((it) => it.innerText).join(';')"
        ));
        let digits = |part: &str| part.chars().filter(char::is_ascii_digit).collect::<String>();
        text.split(';').map(|part| digits(part).parse().expect("a number")).collect()
    };
    let (parts, bytes) =
        (numbers(".legend li"), numbers("#totals tbody tr:first-child td:not(:last-child)"));
    let ([saved, kept, could_merge], [before, after]) = (&parts[..], &bytes[..]) else {
        panic!("{parts:?} {bytes:?}");
    };
    assert_eq!(saved + kept + could_merge, *before);
    assert_eq!(*saved, before - after);
}

#[test]
fn without_scripts_there_is_the_beginning() {
    let written = Written::new(&SAMPLE);
    let page = Page::open(&written.url(), Page::disable_scripts);
    assert!(page.text("document.querySelector('h1').innerText").contains("code saved"));
    assert!(page.number("document.querySelectorAll('.treemap a').length") > 30);
    let title = page.text("document.querySelector('.treemap a title').textContent");
    assert!(title.starts_with("class ") && title.contains("bytes: "), "{title}");
    for (table, least) in [("totals", 2), ("families", 2), ("misses", 1), ("class-table", 2)] {
        let rows = page.number(&format!("document.querySelectorAll('#{table} tbody tr').length"));
        assert!(rows >= least, "{table}: {rows}");
    }
    // Each rectangle leads to a row.
    let links = "[...document.querySelectorAll('.treemap a')].every(\
                 (a) => document.querySelector(a.getAttribute('href')) !== null)";
    assert_eq!(page.value(links), true);
    let noscript = page.text("document.querySelector('noscript').innerText");
    let why = "clif-merge why samples/rust-generics.clif A B";
    assert!(noscript.contains("need JavaScript") && noscript.contains(why), "{noscript}");
    assert!(page.value("document.querySelector('noscript p').offsetHeight > 0") == true);
    assert!(page.value("document.getElementById('search-area').offsetHeight === 0") == true);
    written.expect_silence(&page);
}

/// A name that would end a script, and request something.
const EVIL: &str = "</script><img src=x onerror=alert(1)>";

#[test]
fn names_are_text_only() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let unit = directory.path().join("<b>'evil' & \"unit\".clif");
    let function = |name: &str, by: u32| {
        format!(
            ";; Intermediate Representation of function <{EVIL}{by}>:\n\
             function {name}(i32) -> i32 {{\nblock0(v0: i32):\n    v1 = iconst.i32 {by}\n    \
             v2 = imul v0, v1\n    return v2\n}}\n\n"
        )
    };
    let text = [("%f", 7), ("%g", 7), ("%h", 9)].map(|(name, by)| function(name, by)).concat();
    std::fs::write(&unit, text).expect("a file");
    let written = Written::new(&[unit.to_str().expect("a plain path")]);
    let page = Page::open(&written.url(), |_| ());
    page.wait_until_ready();
    assert!(page.text("document.getElementById('class-table').innerText").contains(EVIL));
    assert!(page.text("document.querySelector('.treemap title').textContent").contains(EVIL));
    assert!(page.text("document.querySelector('header').innerText").contains("<b>"));
    page.value("document.querySelector('#class-table tbody a').click()");
    page.wait("document.getElementById('detail').open");
    assert!(page.text("document.getElementById('members').innerText").contains(EVIL));
    assert_eq!(page.number("document.querySelectorAll('img, b').length"), 0);
    written.expect_silence(&page);
}

/// A unit of many small functions, three of each kind that are equal.
fn large_unit(functions: usize) -> String {
    let mut text = String::new();
    for at in 0..functions {
        let (number, opcode) = (at / 3, ["band", "bor", "bxor", "isub"][at / 3 % 4]);
        write!(
            text,
            "function %f{at}(i64) -> i64 {{\nblock0(v0: i64):\n    v1 = iconst.i64 {number}\n    \
             v2 = iadd v0, v1\n    v3 = {opcode} v2, v1\n    return v3\n}}\n\n"
        )
        .expect("writing to a string");
    }
    text
}

#[test]
fn thirty_thousand_functions_are_not_too_many() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let unit: PathBuf = directory.path().join("unit.clif");
    std::fs::write(&unit, large_unit(30_000)).expect("a file");
    let unit = unit.to_str().expect("a plain path");
    let only = ["--target", "x86_64", "--similar", "off", "--max-listings", "20000"];
    let written = Written::new(&[&[unit][..], &only].concat());
    let size = written.directory.path().join("page.html").metadata().expect("a file").len();
    assert!(size < 8_000_000, "{size}");
    let page = Page::open(&written.url(), |_| ());
    page.wait_until_ready();
    let count = "document.getElementById('classes-section').innerText.includes('10,000 classes')";
    assert_eq!(page.value(count), true);
    let elements = "document.getElementsByTagName('*').length";
    let bounded = |page: &Page| {
        let (rows, elements) = (page.number(ROWS), page.number(elements));
        assert!(rows <= 400, "{rows} rows");
        assert!(elements < 10_000, "{elements} elements");
        rows
    };
    assert_eq!(bounded(&page), 200);
    page.click("#search");
    page.type_text("f2999");
    // %f2999 itself, and %f29990 to %f29999, which are in four classes.
    assert_eq!(bounded(&page), 5);
    page.press("Escape");
    assert_eq!(bounded(&page), 200);
    page.click("#classes-section > .more");
    assert_eq!(bounded(&page), 400);
    // A listing beyond the budget says where it is to be had.
    page.value("document.querySelector('#class-table tbody tr:last-child a').click()");
    page.wait("document.getElementById('detail').open");
    page.wait("document.getElementById('verdict').innerText.includes('clif-merge why')");
    written.expect_silence(&page);
}

#[test]
fn the_bytes_depend_on_the_unit_only() {
    let sample = Path::new("crates/clif-merge/tests/cli/similar.clif");
    let sample = sample.to_str().expect("a plain path");
    for arguments in [&SAMPLE[..], &[sample]] {
        let one = page(&[arguments, &["--jobs", "1"]].concat());
        let three = page(&[arguments, &["--jobs", "3", "--repeat", "2"]].concat());
        assert!(one == three, "{arguments:?}");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("page.html");
        let output = ["--output", file.to_str().expect("a plain path")];
        assert!(page(&[arguments, &output].concat()).is_empty());
        assert!(std::fs::read(&file).expect("a page") == one, "{arguments:?}");
        let none = page(&[arguments, &["--max-listings", "0"]].concat());
        assert!(none.len() < one.len());
        assert!(!String::from_utf8(one).expect("text").contains("seconds"));
    }
}
