//! `plat help [TOPIC]`, `plat completions SHELL`, and `plat man DIR`: the manual as the command brings it along.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::console::{Console, Failure};
use crate::format;
use crate::manual::{self, topics};
use crate::text;

/// Arguments of `plat help`.
#[derive(Args, Debug)]
pub struct Help {
    /// A command, by all its words, or a topic; `plat --help` lists both.
    words: Vec<String>,
}

impl Help {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let topic = self.words.join(" ");
        if let Some(found) = topics::find(&topic) {
            console.out.write_all(found.text().as_bytes())?;
            return Ok(());
        }
        let Some(help) = manual::help(&self.words) else {
            let names: Vec<&str> = topics::TOPICS.iter().map(|topic| topic.name).collect();
            let asked = text::Shown(topic.as_bytes());
            return Err(Failure::Usage(format!(
                "{asked}: no command and no topic; topics are {}",
                names.join(", ")
            )));
        };
        console.out.write_all(help.as_bytes())?;
        Ok(())
    }
}

/// Arguments of `plat completions`.
#[derive(Args, Debug)]
#[command(after_help = "bash: plat completions bash > ~/.local/share/bash-completion/completions/plat\n\
                  zsh:  plat completions zsh > a directory of $fpath/_plat\n\
                  fish: plat completions fish > ~/.config/fish/completions/plat.fish")]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        console.out.write_all(&manual::completions(self.shell))?;
        Ok(())
    }
}

/// Arguments of `plat man`.
#[derive(Args, Debug)]
pub struct Man {
    /// The directory that gets the pages; it is made if it is missing.
    directory: PathBuf,
}

impl Man {
    pub(super) fn run(&self, _console: &mut Console<'_>) -> Result<(), Failure> {
        let time = text::whole_seconds(format::now()?);
        let date = time.get(..10).unwrap_or(&time);
        manual::write_pages(&self.directory, date)
            .map_err(|error| Failure::about(self.directory.display(), error))
    }
}
