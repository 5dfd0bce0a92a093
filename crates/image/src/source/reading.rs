//! What goes along while a source is read: where spools are made, how far the reading is, and what was odd.

use std::path::PathBuf;

use super::bounds::Bounds;
use super::error::{SourceError, SourceWarning};
use super::options::SourceOptions;
use crate::watch::{Meter, Stage};

/// The reading of one source.
pub(crate) struct Reading {
    /// Where spools are made.
    pub(super) spool: PathBuf,
    /// What the source has become, and may become.
    pub(super) bounds: Bounds,
    pub(super) meter: Meter,
    pub(super) warnings: Vec<SourceWarning>,
}

impl Reading {
    /// Begins.
    pub(super) fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        let spool = options.spool.clone().unwrap_or_else(std::env::temp_dir);
        let mut meter = Meter::new(options.watch.clone());
        meter.begin(Stage::Reading, None, None)?;
        Ok(Self { spool, bounds: Bounds::new(options.most), meter, warnings: Vec::new() })
    }
}
