//! `clif-merge explore`: the page of a report, with the native code of functions, for a browser on
//! this machine.
//!
//! The page is served on the loopback interface; listings are made when they are looked at. With
//! `--output`, they are embedded, and nothing is served. It measures as `report` does, for one
//! target.

mod server;

use crate::args::{Common, Input};
use crate::exit::Exit;
use crate::jobs::JobsArg;
use crate::output::Output;
use crate::page::{self, Page};
use crate::report::{Task, measure};
use anyhow::{Context as _, Result};
use clif_unit::unit::Source;
use server::{Reply, Server};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Explore in a browser what merging does to each function: its CLIF, its native code, its plan
///
/// Serves the page of 'report --format html' on this machine, with the native code of each function
/// before and after merging, until it is ended with Ctrl-C. The address is printed on standard
/// error. Other machines cannot reach it; other users of this machine can.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit::HELP))]
pub struct Opts {
    /// The port that is listened on; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "output")]
    port: u16,

    /// Write one page with everything in it, and serve nothing
    #[arg(short, long, value_name = "OUT.html")]
    output: Option<PathBuf>,

    /// How many bytes of a page that is written the listings of functions may take
    #[arg(long, value_name = "BYTES", default_value_t = page::MAX_LISTINGS, requires = "output")]
    max_listings: usize,

    #[command(flatten)]
    input: Input,

    /// Never give two symbols one address: use thunks instead
    #[arg(long, help_heading = "Merging")]
    no_alias: bool,

    #[command(flatten)]
    jobs: JobsArg,
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  clif-merge explore unit.clif
  clif-merge explore --port 8000 app.wasm
  clif-merge explore --target aarch64 -o unit.html unit.clif";

/// Reads, merges, and serves or writes.
///
/// # Errors
///
/// Units that cannot be read, compiled or written, and a port that cannot be opened.
pub fn run(opts: Opts) -> Result<ExitCode> {
    let Opts { port, output, max_listings, input, no_alias, jobs, common } = opts;
    let output = output.map(|path| Output::check(&path)).transpose()?;
    // A port that is taken is known before the work.
    let server = match output {
        None => Some(Server::listen(port).context("cannot listen on the loopback interface")?),
        Some(_) => None,
    };
    let isas = |sources: &[Source]| Ok(vec![common.isa(sources)?]);
    let (pass, general) = (&common.pass, &common.general);
    let aliases = !no_alias;
    let task =
        Task { input: &input, pass, isas: &isas, rows: 0, repeat: 1, aliases, jobs, general };
    measure(&task.of_page(), |measured| {
        let page = Page::of(&measured, &input, max_listings);
        let page = Page { native: Some(measured.isa), served: server.is_some(), ..page };
        match (output, server) {
            (Some(output), _) => output.write_text(&page.render()),
            (None, Some(server)) => {
                serve(&page, &server);
                Ok(())
            }
            (None, None) => unreachable!("one of the two was made"),
        }
    })?;
    Ok(Exit::Done.into())
}

/// Serves a page and the listings of its functions until the program is to end.
fn serve(page: &Page<'_>, server: &Server) {
    let text = page.render();
    let url = server.url();
    server.heed_signals();
    // Whoever waits for the address needs it, however quiet the program is. A closed standard error
    // is no reason to end.
    let _ = writeln!(anstream::stderr(), "{url}");
    let answer = |path: &str| -> Option<Reply> {
        if path == "/" {
            return Some(Reply { kind: "text/html; charset=utf-8", body: text.clone().into() });
        }
        let number = path.strip_prefix("/function/")?.strip_suffix(".json")?;
        let at: usize = number.parse().ok().filter(|&at| at < page.listings())?;
        let listing = serde_json::to_vec(&page.listing(at)).ok()?;
        Some(Reply { kind: "application/json", body: listing })
    };
    server.run(&page.policy(), &answer);
}
