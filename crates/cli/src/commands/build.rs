//! `plat build SOURCE IMAGE`.

use std::path::PathBuf;

use clap::Args;
use platfs::mkfs::{FsType, Options as FormatOptions, parse_features};

use crate::build::{Progress, Settings, Size, build_file};
use crate::console::{Console, Failure};
use crate::size::parse_size;
use crate::source::{self, Options as SourceOptions};

/// Arguments of `plat build`.
#[derive(Args, Debug)]
pub struct Build {
    /// A directory, a tar archive (packed or not), an OCI image layout, a docker-save archive, or `-` for a
    /// tar archive on standard input.
    source: PathBuf,
    /// The image to make.
    image: PathBuf,
    /// Size of the image: bytes (with K, M, G, T), `auto` (the contents and a tenth more), or `min`.
    #[arg(long, default_value = "auto", value_parser = parse_image_size)]
    size: Size,
    /// Replace an image that exists.
    #[arg(long)]
    force: bool,
    #[arg(short = 'O')]
    features: Option<String>,
    #[arg(short = 'b')]
    block_size: Option<u32>,
}

fn parse_image_size(text: &str) -> Result<Size, String> {
    match text {
        "auto" => Ok(Size::Auto),
        "min" => Ok(Size::Min),
        _ => parse_size(text).map(Size::Bytes),
    }
}

struct Silent;

impl Progress for Silent {
    fn advance(&mut self, _bytes: u64) {}
}

impl Build {
    pub(super) fn run(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let (catalogue, warnings) = source::open(&self.source, SourceOptions::default())
            .map_err(|error| Failure::Failed(error.to_string()))?;
        for warning in warnings {
            console.warn(warning);
        }
        let mut format = FormatOptions::new(FsType::Ext4);
        if let Some(list) = &self.features {
            format.features = parse_features(list).map_err(Failure::Usage)?;
        }
        format.block_size = self.block_size;
        let settings = Settings { format, identity: None, size: self.size, settle_times: true, sync: false };
        if self.image.exists() && !self.force {
            return Err(Failure::about(self.image.display(), "exists; --force replaces it"));
        }
        let summary = build_file(&catalogue, &self.image, &settings, &mut Silent)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        writeln!(console.out, "{summary:?}")?;
        Ok(())
    }
}
