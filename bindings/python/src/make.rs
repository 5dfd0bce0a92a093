//! Building and checking.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use platfs::check::{self, Decision, Issue, Severity, Sink};
use platfs::mkfs::Options;
use platfs_image::builder::identity::GivenIdentity;
use platfs_image::clock;
use platfs_image::disk::Disk;
use platfs_image::{Builder, Owner, Size, Source, SourceOptions, Stage, Watch};
use platfs_open::door::{self, build_file};
use platfs_open::image::{self, Part};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure;
use crate::ground::{Named, Purpose};
use crate::image::type_of;

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
    #[pyo3(item)]
    block_size: Option<u32>,
    #[pyo3(item)]
    inodes: Option<u64>,
    #[pyo3(item)]
    reserved: Option<f64>,
    #[pyo3(item)]
    uuid: Option<[u8; 16]>,
    /// Seconds since 1970: of the volume, and the latest of the files.
    #[pyo3(item)]
    time: Option<u64>,
    #[pyo3(item)]
    owner: Option<(u32, u32)>,
    #[pyo3(item)]
    prefix: Option<PathBuf>,
    #[pyo3(item)]
    keep_times: bool,
    #[pyo3(item)]
    sync: bool,
    #[pyo3(item)]
    platform: Option<String>,
    #[pyo3(item)]
    image: Option<String>,
}

impl Wanted {
    fn format(&self) -> PyResult<Options> {
        let mut format = Options::new(type_of(&self.r#type)?);
        format.label.clone_from(&self.label);
        format.block_size = self.block_size;
        format.inodes = self.inodes;
        if let Some(percent) = self.reserved {
            format.reserved_percent = percent;
        }
        Ok(format)
    }

    fn source(&self) -> PyResult<SourceOptions> {
        let wrong = |error| failure::wrong(&error);
        let mut options = Source::options().exclude(&self.exclude).map_err(wrong)?;
        if let Some((uid, gid)) = self.owner {
            options = options.owner(Owner::numbers(uid, gid));
        }
        if let Some(prefix) = &self.prefix {
            options = options.prefix(prefix);
        }
        if let Some(platform) = &self.platform {
            options = options.platform(platform).map_err(wrong)?;
        }
        if let Some(image) = &self.image {
            options = options.image(image);
        }
        if let Some(time) = self.time {
            options = options.latest(i64::try_from(time).unwrap_or(i64::MAX));
        }
        Ok(options)
    }

    fn size(&self) -> Size {
        self.size.map_or(Size::Min, |bytes| if bytes == 0 { Size::Auto } else { Size::Bytes(bytes) })
    }
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

/// Shows progress to a function. What it raises, or a signal, ends the build, and is raised from there.
fn watch(call: Option<Py<PyAny>>, raised: &Arc<Mutex<Option<PyErr>>>) -> Watch {
    let raised = Arc::clone(raised);
    Watch::new(move |now| {
        let words = (named(now.stage), now.files, now.total_files, now.bytes, now.total_bytes);
        let shown = Python::attach(|py| {
            py.check_signals()?;
            call.as_ref().map_or(Ok(()), |call| call.call1(py, words).map(drop))
        });
        match shown {
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
    let watch = watch(progress, &raised);
    let (options, format) = (wanted.source()?, wanted.format()?);
    let done = failure::run(py, || -> PyResult<Made> {
        let source = options.watch(watch.clone()).open(source).map_err(|error| failure::source(&error))?;
        let stated = GivenIdentity { uuid: wanted.uuid, time: wanted.time, ..GivenIdentity::default() };
        let builder = Builder::new(&source)
            .format(format)
            .size(wanted.size())
            .identity(stated)
            .keep_times(wanted.keep_times)
            .sync(wanted.sync)
            .watch(watch);
        let built = if image::parse(out.as_os_str()).part == Part::Whole {
            build_file(builder, &out, wanted.overwrite, &Disk::default())
        } else {
            let shown = out.display().to_string();
            builder.build_on(door::open_write(out.as_os_str()).map_err(failure::image(shown))?)
        };
        let built = built.map_err(|error| failure::build(&error))?;
        let (files, directories) = (built.contents.files, built.contents.directories);
        Ok((built.bytes, files, directories, built.free_blocks, built.block_size))
    });
    match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => done?,
    }
}

/// Kind, title, what it means, what the repair risks; what was found, the repair, severity from 0 to 3; whether the repair
/// loses nothing.
type Said = (&'static str, &'static str, &'static str, &'static str, String, String, u8, bool);
/// Group, inode, block, name.
type Where<'py> = (Option<u32>, Option<u64>, Option<u64>, Option<Bound<'py, PyBytes>>);
/// Issues, repaired, files, directories, files in pieces, blocks in use, blocks, inodes in use, inodes.
type Counts = (u64, u64, u64, u64, u64, u64, u64, u64, u64);

struct Listener {
    found: Vec<Issue>,
    most: usize,
    repairs: bool,
}

impl Sink for Listener {
    fn issue(&mut self, issue: Issue) -> Decision {
        if self.found.len() < self.most {
            self.found.push(issue);
        }
        if self.repairs { Decision::Repair } else { Decision::Leave }
    }
}

fn said(issue: Issue, py: Python<'_>) -> (Said, Where<'_>) {
    let (kind, place) = (issue.kind, issue.place);
    let severity = match kind.severity {
        Severity::Untidy => 0,
        Severity::Wrong => 1,
        Severity::Damage => 2,
        Severity::Fatal => 3,
    };
    let name = place.name.map(|name| PyBytes::new(py, &name));
    let inode = place.inode.map(|inode| u64::from(inode.get()));
    (
        (kind.id, kind.title, kind.means, kind.risk, issue.found, issue.repair, severity, kind.safe),
        (place.group.map(|group| group.0), inode, place.block.map(|block| block.0), name),
    )
}

fn counts(of: &check::Summary) -> Counts {
    (
        of.issues,
        of.repaired,
        of.files,
        of.directories,
        of.fragmented,
        of.blocks_used,
        of.blocks,
        of.inodes_used,
        of.inodes,
    )
}

/// Checks what `named` names; at most `most` issues are kept.
#[pyfunction]
#[pyo3(name = "check")]
pub(crate) fn examine<'py>(
    py: Python<'py>,
    named: Named,
    repair: bool,
    most: usize,
) -> PyResult<(Vec<(Said, Where<'py>)>, Counts)> {
    let shown = named.shown();
    let device = named.open(py, if repair { Purpose::Repair } else { Purpose::Read })?;
    let mut listener = Listener { found: Vec::new(), most, repairs: repair };
    let options = check::Options { now: clock::now(), ..check::Options::default() };
    let summary = failure::run(py, || -> PyResult<check::Summary> {
        let outcome = check::check(Arc::clone(&device), &options, &mut listener)
            .map_err(|error| failure::unopened(&*device, &error, shown))?;
        if repair && !outcome.repaired.is_unchanged() {
            outcome.repaired.apply().map_err(|error| failure::device(&error))?;
        }
        Ok(outcome.summary)
    })??;
    Ok((listener.found.into_iter().map(|issue| said(issue, py)).collect(), counts(&summary)))
}
