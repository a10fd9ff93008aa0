//! `clif-merge explore`: the served page in a browser, and what the server refuses.

use crate::browser::Page;
use crate::{MARKS, SAMPLE, program};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// A server that ends with the test.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(arguments: &[&str]) -> Served {
        let mut child = program()
            .arg("explore")
            .args(arguments)
            .args(["--port", "0", "-q"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("is piped"));
        let mut url = String::new();
        stderr.read_line(&mut url).expect("a line");
        let url = url.trim_end().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Served { child, url }
    }

    fn host(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches('/')
    }

    /// The answer to a request: its status, and the whole text.
    fn ask(&self, method: &str, path: &str, host: &str) -> (u32, String) {
        let mut stream = TcpStream::connect(self.host()).expect("a connection");
        let request = format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.expect("a status"), answer)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const VIEW: &str = "document.getElementById('view')";
const SHOWN: &str = "document.getElementById('comparison').innerText";

/// Chooses what is shown, as a person does.
fn choose(page: &Page, view: &str) {
    page.value(&format!("({VIEW}.value = '{view}')"));
    page.value(&format!("{VIEW}.dispatchEvent(new Event('change'))"));
}

/// The steps that a served and a written page have in common.
fn explore(page: &Page) {
    page.wait_until_ready();
    page.press("/");
    page.type_text("u0:1505");
    page.click("#class-table tbody a");
    page.wait("document.querySelectorAll('#comparison tr').length > 10");
    let members = page.text("document.getElementById('members').innerText");
    assert!(members.contains("redirect to ") && members.contains("similar"), "{members}");
    choose(page, "before");
    page.wait(&format!("{SHOWN}.includes('pushq')"));
    // The second member gave up its body.
    page.click("#members tbody tr:nth-child(1) td:nth-child(1) input");
    choose(page, "merging");
    page.wait(&format!("{SHOWN}.includes('no code: references go to ')"));
    assert!(page.text(SHOWN).contains("with the extra arguments "), "{}", page.text(SHOWN));
    page.wait(&format!("{MARKS} > 0"));
}

#[test]
fn a_served_page_has_native_code() {
    let served = Served::start(&[&SAMPLE[..], &["--target", "x86_64"]].concat());
    let page = Page::open(&served.url, |_| ());
    explore(&page);
    // Nothing but the page, its data and the functions that were looked at.
    let reported = page.reported();
    let is_own = |line: &&String| {
        let request = line.strip_prefix("request: ").unwrap_or("");
        request == served.url || request.starts_with(&format!("{}function/", served.url))
    };
    let others: Vec<&String> =
        reported.iter().filter(|line| !is_own(line) && *line != "request: data:,").collect();
    assert!(others.is_empty(), "{others:#?}");
    let functions = reported.iter().filter(|line| line.contains("/function/")).count();
    assert!((2..20).contains(&functions), "listings come when they are looked at: {functions}");
}

#[test]
fn a_written_page_has_native_code() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("page.html");
    let file = file.to_str().expect("a plain path");
    let arguments = ["explore", "-q", "--target", "x86_64", "--output", file];
    let status = program().args(arguments).args(SAMPLE).status().expect("the program starts");
    assert!(status.success());
    let page = Page::open(&format!("file://{file}"), |_| ());
    explore(&page);
    assert!(page.reported().iter().all(|line| line.starts_with("request: ")));
}

#[test]
fn a_server_answers_its_own_page_only() {
    let served = Served::start(&["samples/duplicates.clif"]);
    let own = format!("Host: {}\r\n", served.host());
    let (code, page) = served.ask("GET", "/", &own);
    assert_eq!(code, 200);
    let policy = "Content-Security-Policy: default-src 'none'; script-src 'sha256-";
    assert!(page.contains(policy) && page.contains("frame-ancestors 'none'"), "{page}");
    assert_eq!(served.ask("GET", "/function/0.json", &own).0, 200);
    for path in ["/function/3000.json", "/function/-1.json", "/function/0", "/../Cargo.toml", "/x"]
    {
        assert_eq!(served.ask("GET", path, &own).0, 404, "{path}");
    }
    let port = served.host().rsplit_once(':').expect("a port").1;
    assert_eq!(served.ask("GET", "/", &format!("Host: localhost:{port}\r\n")).0, 200);
    let twice = format!("{own}Host: example.com\r\n");
    let foreign = format!("Host: example.com:{port}\r\n");
    for host in ["", "Host: example.com\r\n", "Host: 127.0.0.1\r\n", &foreign, &twice] {
        let (code, answer) = served.ask("GET", "/", host);
        assert_eq!(code, 403, "{host}");
        assert!(!answer.contains("<html"), "{host}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(served.ask(method, "/", &own).0, 405, "{method}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_server_cleanly() {
    for signal in ["-INT", "-TERM"] {
        let mut served = Served::start(&["samples/duplicates.clif"]);
        let id = served.child.id().to_string();
        let killed = std::process::Command::new("kill").args([signal, &id]).status();
        assert!(killed.expect("kill").success());
        assert_eq!(served.child.wait().expect("an end").code(), Some(0), "{signal}");
    }
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let served = Served::start(&["samples/duplicates.clif"]);
    let port = served.host().rsplit_once(':').expect("a port").1;
    let output = program().args(["explore", "--port", port, "samples/duplicates.clif"]).output();
    let output = output.expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: cannot listen on "), "{stderr}");
}

/// The examples that the help gives, beyond the first.
#[test]
fn examples_of_the_help() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("a plain path").to_owned();
    let file = at("unit.html");
    let unit = "samples/duplicates.clif";
    let arguments = ["explore", "--target", "aarch64", "-o", &file, unit];
    assert!(program().args(arguments).status().expect("the program starts").success());
    let page = std::fs::read_to_string(&file).expect("a page");
    assert!(page.contains(" of aarch64 code saved</h1>"), "{page}");
    let module = "(module (func (export \"f\") (param i32) (result i32) local.get 0)\n\
                  (func (export \"g\") (param i32) (result i32) local.get 0))\n";
    if cfg!(feature = "wasm") {
        let app = at("app.wat");
        std::fs::write(&app, module).expect("a file");
        let served = Served::start(&[&app]);
        let (code, page) = served.ask("GET", "/", &format!("Host: {}\r\n", served.host()));
        assert_eq!(code, 200);
        assert!(page.contains("app.wat"), "{page}");
    }
}
