//! Building and checking.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use platfs::check::{self, Decision, Issue, Severity, Sink};
use platfs::device::{Device, FileDevice};
use platfs::mkfs::Options;
use platfs_image::{Builder, Size, Source, Stage, Watch};
use pyo3::prelude::*;

use crate::failure;
use crate::host::HostFile;
use crate::image::{clock, type_of};

/// Bytes, files, directories, free blocks, size of a block.
type Made = (u64, u64, u64, u64, u32);

/// Options of a build, as Python's half gathered them.
#[derive(FromPyObject)]
pub(crate) struct Wanted {
    #[pyo3(item)]
    r#type: String,
    /// Bytes; `None` for as small as it can be; 0 for the contents and a tenth more.
    #[pyo3(item)]
    size: Option<u64>,
    #[pyo3(item)]
    label: Vec<u8>,
    #[pyo3(item)]
    overwrite: bool,
    #[pyo3(item)]
    exclude: Vec<String>,
}

/// The name of a stage.
fn named(stage: Stage) -> &'static str {
    match stage {
        Stage::Reading => "reading",
        Stage::Planning => "planning",
        Stage::Names => "names",
        Stage::Data => "data",
        Stage::Finishing => "finishing",
        _ => "working",
    }
}

/// Shows progress to a function; what it raises ends the build, and is raised from there.
fn watch(call: Py<PyAny>, raised: &Arc<Mutex<Option<PyErr>>>) -> Watch {
    let raised = Arc::clone(raised);
    Watch::new(move |now| {
        let words = (named(now.stage), now.files, now.total_files, now.bytes, now.total_bytes);
        match Python::attach(|py| call.call1(py, words).map(drop)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                ControlFlow::Break(())
            }
        }
    })
}

/// Makes an image of a directory, an archive or a container image.
#[pyfunction]
pub(crate) fn build(
    py: Python<'_>,
    source: PathBuf,
    out: PathBuf,
    wanted: Wanted,
    progress: Option<Py<PyAny>>,
) -> PyResult<Made> {
    let raised = Arc::default();
    let watch = progress.map_or_else(Watch::default, |call| watch(call, &raised));
    let mut format = Options::new(type_of(&wanted.r#type)?);
    format.label.clone_from(&wanted.label);
    let done = py.detach(|| -> PyResult<Made> {
        let options =
            Source::options().exclude(&wanted.exclude).map_err(|error| failure::value(error.to_string()))?;
        let source = options.watch(watch.clone()).open(source).map_err(|error| failure::source(&error))?;
        let size =
            wanted.size.map_or(Size::Min, |bytes| if bytes == 0 { Size::Auto } else { Size::Bytes(bytes) });
        let builder =
            Builder::new(&source).format(format).size(size).overwrite(wanted.overwrite).watch(watch);
        let built = builder.build(out).map_err(|error| failure::build(&error))?;
        let (files, directories) = (built.contents.files, built.contents.directories);
        Ok((built.bytes, files, directories, built.free_blocks, built.block_size))
    });
    match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => done,
    }
}

/// Kind, title, found, repair, severity, inode, whether it was repaired.
type Found = (&'static str, &'static str, String, String, &'static str, Option<u64>);
/// Issues, repaired, files, directories, files in pieces, blocks in use, blocks, inodes in use, inodes.
type Counts = (u64, u64, u64, u64, u64, u64, u64, u64, u64);

struct Listener {
    found: Vec<Found>,
    repairs: bool,
}

impl Sink for Listener {
    fn issue(&mut self, issue: Issue) -> Decision {
        let severity = match issue.kind.severity {
            Severity::Untidy => "untidy",
            Severity::Wrong => "wrong",
            Severity::Damage => "damage",
            Severity::Fatal => "fatal",
        };
        let inode = issue.place.inode.map(|inode| u64::from(inode.get()));
        self.found.push((issue.kind.id, issue.kind.title, issue.found, issue.repair, severity, inode));
        if self.repairs { Decision::Repair } else { Decision::Leave }
    }
}

/// Checks a file, or an object of Python; `path` names a file.
#[pyfunction]
#[pyo3(name = "check")]
pub(crate) fn examine(
    py: Python<'_>,
    path: Option<PathBuf>,
    object: Option<Py<PyAny>>,
    repair: bool,
) -> PyResult<(Vec<Found>, Counts)> {
    let device: Arc<dyn Device> = match (path, object) {
        (Some(path), _) => {
            let at = failure::host(path.display().to_string());
            let file = File::options().read(true).write(repair).open(&path).map_err(&at)?;
            let device = if repair { FileDevice::locked(file) } else { FileDevice::new(file) };
            Arc::new(device.map_err(at)?)
        }
        (None, Some(object)) => Arc::new(HostFile::new(py, object)?),
        (None, None) => return Err(failure::value("nothing to check")),
    };
    let mut listener = Listener { found: Vec::new(), repairs: repair };
    let options = check::Options { now: clock(), ..check::Options::default() };
    let summary = py.detach(|| -> PyResult<check::Summary> {
        let outcome = check::check(device, &options, &mut listener).map_err(failure::of)?;
        if repair && !outcome.repaired.is_unchanged() {
            outcome.repaired.apply().map_err(|error| failure::device(&error))?;
        }
        Ok(outcome.summary)
    })?;
    let of = summary;
    let counts = (
        of.issues,
        of.repaired,
        of.files,
        of.directories,
        of.fragmented,
        of.blocks_used,
        of.blocks,
        of.inodes_used,
        of.inodes,
    );
    Ok((listener.found, counts))
}
