//! New volumes, images of trees, and the check.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use platfs::check::{self, Decision, Issue, Severity, Sink};
use platfs::mkfs::{FsType, Options};
use platfs::{Image, OpenOptions};
use platfs_host::errno_of;
use platfs_image::clock;
use platfs_image::disk::Disk;
use platfs_image::{BuildError, Builder, Size, Source, SourceError};

use platfs_open::device;
use platfs_open::door::{self, build_file};
use platfs_open::image::{self, Part};
use platfs_open::stores::StoreOptions;

use crate::failure::{Failure, guard};
use crate::image::PlatfsImage;
use crate::raw;

/// `ext2`, `ext3`, `ext4`; ext4 without a name.
///
/// # Safety
/// NULL, or a text.
unsafe fn type_of(name: *const c_char) -> Result<FsType, Failure> {
    if name.is_null() {
        return Ok(FsType::Ext4);
    }
    // SAFETY: not NULL, and a text by the header.
    match unsafe { raw::text(name) }? {
        b"ext2" => Ok(FsType::Ext2),
        b"ext3" => Ok(FsType::Ext3),
        b"ext4" => Ok(FsType::Ext4),
        other => {
            let other = String::from_utf8_lossy(other);
            Err(Failure::new(libc::EINVAL, format!("{other}: no type of a volume; ext2, ext3 or ext4")))
        }
    }
}

/// Makes a new file with an empty volume.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_mkfs(
    path: *const c_char,
    bytes: u64,
    kind: *const c_char,
) -> *mut PlatfsImage {
    guard(std::ptr::null_mut(), || {
        // SAFETY: texts by the header.
        let (path, kind) = unsafe { (raw::path(path)?, type_of(kind)?) };
        let options = OpenOptions::new().write(true).now(clock::now());
        let mut format = Options::new(kind);
        format.time = u64::try_from(clock::now().seconds).unwrap_or(0);
        let device = device::create(path.as_os_str(), bytes, &StoreOptions::default());
        let device = device.map_err(|error| Failure::from(error).at(path.display()))?;
        let image = Image::format(device, &format, &options);
        let image = image.map_err(|error| Failure::opening(&error).at(path.display()))?;
        Ok(raw::give(PlatfsImage::of(image, true)))
    })
}

/// Options of a build.
#[repr(C)]
pub struct PlatfsBuildOptions {
    /// `ext2`, `ext3` or `ext4`; NULL for ext4.
    pub kind: *const c_char,
    /// Bytes; 0 for the contents and a tenth more.
    pub size: u64,
    /// As small as it can be; then `size` is 0.
    pub smallest: c_int,
    /// Replace a file that exists.
    pub overwrite: c_int,
    /// The label; NULL for none.
    pub label: *const c_char,
}

/// Result of a build.
#[repr(C)]
pub struct PlatfsBuilt {
    /// Bytes of the image.
    pub bytes: u64,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
    /// Bytes of a block.
    pub block_size: u32,
}

/// Format and size of what is asked for; the defaults if nothing is.
///
/// # Safety
/// NULL, or options as the header describes them.
unsafe fn wanted(options: *const PlatfsBuildOptions) -> Result<(Options, Size, bool), Failure> {
    // SAFETY: NULL, or a struct by the contract.
    let Some(options) = (unsafe { options.as_ref() }) else {
        return Ok((Options::new(FsType::Ext4), Size::Auto, false));
    };
    // SAFETY: NULL, or a text by the contract.
    let mut format = Options::new(unsafe { type_of(options.kind) }?);
    if !options.label.is_null() {
        // SAFETY: not NULL, and a text by the contract.
        format.label = unsafe { raw::text(options.label) }?.to_vec();
    }
    let size = match (options.size, options.smallest) {
        (0, 0) => Size::Auto,
        (0, _) => Size::Min,
        (bytes, 0) => Size::Bytes(bytes),
        _ => {
            return Err(Failure::new(
                libc::EINVAL,
                "a size, and as small as it can be: only one is possible",
            ));
        }
    };
    Ok((format, size, options.overwrite != 0))
}

/// Makes an image of a directory, an archive or a container image.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_build(
    source: *const c_char,
    path: *const c_char,
    options: *const PlatfsBuildOptions,
    built: *mut PlatfsBuilt,
) -> c_int {
    guard(-1, || {
        // SAFETY: texts and options by the header.
        let (source, path, (format, size, overwrite)) =
            unsafe { (raw::path(source)?, raw::path(path)?, wanted(options)?) };
        let source =
            Source::open(source).map_err(|error| Failure::new(source_number(&error), error.to_string()))?;
        let builder = Builder::new(&source).format(format).size(size);
        let done = if image::parse(path.as_os_str()).part == Part::Whole {
            build_file(builder, path, overwrite, &Disk::default())
        } else {
            let device = door::open_write(path.as_os_str());
            builder.build_on(device.map_err(|error| Failure::from(error).at(path.display()))?)
        };
        let done = done.map_err(|error| Failure::new(number(&error), error.to_string()))?;
        // SAFETY: NULL, or a struct to fill, by the header.
        if let Some(built) = unsafe { built.as_mut() } {
            *built = PlatfsBuilt {
                bytes: done.bytes,
                files: done.contents.files,
                directories: done.contents.directories,
                free_blocks: done.free_blocks,
                block_size: done.block_size,
            };
        }
        Ok(0)
    })
}

/// The number of a failed build.
fn number(error: &BuildError) -> c_int {
    match error {
        BuildError::Source(error) => source_number(error),
        BuildError::Volume(error) | BuildError::At { error, .. } => error.errno(),
        BuildError::TooSmall { .. }
        | BuildError::DeviceTooSmall { .. }
        | BuildError::TooFewInodes { .. }
        | BuildError::NoRoom { .. } => libc::ENOSPC,
        BuildError::Output { error, .. } => errno_of(error),
        BuildError::Shrunk | BuildError::Internal(_) => libc::EIO,
        BuildError::Cancelled(_) => libc::ECANCELED,
        _ => libc::EINVAL,
    }
}

/// The number of a source that can't be read.
fn source_number(error: &SourceError) -> c_int {
    match error {
        SourceError::Host { error, .. } => errno_of(error),
        SourceError::Cancelled(_) => libc::ECANCELED,
        SourceError::Internal(_) => libc::EIO,
        _ => libc::EINVAL,
    }
}

/// One thing that is wrong.
#[repr(C)]
pub struct PlatfsIssue {
    /// Name of its kind.
    pub kind: *const c_char,
    /// State that was found.
    pub found: *const c_char,
    /// How it is repaired.
    pub repair: *const c_char,
    /// 0: untidy; 1: wrong; 2: damage, bytes of files may be lost; 3: the volume can't be used.
    pub severity: c_int,
    /// The inode; 0 if it is about none.
    pub inode: u64,
}

/// Counts of a check.
#[repr(C)]
pub struct PlatfsSummary {
    /// All that was wrong.
    pub issues: u64,
    /// How much of it is repaired.
    pub repaired: u64,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// Blocks.
    pub blocks: u64,
}

/// A function that learns of each issue.
pub type PlatfsIssueCall = Option<unsafe extern "C" fn(issue: *const PlatfsIssue, data: *mut c_void)>;

/// `PLATFS_REPAIR`
const REPAIR: c_uint = 1;

struct Listener {
    call: PlatfsIssueCall,
    data: *mut c_void,
    repairs: bool,
}

fn line(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{FFFD}")).unwrap_or_default()
}

impl Sink for Listener {
    fn issue(&mut self, issue: Issue) -> Decision {
        if let Some(call) = self.call {
            let (kind, found, repair) = (line(issue.kind.id), line(&issue.found), line(&issue.repair));
            let severity = match issue.kind.severity {
                Severity::Untidy => 0,
                Severity::Wrong => 1,
                Severity::Damage => 2,
                Severity::Fatal => 3,
            };
            let inode = issue.place.inode.map_or(0, |inode| u64::from(inode.get()));
            let issue = PlatfsIssue {
                kind: kind.as_ptr(),
                found: found.as_ptr(),
                repair: repair.as_ptr(),
                severity,
                inode,
            };
            // SAFETY: a function of the caller with the caller's data; the struct lives until it returns.
            unsafe { call(&raw const issue, self.data) };
        }
        if self.repairs { Decision::Repair } else { Decision::Leave }
    }
}

/// Checks a volume, and repairs it if that is asked for: 0 if nothing is wrong in the end, 1 if something is.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn platfs_check(
    path: *const c_char,
    flags: c_uint,
    call: PlatfsIssueCall,
    data: *mut c_void,
    summary: *mut PlatfsSummary,
) -> c_int {
    guard(-1, || {
        if flags & !REPAIR != 0 {
            return Err(Failure::new(libc::EINVAL, format!("unknown flags {flags:#x}")));
        }
        // SAFETY: a text by the header.
        let path = unsafe { raw::path(path) }?;
        let repairs = flags & REPAIR != 0;
        let seen =
            examined(path, Listener { call, data, repairs }).map_err(|failure| failure.at(path.display()))?;
        // SAFETY: NULL, or a struct to fill, by the header.
        if let Some(summary) = unsafe { summary.as_mut() } {
            *summary = PlatfsSummary {
                issues: seen.issues,
                repaired: seen.repaired,
                files: seen.files,
                directories: seen.directories,
                blocks_used: seen.blocks_used,
                blocks: seen.blocks,
            };
        }
        Ok(c_int::from(seen.issues > seen.repaired))
    })
}

/// Checks a file, and writes the repair if all of it stands.
fn examined(path: &std::path::Path, mut listener: Listener) -> Result<check::Summary, Failure> {
    let open = if listener.repairs { device::check } else { device::read };
    let device = open(path.as_os_str(), &StoreOptions::default())?;
    let options = check::Options { now: clock::now(), ..check::Options::default() };
    let outcome = check::check(device, &options, &mut listener)?;
    if listener.repairs && !outcome.repaired.is_unchanged() {
        outcome.repaired.apply()?;
    }
    Ok(outcome.summary)
}
