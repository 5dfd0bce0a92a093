//! Mounts, and work in them while they are used. Python's half gives the results their types.

use std::io;
use std::path::PathBuf;

use platfs::ondisk::quota::QuotaKind;
use platfs::quota::{Graces, Limits};
use platfs_image::output::{OutputLocation, Privacy};
use platfs_open::door::output::Output;
use platfs_serve::bulk::Done;
use platfs_serve::live::Live;
use platfs_serve::mount::error::MountError;
use platfs_serve::mount::quotas::{self, Deed, Report};
use platfs_serve::mount::{Mount, MountOptions, Mounted};
use platfs_serve::sizes::Sizes;
use pyo3::prelude::*;

use crate::failure;
use crate::image::Closable;

/// A mount that this process serves. It ends with the object at the latest.
#[pyclass(frozen, module = "platfs._native")]
pub(crate) struct Mountpoint {
    mounted: Closable<Mounted>,
    warnings: Vec<String>,
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            // Its end waits for the volume, and for programs that are served on other threads.
            Python::attach(|py| py.detach(|| drop(mounted)));
        }
    }
}

/// Mounts an image on a directory; `words` are those behind `plat mount -o`.
#[pyfunction]
pub(crate) fn mount(py: Python<'_>, image: PathBuf, directory: PathBuf, words: &str) -> PyResult<Mountpoint> {
    let options: MountOptions = words.parse().map_err(|why: String| failure::value(why))?;
    let mounted = failure::run(py, || -> Result<_, MountError> {
        let mount = Mount::image(&image, options)?;
        let warnings = mount.warnings().to_vec();
        Ok((mount.at(&directory)?, warnings))
    });
    let (mounted, warnings) = mounted?.map_err(failure::mount)?;
    Ok(Mountpoint { mounted: Closable::new(mounted, Some(std::process::id())), warnings })
}

#[pymethods]
impl Mountpoint {
    /// Messages about the image that a user should see.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// Ends it whatever happens: where files are open in it, it vanishes, and is closed with the last of them.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let mounted = self.mounted.take();
        failure::run(py, || drop(mounted))
    }

    /// Unmounts it. Where files are open in it, it stays.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut mounted) = self.mounted.take() else { return Ok(()) };
        let done = failure::run(py, || {
            let done = mounted.unmount();
            (done, mounted)
        });
        let (done, mounted) = done?;
        if done.is_err() && mounted.is_served() {
            self.mounted.put(mounted);
        }
        done.map_err(failure::mount)
    }
}

/// Files, directories, bytes, attributes that were left out.
type Work = (u64, u64, u64, u64);

fn work(done: &Done) -> Work {
    (done.files, done.directories, done.bytes, done.attributes_left_out)
}

/// Size of a block; blocks, bytes and groups, each before and after; blocks and inodes that move.
type Resized = (u64, [u64; 2], [u64; 2], [u64; 2], u64, u64);

fn resized(sizes: &Sizes) -> Resized {
    let blocks = [sizes.blocks_before, sizes.blocks_after];
    let bytes = [sizes.bytes_before, sizes.bytes_after];
    let groups = [sizes.groups_before, sizes.groups_after];
    (sizes.block_size, blocks, bytes, groups, sizes.blocks_moved, sizes.inodes_moved)
}

/// Kinds that are counted, whether limits count, seconds of grace for space and for inodes, and the records.
type Quotas = (Vec<&'static str>, bool, [u32; 2], Vec<QuotaRecord>);
/// Id; bytes and inodes in use; limits: soft and hard of bytes, soft and hard of inodes; ends of graces.
type QuotaRecord = (u32, [u64; 2], [u64; 4], [u64; 2]);

fn quota_kind(name: &str) -> PyResult<QuotaKind> {
    let known = QuotaKind::ALL.into_iter().find(|kind| kind.name() == name);
    known.ok_or_else(|| failure::value(format!("{name}: no kind of quota; user, group or project")))
}

fn quota_report(report: Report) -> Quotas {
    let records = report.records.into_iter().map(|record| {
        let Limits { soft_bytes, hard_bytes, soft_inodes, hard_inodes } = record.limits;
        let used = [record.usage.bytes, record.usage.inodes];
        let limits = [soft_bytes, hard_bytes, soft_inodes, hard_inodes];
        (record.id, used, limits, [record.bytes_until, record.inodes_until])
    });
    let kinds = report.kinds.into_iter().map(QuotaKind::name).collect();
    let Graces { bytes, inodes } = report.graces;
    (kinds, report.enforced, [bytes, inodes], records.collect())
}

/// A mount of this or another process, to be worked on while it is used.
#[pyclass(frozen, module = "platfs._native")]
pub(crate) struct LiveMount {
    directory: PathBuf,
}

impl LiveMount {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        verb: impl FnOnce(&Live) -> Result<T, MountError> + Send,
    ) -> PyResult<T> {
        let live = Live::at(&self.directory);
        failure::run(py, || verb(&live))?.map_err(failure::mount)
    }

    fn quota_request(&self, py: Python<'_>, request: Deed) -> PyResult<Report> {
        self.ask(py, |live| live.quota(request))
    }
}

#[pymethods]
impl LiveMount {
    #[new]
    fn new(directory: PathBuf) -> Self {
        LiveMount { directory }
    }

    /// The counts of the mount, as text in JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, |live| Ok(serde_json::Value::Object(live.statistics()?).to_string()))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, Live::sync)
    }

    fn copy(&self, py: Python<'_>, source: PathBuf, to: PathBuf) -> PyResult<Work> {
        self.ask(py, |live| Ok(work(&live.copy(source, to)?)))
    }

    fn remove(&self, py: Python<'_>, path: PathBuf) -> PyResult<Work> {
        self.ask(py, |live| Ok(work(&live.remove(path)?)))
    }

    /// Writes a snapshot into a new file of the host. It appears whole or not at all, and only its owner may read it.
    fn snapshot(&self, py: Python<'_>, out: PathBuf) -> PyResult<Work> {
        let failed = || failure::host(out.display().to_string());
        let begin = || {
            let place = OutputLocation::of(&out)?;
            if place.is_taken() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let output = Output::begin(&place, 0, Privacy::Private, false)?;
            Ok((output.file()?, output))
        };
        let (file, output) = failure::run(py, begin)?.map_err(failed())?;
        let taken = self.ask(py, |live| Ok(work(&live.snapshot(&file)?)))?;
        drop(file);
        failure::run(py, || output.finish())?.map_err(failed())?;
        Ok(taken)
    }

    fn resize(&self, py: Python<'_>, bytes: u64) -> PyResult<Resized> {
        self.ask(py, |live| Ok(resized(&live.resize(bytes)?)))
    }

    fn least_size(&self, py: Python<'_>) -> PyResult<Resized> {
        self.ask(py, |live| Ok(resized(&live.least_size()?)))
    }

    /// The report, as text in JSON.
    fn defragment(&self, py: Python<'_>, path: PathBuf) -> PyResult<String> {
        self.ask(py, |live| Ok(serde_json::Value::Object(live.defragment(path)?).to_string()))
    }

    fn trim(&self, py: Python<'_>, least: u64) -> PyResult<u64> {
        self.ask(py, |live| live.trim(least))
    }

    fn quota(&self, py: Python<'_>, kind: &str) -> PyResult<Quotas> {
        Ok(quota_report(self.quota_request(py, Deed::Show(quota_kind(kind)?, 0))?))
    }

    /// Sets limits: soft and hard of bytes, soft and hard of inodes.
    fn set_quota(&self, py: Python<'_>, kind: &str, id: u32, limits: [u64; 4]) -> PyResult<()> {
        let [soft_bytes, hard_bytes, soft_inodes, hard_inodes] = limits;
        let limits = Limits { soft_bytes, hard_bytes, soft_inodes, hard_inodes };
        self.quota_request(py, Deed::Limit(quota_kind(kind)?, id, limits)).map(drop)
    }

    /// Sets when the graces of an id end, in seconds since 1970; 0 leaves one as it is.
    fn set_grace_ends(&self, py: Python<'_>, kind: &str, id: u32, bytes: u64, inodes: u64) -> PyResult<()> {
        self.quota_request(py, Deed::End(quota_kind(kind)?, id, bytes, inodes)).map(drop)
    }

    fn set_graces(&self, py: Python<'_>, kind: &str, bytes: u32, inodes: u32) -> PyResult<()> {
        self.quota_request(py, Deed::Grace(quota_kind(kind)?, Graces { bytes, inodes })).map(drop)
    }

    /// Begins to count some kinds, and ends that of others.
    fn switch_quota(&self, py: Python<'_>, on: Vec<String>, off: Vec<String>) -> PyResult<()> {
        let bits = |names: &[String]| -> PyResult<u32> {
            let kinds = names.iter().map(|name| quota_kind(name)).collect::<PyResult<Vec<_>>>()?;
            Ok(quotas::bits(&kinds))
        };
        self.quota_request(py, Deed::Switch(bits(&on)?, bits(&off)?)).map(drop)
    }

    /// Counts again; the ids that were wrong.
    fn recount_quota(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.quota_request(py, Deed::Recount)?.count)
    }
}
