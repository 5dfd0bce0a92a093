//! Options of reading a source: excludes, owners, latest times, the image of several.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::attributes::{Ids, Stamps};
use super::capability;
use super::contexts::FileContexts;
use super::devices::DeviceTable;
use super::filter::{Excludes, FilterError, IdRange, Owner, check_platform, is_outside, map};
use super::fs_config::FsConfig;
use crate::archive::acl::{self, Acl};
use crate::archive::{Timestamp, Xattr};
use crate::watch::Watch;

/// Options of reading a source. The default takes everything as it is.
///
/// ```
/// use platfs_image::{IdRange, Source};
/// # let directory = tempfile::tempdir()?;
/// # std::fs::write(directory.path().join("kept"), "")?;
/// # std::fs::write(directory.path().join("main.o"), "")?;
/// # let tree = directory.path();
///
/// let source = Source::options()
///     .exclude(&["*.o", "/proc/*"])?
///     .map_uid(IdRange::new(100_000, 0, 65_536)?)
///     .open(tree)?;
/// assert!(source.catalogue().find(b"kept").is_some());
/// assert!(source.catalogue().find(b"main.o").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is read before `open` or `read`"]
pub struct SourceOptions {
    pub(super) exclude: Excludes,
    pub(super) owner: Option<Owner>,
    pub(super) map_uid: Vec<IdRange>,
    pub(super) map_gid: Vec<IdRange>,
    pub(super) prefix: Option<PathBuf>,
    pub(super) latest: Option<i64>,
    pub(super) root: Vec<Xattr>,
    pub(super) root_ids: Option<Ids>,
    pub(super) root_mode: Option<u16>,
    pub(super) platform: Option<String>,
    pub(super) image: Option<String>,
    pub(super) threads: Option<NonZeroUsize>,
    pub(super) spool: Option<PathBuf>,
    pub(super) devices: Option<DeviceTable>,
    pub(super) contexts: Option<FileContexts>,
    pub(super) fs_config: Option<FsConfig>,
    pub(super) mount_point: Vec<u8>,
    pub(super) one_file_system: bool,
    pub(super) in_use: bool,
    pub(super) no_xattrs: bool,
    pub(super) keep_going: bool,
    /// Files of the host that are no part of a source, by device and inode.
    pub(super) except: Vec<(u64, u64)>,
    pub(super) most: Option<u64>,
    pub(super) watch: Watch,
}

impl SourceOptions {
    /// Everything is taken as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out what matches one of the patterns; they take the place of those said before.
    ///
    /// `*` and `?` match within a name, `**` across names, `[a-z]` and `[!a-z]` one byte of a set, `\` takes the next
    /// character as it is. A pattern without a slash is compared with every name; one with a slash with the whole
    /// path from the source's root (a slash in front is not needed). A slash at the end is ignored. What matches is
    /// left out with all that is below it.
    ///
    /// # Errors
    /// [`FilterError::Pattern`].
    pub fn exclude<S: AsRef<str>>(mut self, patterns: &[S]) -> Result<Self, FilterError> {
        self.exclude = Excludes::new(patterns)?;
        Ok(self)
    }

    /// Gives everything one owner, whatever the source says. Names are those of the source's own `/etc/passwd` and
    /// `/etc/group`. Named entries of ACLs stay.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Moves a range of users' numbers, those of ACLs too; others stay. Can be said several times, for ranges that
    /// do not overlap.
    pub fn map_uid(mut self, range: IdRange) -> Self {
        self.map_uid.push(range);
        self
    }

    /// Maps a range of groups.
    pub fn map_gid(mut self, range: IdRange) -> Self {
        self.map_gid.push(range);
        self
    }

    /// Puts everything under this directory of the image.
    pub fn prefix(mut self, directory: impl Into<PathBuf>) -> Self {
        self.prefix = Some(directory.into());
        self
    }

    /// Gives the root of the image an attribute that the source does not have.
    pub fn mark_root(mut self, name: &[u8], value: &[u8]) -> Self {
        self.root.push(Xattr { name: name.into(), value: value.into() });
        self
    }

    /// Gives the root of the image this owner, whatever the source says.
    pub fn root_owner(mut self, uid: u32, gid: u32) -> Self {
        self.root_ids = Some(Ids { uid, gid });
        self
    }

    /// Gives the root of the image these permission bits, whatever the source says.
    pub fn root_mode(mut self, mode: u16) -> Self {
        self.root_mode = Some(mode);
        self
    }

    /// Brings later times down to this one, in seconds since 1970: what `SOURCE_DATE_EPOCH` asks for.
    pub fn latest(mut self, seconds: i64) -> Self {
        self.latest = Some(seconds);
        self
    }

    /// Chooses the image for this platform, `OS/ARCHITECTURE[/VARIANT]`; that of this machine if it is not said.
    ///
    /// # Errors
    /// [`FilterError::Platform`].
    pub fn platform(mut self, platform: &str) -> Result<Self, FilterError> {
        self.platform = Some(check_platform(platform)?);
        Ok(self)
    }

    /// Chooses the image of this tag or reference name.
    pub fn image(mut self, name: impl Into<String>) -> Self {
        self.image = Some(name.into());
        self
    }

    /// Does not enter directories of a source on which another file system is mounted. What the kernel shows as files (proc,
    /// sysfs and the like) is never entered below a source.
    pub fn one_file_system(mut self, stays: bool) -> Self {
        self.one_file_system = stays;
        self
    }

    /// Goes on where a file of a directory vanishes or becomes shorter while it is copied: zeros stand for what is lost, and
    /// [`super::Source::lost`] tells of it. Else that is an error.
    pub fn in_use(mut self, goes_on: bool) -> Self {
        self.in_use = goes_on;
        self
    }

    /// Takes what stands before the place where an archive is damaged or cut off, and warns of it
    /// ([`super::SourceWarning::Cut`]). Else that is an error.
    pub fn keep_going(mut self, goes_on: bool) -> Self {
        self.keep_going = goes_on;
        self
    }

    /// Takes no extended attributes from the source, access control lists and capabilities among them.
    pub fn without_xattrs(mut self, without: bool) -> Self {
        self.no_xattrs = without;
        self
    }

    /// Leaves out a file of the host that lies in a directory of the source: what an image is to replace. Nothing is left
    /// out if there is none.
    pub fn except(mut self, file: impl AsRef<Path>) -> Self {
        if let Ok((facts, _)) = platfs_host::target_of(file.as_ref()) {
            self.except.push((facts.id.device, facts.id.inode));
        }
        self
    }

    /// Lists a directory with this many threads; as many as help if it is not said.
    pub fn threads(mut self, count: NonZeroUsize) -> Self {
        self.threads = Some(count);
        self
    }

    /// Makes spools, for what is compressed or a stream, in this directory: that of the image is a good place. Else in
    /// the system's directory for temporary files.
    pub fn spool(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spool = Some(directory.into());
        self
    }

    /// Adds files and sets owners and permission bits by a table, when all else is read and said: it has the last
    /// word about them.
    pub fn devices(mut self, table: DeviceTable) -> Self {
        self.devices = Some(table);
        self
    }

    /// Labels all files for SELinux, by their paths in the image. It gets a `lost+found` then that has a label, too.
    pub fn contexts(mut self, table: FileContexts) -> Self {
        self.contexts = Some(table);
        self
    }

    /// Sets owners, permission bits and capabilities by Android's `fs_config`; it has the last word about them.
    pub fn fs_config(mut self, table: FsConfig) -> Self {
        self.fs_config = Some(table);
        self
    }

    /// Names the directory on which the volume will be mounted: paths in tables of labels and of `fs_config` begin with it.
    pub fn mount_point(mut self, directory: impl AsRef<[u8]>) -> Self {
        let names = directory.as_ref().split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.mount_point = names.collect::<Vec<_>>().join(&b'/');
        self
    }

    /// Bounds what the source may become: the bytes that its packed archives and layers unpack to, all together, the
    /// memory that names and attributes take, and the blocks of data that lie scattered. Where nothing is said it is 1 GiB,
    /// or 250 times as many bytes as it has (16 times in memory), whichever is more: an archive made to fill a disk is
    /// refused.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.most = Some(bytes);
        self
    }

    /// Shows the progress to a closure, which can end the reading.
    pub fn watch(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }

    /// Applies the mappings.
    pub(super) fn map_ids(&self, ids: Ids) -> Ids {
        Ids { uid: map(&self.map_uid, ids.uid), gid: map(&self.map_gid, ids.gid) }
    }

    /// True if mappings were given, and none names the owner or group.
    pub(super) fn leaves(&self, ids: Ids) -> bool {
        is_outside(&self.map_uid, ids.uid) || is_outside(&self.map_gid, ids.gid)
    }

    /// Refuses ranges that contradict each other. Several numbers may well become one.
    pub(super) fn check_ranges(&self) -> Result<(), FilterError> {
        for (option, ranges) in [("map_uid", &self.map_uid), ("map_gid", &self.map_gid)] {
            for (at, first) in ranges.iter().enumerate() {
                let others = ranges.iter().skip(at + 1);
                if let Some(second) = others.into_iter().find(|second| first.overlaps(**second)) {
                    return Err(FilterError::Overlap { option, first: *first, second: *second });
                }
            }
        }
        Ok(())
    }

    /// Refuses options for images, once the source turned out to be none.
    pub(super) fn refuse_image_options(&self, source_name: &str) -> Result<(), FilterError> {
        let given = [("platform", self.platform.is_some()), ("image", self.image.is_some())];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(FilterError::NoImage { option, source_name: source_name.to_owned() }),
            None => Ok(()),
        }
    }

    /// Returns true if ACLs must be rewritten.
    pub(super) fn maps_ids(&self) -> bool {
        !self.map_uid.is_empty() || !self.map_gid.is_empty()
    }

    /// Applies the mappings to an ACL attribute, and to the root user for whom capabilities hold; others stay as they are.
    pub(super) fn map_xattr(&self, xattr: &mut Xattr) {
        if &*xattr.name == capability::NAME
            && let Some(mapped) = capability::for_root(&xattr.value, |id| map(&self.map_uid, id))
        {
            xattr.value = mapped.into();
        }
        let is_acl = matches!(&*xattr.name, acl::ACCESS | acl::DEFAULT);
        if let Some(acl) = is_acl.then(|| Acl::decode(&xattr.value).ok()).flatten() {
            let mapped = acl.map_ids(|id| map(&self.map_uid, id), |id| map(&self.map_gid, id));
            xattr.value = mapped.encode().into();
        }
    }

    /// Brings times down to the latest allowed.
    pub(super) fn clamp(&self, stamps: Stamps) -> Stamps {
        let Some(latest) = self.latest.map(Timestamp::from_seconds) else {
            return stamps;
        };
        Stamps {
            modified: stamps.modified.min(latest),
            accessed: stamps.accessed.min(latest),
            changed: stamps.changed.min(latest),
            created: stamps.created.min(latest),
        }
    }
}
