//! `plat mv`: other names for files of an image.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use platfs::Replace;

use crate::console::{Console, Failure};
use crate::reading::OpenImage;
use crate::writing::{self, Place, Target};

/// Arguments of `plat mv`.
#[derive(Args, Debug)]
pub struct Mv {
    #[command(flatten)]
    image: Target,
    /// Files, and behind them where they go: a directory, or the new name of a single one.
    #[arg(required = true, num_args = 2.., value_name = "PATH... TARGET")]
    paths: Vec<OsString>,
    /// An existing file is not replaced: that is a failure.
    #[arg(short, long)]
    no_clobber: bool,
    /// Both files exist and exchange their names.
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

impl Mv {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        writing::change_towards(&self.image, &self.paths, console, |image, source, target| {
            self.one(image, source, target)
        })
    }

    fn one(&self, image: &OpenImage, source: &OsString, target: &OsString) -> Result<(), Failure> {
        let replace = match (self.no_clobber, self.exchange) {
            (true, _) => Replace::No,
            (_, true) => Replace::Exchange,
            _ => Replace::Yes,
        };
        let to = if self.exchange { target.clone() } else { writing::target(image, source, target) };
        let from = writing::place(image, source)?;
        let Place { directory, name } = writing::place(image, &to)?;
        let renamed = image.volume.rename(from.directory, from.name, directory, name, replace);
        renamed.map_err(|error| image.failure(source.as_bytes(), &error))
    }
}
