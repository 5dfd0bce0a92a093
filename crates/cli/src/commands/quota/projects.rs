//! Files as part of a project: in an image by the library, in a mount (and other file systems) by the `ioctl` of `chattr -p`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ondisk::inode::{FileType, InodeFlags};
use ondisk::units::InodeNumber;
use platfs_host::{Directory, Kind, path};
use rustix::fs::OFlags;

use super::Quota;
use crate::console::{Console, Failure};
use crate::reading::OpenImage;
use crate::text::Shown;
use crate::writing;

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`: flags, extent size, extents, project, two more sizes.
const GET: u32 = 0x801c_581f;
const SET: u32 = 0x401c_5820;
const LEN: usize = 28;
const PROJECT_AT: usize = 12;
/// New files of the directory belong to its project.
const INHERIT: u32 = 0x200;

pub(super) fn set(quota: &Quota, project: u32, console: &mut Console<'_>) -> Result<(), Failure> {
    let name = quota.image.name();
    if path::is_directory(name) {
        let paths: Vec<&OsStr> = match &quota.paths[..] {
            [] => vec![name],
            paths => paths.iter().map(OsString::as_os_str).collect(),
        };
        for path in paths {
            of_mount(quota, project, PathBuf::from(path), console)?;
        }
        return Ok(());
    }
    if quota.paths.is_empty() {
        return Err(Failure::Usage("a path in the image is missing".into()));
    }
    let work = |image: &OpenImage, console: &mut Console<'_>| {
        for path in &quota.paths {
            if let Err(failure) = of_image(quota, project, (image, path), console) {
                console.complain(failure)?;
            }
        }
        Ok(())
    };
    if quota.dry_run {
        return work(&OpenImage::open(name, console)?, console);
    }
    writing::change(&quota.image, console, work)
}

fn of_image(
    quota: &Quota,
    project: u32,
    (image, path): (&OpenImage, &OsStr),
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let top = image.find(path, false)?;
    let mut one = |path: &[u8], inode: InodeNumber| {
        if quota.dry_run {
            return Ok(writeln!(console.out, "{}: project {project}", Shown(path))?);
        }
        join(image, inode, project).map_err(|error| image.failure(path, &error))
    };
    if quota.recursive { writing::tree(image, path.as_bytes(), top, one) } else { one(path.as_bytes(), top) }
}

fn join(image: &OpenImage, inode: InodeNumber, project: u32) -> platfs::Result<()> {
    let node = image.volume.inode(inode);
    node.set_project(project)?;
    let facts = image.volume.metadata(inode)?;
    if facts.file_type == FileType::Directory && !facts.flags.contains(InodeFlags::PROJINHERIT) {
        node.set_flags(facts.flags | InodeFlags::PROJINHERIT)?;
    }
    Ok(())
}

/// Files of a mount, a directory before what is in it. What can't be opened without an effect (links, pipes, devices) is
/// left out, as by `chattr`.
fn of_mount(quota: &Quota, project: u32, top: PathBuf, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut left = vec![top];
    while let Some(path) = left.pop() {
        let about = |error: std::io::Error| Failure::about(Shown(path.as_os_str().as_bytes()), error);
        let found = path::entry(&path).map_err(about)?;
        let is_directory = found.kind == Kind::Directory;
        if !is_directory && found.kind != Kind::File {
            console.warn(format!(
                "{}: left out: neither a file nor a directory",
                Shown(path.as_os_str().as_bytes())
            ));
            continue;
        }
        if quota.dry_run {
            writeln!(console.out, "{}: project {project}", Shown(path.as_os_str().as_bytes()))?;
        } else if let Err(error) = join_mounted(&path, is_directory, project) {
            console.complain(about(error))?;
        }
        if is_directory && quota.recursive {
            let names = Directory::open(&path).and_then(|mut directory| directory.names()).map_err(about)?;
            left.extend(names.into_iter().map(|name| path.join(name)));
        }
    }
    Ok(())
}

fn join_mounted(path: &Path, is_directory: bool, project: u32) -> std::io::Result<()> {
    let file = path::open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
    let mut facts = fuse::ask::<GET, LEN>(&file)?;
    if is_directory && let Some(words) = facts.first_chunk_mut::<4>() {
        *words = (u32::from_ne_bytes(*words) | INHERIT).to_ne_bytes();
    }
    if let Some(place) = facts.get_mut(PROJECT_AT..PROJECT_AT + 4) {
        place.copy_from_slice(&project.to_ne_bytes());
    }
    fuse::exchange::<SET, LEN>(&file, facts).map(drop)
}
