//! `plat stats`: what a mount has done, and how long it took.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::json;
use crate::console::{Console, Failure};
use crate::mount::statistics;
use crate::text::Shown;
use platfs_serve::refusal::Refusal;

/// Arguments of `plat stats`.
#[derive(Args, Debug)]
pub struct Stats {
    /// A place in what `plat mount` has mounted.
    directory: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let failed = |what: Refusal| Failure::about(Shown(self.directory.as_os_str().as_bytes()), what);
        let statistics = statistics::of(&self.directory).map_err(failed)?;
        if self.json {
            json::print(console.out, statistics)?;
        } else {
            show(console.out, &statistics)?;
        }
        Ok(())
    }
}

/// Shows statistics for people. The words come from the server, which may be a stranger's.
fn show(out: &mut dyn Write, statistics: &Map<String, Value>) -> std::io::Result<()> {
    let empty = Map::new();
    let part = |name: &str| statistics.get(name).and_then(Value::as_object).unwrap_or(&empty);
    let number = |of: &Map<String, Value>, name: &str| of.get(name).and_then(Value::as_u64).unwrap_or(0);
    if let Some(transport) = statistics.get("transport").and_then(Value::as_str) {
        writeln!(out, "transport {}", Shown(transport.as_bytes()))?;
        let own = statistics.get("own_permissions").and_then(Value::as_bool).unwrap_or(false);
        writeln!(out, "permissions checked by {}", if own { "the mount" } else { "the kernel" })?;
        let cage = statistics.get("cage").and_then(Value::as_str).unwrap_or("none");
        writeln!(out, "cage: {}\n", Shown(cage.as_bytes()))?;
    }
    let columns = ["count", "failed", "mean_ns", "p50_ns", "p90_ns", "p99_ns"];
    write!(out, "{:<18}", "request")?;
    for column in columns {
        write!(out, "{column:>12}")?;
    }
    writeln!(out)?;
    for (name, counts) in part("requests") {
        write!(out, "{:<18}", Shown(name.as_bytes()).to_string())?;
        for column in columns {
            write!(out, "{:>12}", number(counts.as_object().unwrap_or(&empty), column))?;
        }
        writeln!(out)?;
    }
    for name in ["amounts", "memory", "placement", "reclaimed", "scheduling", "space"] {
        if part(name).is_empty() {
            continue;
        }
        writeln!(out, "\n{name}")?;
        for (what, value) in part(name) {
            if value.as_u64() != Some(0) {
                let (what, value) = (Shown(what.as_bytes()).to_string(), value.to_string());
                writeln!(out, "  {what:<24} {}", Shown(value.as_bytes()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_strangers_server_are_no_commands_for_a_terminal() {
        let evil = "\u{1b}[2J\u{9b}2J\n\u{202e}";
        let statistics = serde_json::json!({
            "transport": evil, "cage": evil, "requests": {evil: {"count": 1}}, "memory": {evil: evil},
        });
        let mut out = Vec::new();
        show(&mut out, statistics.as_object().unwrap()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("[2J").count(), 5, "{text}");
        let is_seen = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(text.chars().all(is_seen), "{text:?}");
    }
}
