//! State of reading a source: where spools are made, how far the reading is, and the oddities met.

use std::path::PathBuf;
use std::sync::Arc;

use super::bounds::Bounds;
use super::catalogue::{CatalogueBuilder, NodeId};
use super::error::{SourceError, SourceWarning};
use super::options::SourceOptions;
use crate::archive::{Names, TABLE_MOST};
use crate::watch::{Meter, Stage};

/// The reading of one source.
pub(crate) struct Reading {
    /// Where spools are made.
    pub(super) spool: PathBuf,
    /// Size that the source has reached, and its limits.
    pub(super) bounds: Bounds,
    pub(super) meter: Meter,
    pub(super) warnings: Vec<SourceWarning>,
    /// An archive that is damaged or cut off is read up to there.
    pub(super) keep_going: bool,
    /// The configuration of the last image.
    pub(super) configuration: Option<Vec<u8>>,
    /// Nothing but that is wanted of images.
    pub(super) skips_layers: bool,
    /// Names of owners in lower layers, and the files that say them.
    names: ([Option<NodeId>; 2], Arc<Names>),
}

impl Reading {
    /// Begins.
    pub(super) fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        let spool = options.spool.clone().unwrap_or_else(std::env::temp_dir);
        let mut meter = Meter::new(options.watch.clone());
        meter.begin(Stage::Reading, None, None)?;
        let (bounds, names) = (Bounds::new(options.most), Default::default());
        let (warnings, configuration, skips_layers) = (Vec::new(), None, false);
        let keep_going = options.keep_going;
        Ok(Self { spool, bounds, meter, warnings, keep_going, configuration, skips_layers, names })
    }

    /// Notes that an archive is read no further; an error where that is not wanted.
    pub(super) fn cut(&mut self, archive: &str, error: SourceError) -> Result<(), SourceError> {
        if !self.keep_going {
            return Err(error);
        }
        let known = |warning: &SourceWarning| matches!(warning, SourceWarning::Cut { archive: of, .. } if of == archive);
        // A layer is gone through twice, and what is packed is cut off as archive, too.
        if !self.warnings.iter().any(known) {
            self.warnings
                .push(SourceWarning::Cut { archive: archive.to_owned(), problem: error.to_string() });
        }
        Ok(())
    }

    /// Names of owners that the tree says so far.
    pub(super) fn names(&mut self, builder: &mut CatalogueBuilder) -> Arc<Names> {
        // A path that makes no sense in the tree is that of no table.
        let tables = [&b"etc/passwd"[..], b"etc/group"].map(|path| builder.find(path).ok().flatten());
        if self.names.0 != tables {
            let bytes = |id: Option<NodeId>| id.and_then(|id| builder.peek(id, TABLE_MOST));
            let [passwd, group] = tables.map(|id| bytes(id).unwrap_or_default());
            self.names = (tables, Arc::new(Names::of(&passwd, &group)));
        }
        Arc::clone(&self.names.1)
    }
}
