//! Chores of the source tree: `cargo xtask tidy | figures | api | images | many`.

mod api;
mod tidy;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy | figures | api [--write] | images [NAME...] | many FILES DIRECTORIES
  tidy     the rules of the source tree: arrows between crates, the ladders inside them, ASCII, names, lengths,
           invariants that no code cites
  figures  what these rules count, crate by crate, and the ladders as the code has them
  api      how the public interfaces differ from docs/api; with --write the lists there are rewritten
  images   makes the golden images (or those named) in the cache, and prints where they are
  many     writes a tar archive of many small files to standard output";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((chore, [])) if chore == "tidy" => tidy(),
        Some((chore, [])) if chore == "figures" => {
            print!("{}", tidy::figures(&root()));
            ExitCode::SUCCESS
        }
        Some((chore, [])) if chore == "api" => api(),
        Some((chore, [word])) if chore == "api" && word == "--write" => written(api::write(&root())),
        Some((chore, names)) if chore == "images" => images(names),
        Some((chore, [files, directories])) if chore == "many" => many(files, directories),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The root of the source tree: where this crate's directory lies.
fn root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or(own.clone(), PathBuf::from)
}

fn tidy() -> ExitCode {
    let found = tidy::check(&root());
    for line in &found {
        eprintln!("tidy: {line}");
    }
    for line in tidy::slack(&root()) {
        println!("tidy: could be tighter: {line}");
    }
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn written(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn api() -> ExitCode {
    let found = match api::differences(&root()) {
        Ok(found) => found,
        Err(error) => return written(Err(error)),
    };
    found.iter().for_each(|line| println!("{line}"));
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(files: &str, directories: &str) -> ExitCode {
    let (Ok(files), Ok(directories)) = (files.parse(), directories.parse()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout());
    let written = testkit::many::write_tar(&mut out, files, directories).and_then(|()| out.flush());
    written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn images(names: &[String]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for recipe in testkit::images::all() {
        if !names.is_empty() && !names.iter().any(|name| name == recipe.name) {
            continue;
        }
        match testkit::images::make(recipe.name) {
            Ok(path) => println!("{}", path.display()),
            Err(reason) => {
                eprintln!("{}: {reason}", recipe.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
