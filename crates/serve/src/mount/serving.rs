//! A mount of this process: from an open volume to a directory, and to its end.
//!
//! Owns: the order in which the parts of a server begin and end. Excludes the parts, opening an image
//! ([`super::opening`]), and the process in the background, signals and messages, which are the command's.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuse::{Mounter, Service, Session, Transport};
use platfs::Volume;
use platfs_image::text::Shown;
use platfs_open::explain::explained;
use platfs_open::{memory, stores};

use super::error::{MountError, Why};
use super::keeper::Keeper;
use super::log::{Detail, Log};
use super::opening::{self, Opened};
use super::options::{MountOptions, transport_name};
use super::outside::Outside;
use super::prefetch::{Prefetch, Wanted};
use super::trace::Traced;
use super::tree::{Guard, Terms, Tree, is_roomy};
use super::tuning::{self, Limits};
use crate::control::{self, Listener, Server};

/// Threads that serve. Most of them wait: for a device, for a commit that others share. With four, no more than
/// four calls of fsync share one (measured: `docs/mount-internals.md`).
const THREADS: std::ops::RangeInclusive<usize> = 16..=32;

/// The threads that serve where nobody says how many.
#[must_use]
pub fn usual_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).clamp(*THREADS.start(), *THREADS.end())
}

/// A volume that is about to be mounted.
///
/// ```no_run
/// use platfs_serve::mount::Mount;
///
/// let mut mounted = Mount::image("disk.img", "noatime".parse()?)?.at("/mnt")?;
/// println!("{}", std::fs::read_to_string("/mnt/etc/hostname")?);
/// mounted.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mount {
    opened: Opened,
    options: MountOptions,
    log: Arc<Log>,
    threads: usize,
    source: String,
    trace: Option<(File, PathBuf)>,
    wanted: Option<Vec<Wanted>>,
    prepared: Prepared,
}

/// Parts of a server that are begun before the image is looked at, where a cage forbids them later.
#[derive(Default)]
pub struct Prepared {
    /// The socket of the control channel.
    pub waiting: Option<Listener>,
    /// The process outside of the cage, which mounts and unmounts.
    pub outside: Option<Arc<Outside>>,
}

impl Mount {
    /// Mounts a volume that is open already. Snapshots of it can't be taken: [`Mount::image`] opens one so that they can.
    #[must_use]
    pub fn new(volume: Volume) -> Self {
        let writable = volume.is_writable();
        let (name, warnings) = ("volume".to_owned(), Vec::new());
        Mount::of(Opened {
            volume,
            name,
            writable,
            warnings,
            shared: None,
            keeping: None,
            stored: stores::Written::default(),
        })
    }

    /// Opens an image as the options say, and keeps others off it: a file, a block device, a partition, a volume of a store.
    ///
    /// # Errors
    /// It is in use, can't be read, or can't be mounted so.
    pub fn image(name: impl AsRef<OsStr>, options: MountOptions) -> Result<Self, MountError> {
        let name = name.as_ref();
        let refused =
            |why: &str| MountError { subject: platfs_open::image::shown(name).to_string(), why: why.into() };
        if options.remount {
            return Err(refused("`remount` is for `mount::remount`"));
        }
        if options.sandbox == Some(crate::sandbox::Mode::Require) {
            return Err(refused("`sandbox=require`: a library enters no cage (`sandbox::enter`)"));
        }
        let opened = opening::open(name, &options)?;
        let source = platfs_open::image::shown(name).to_string();
        Ok(Mount::of(opened).options(options).source(source))
    }

    /// Mounts what was opened by [`opening::open`].
    #[must_use]
    pub fn of(opened: Opened) -> Self {
        let (source, log) = (opened.name.clone(), Arc::new(Log::nowhere()));
        let (options, threads, prepared) = (MountOptions::default(), usual_threads(), Prepared::default());
        Mount { opened, options, log, threads, source, trace: None, wanted: None, prepared }
    }

    /// Says how it is mounted, in place of what was said. Options of opening an image have no effect on an open volume.
    #[must_use]
    pub fn options(self, options: MountOptions) -> Self {
        Mount { options, ..self }
    }

    /// Says where complaints go; without, nowhere. Outages of stores and lost marks are not among them:
    /// [`platfs_open::stores::tell_to`] and [`platfs_open::marks::tell_to`] say, for the whole process, who hears of those.
    #[must_use]
    pub fn log(self, log: Arc<Log>) -> Self {
        Mount { log, ..self }
    }

    /// Says how many threads serve requests.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Mount { threads, ..self }
    }

    /// Says what the table of mounts shows as the source.
    #[must_use]
    pub fn source(self, source: impl Into<String>) -> Self {
        Mount { source: source.into(), ..self }
    }

    /// Writes each request to a file, whose path is for messages.
    #[must_use]
    pub fn trace(self, trace: Option<(File, PathBuf)>) -> Self {
        Mount { trace, ..self }
    }

    /// Reads this in the background.
    #[must_use]
    pub fn prefetch(self, wanted: Option<Vec<Wanted>>) -> Self {
        Mount { wanted, ..self }
    }

    /// Takes what was begun before the cage.
    #[must_use]
    pub fn prepared(self, prepared: Prepared) -> Self {
        Mount { prepared, ..self }
    }

    /// The messages about the image that a user should see.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.opened.warnings
    }

    /// Mounts on a directory, and serves it on threads of this process.
    ///
    /// # Errors
    /// The kernel does not let this process mount; the volume is damaged; no thread or descriptor is left.
    pub fn at(self, directory: impl AsRef<Path>) -> Result<Mounted, MountError> {
        let found = fuse::mount_point(directory.as_ref());
        let found = found.map_err(|error| about(directory.as_ref(), error.into()))?;
        self.on(found)
    }

    /// As [`Mount::at`], for a directory as `fuse::mount_point` has found it: from inside a cage it can't be looked for.
    ///
    /// # Errors
    /// As [`Mount::at`].
    pub fn on(self, directory: PathBuf) -> Result<Mounted, MountError> {
        let failed = |error: io::Error| about(&directory, memory::lacking(&error).into());
        let Mount { opened, options, log, threads, source, trace, wanted, prepared } = self;
        let Opened { volume, name, writable, shared, keeping, stored, warnings: _ } = opened;
        let is_served_writable = writable && !options.read_only;
        let terms = terms(&options, is_served_writable, &volume);
        let guard = Guard::as_asked(options.asked_permissions(), options.allow_other, is_served_writable);
        let guard = guard.map_err(|why| about(&directory, why.into()));
        // A journal may have been replayed when the volume was opened.
        let guard = guard.inspect_err(|_| drop(volume.put_in_order()))?;
        let how = fuse::Options {
            own_permissions: guard.is_some() || options.fake_root,
            writeback: terms.writeback,
            time_unit: fraction(&volume),
            ..connection(&options, source, threads, !terms.writable)
        };
        let Prepared { waiting, outside } = prepared;
        let waiting = waiting.map_or_else(Listener::begin, Ok).map_err(failed);
        let waiting = waiting.inspect_err(|_| drop(volume.put_in_order()))?;
        let mounter: Arc<dyn Mounter> = match &outside {
            Some(outside) => Arc::clone(outside) as Arc<dyn Mounter>,
            None => Arc::new(fuse::InProcess),
        };
        let prefetch = wanted.map(|wanted| Prefetch::start(&volume, wanted));
        let tree = Tree::new(volume, log, terms)
            .map_err(|error| MountError { subject: name.clone(), why: explained(&error).into() })?;
        let tree = Arc::new(tree.guarded(guard));
        tree.on(keeping);
        let close = || {
            if let Err(error) = tree.close() {
                tree.log().complain(format!("{name} was not closed in order: {error}"));
            }
        };
        let (service, traced) = traced(&tree, trace).map_err(failed).inspect_err(|_| close())?;
        let below = tuning::device_of(&directory).ok();
        let every = Duration::from_secs(u64::from(options.commit));
        let begin = || {
            let session = Session::start_by(Arc::clone(&mounter), service, &directory, &how)?;
            let device = tuning::device_of(session.directory())?;
            let channel = channel(&tree, &session, (device, options.allow_other), waiting)?;
            tree.served_by(transport_name(session.transport()), session.scheduling(), session.catch_up());
            let keeper = writable.then(|| Keeper::start(Arc::clone(&tree), every)).transpose()?;
            Ok((session, device, channel, keeper))
        };
        let begun = before_others(begin).map_err(failed);
        let (session, device, channel, keeper) = begun.inspect_err(|_| close())?;
        let transport = session.transport();
        tree.limited_by(Limits::raise(&directory, below), session.notifier());
        tree.look_at_room();
        let advice = tuning::advice(options.transport, transport);
        let log = Arc::clone(tree.log());
        let whole =
            Unclosed { tree, name: name.clone(), directory: directory.clone(), _shared: shared, stored };
        let parts = Parts { whole, session, channel, keeper, prefetch, traced, outside };
        Ok(Mounted { log, name, directory, device, transport, advice, mounter, parts: Some(parts) })
    }
}

fn about(directory: &Path, why: Why) -> MountError {
    MountError { subject: Shown(directory.as_os_str().as_encoded_bytes()).to_string(), why }
}

/// The kernel's side of a mount before the volume is open. `source` and the number of threads are the caller's.
#[must_use]
pub fn connection(options: &MountOptions, source: String, threads: usize, read_only: bool) -> fuse::Options {
    fuse::Options {
        source: options.source.clone().unwrap_or(source),
        subtype: "plat".into(),
        read_only,
        allow_other: options.allow_other,
        suid: options.suid,
        dev: options.dev,
        exec: options.exec,
        acl: options.acl,
        own_permissions: false,
        writeback: false,
        time_unit: 1,
        transport: options.transport,
        give_way: options.give_way,
        threads,
    }
}

/// Does something on a thread that comes before others, as do those that it starts, whatever the caller's priority is.
fn before_others<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let begin = || {
            tuning::come_first();
            work()
        };
        let thread = std::thread::Builder::new().name("mount".into()).spawn_scoped(scope, begin)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that mounts has failed")))
    })
}

type Trace = Option<(Arc<Traced>, PathBuf)>;

/// Answers to requests, and the trace that it writes, if there is one.
fn traced(tree: &Arc<Tree>, trace: Option<(File, PathBuf)>) -> io::Result<(Arc<dyn Service>, Trace)> {
    let plain = Arc::clone(tree) as Arc<dyn Service>;
    let Some((file, path)) = trace else { return Ok((plain, None)) };
    let traced = Arc::new(Traced::new(plain, file)?);
    Ok((Arc::clone(&traced) as Arc<dyn Service>, Some((traced, path))))
}

/// The nanoseconds that inodes can tell apart: small ones have room for seconds only.
fn fraction(volume: &Volume) -> u32 {
    if volume.superblock().inode_size() > 128 { 1 } else { 1_000_000_000 }
}

fn terms(options: &MountOptions, writable: bool, volume: &Volume) -> Terms {
    let writeback = options.writeback.unwrap_or_else(|| is_roomy(volume));
    Terms {
        acl: options.acl,
        user_xattr: options.user_xattr,
        xattr: options.xattr,
        on_damage: options.on_damage,
        writable,
        // What is to be stable at once must not wait in the kernel.
        writeback: writable && writeback && !options.sync,
        access_times: options.access_times,
        appearance: options.appearance,
        fake_root: options.fake_root,
        sync: options.sync,
        sync_names: options.sync_names,
    }
}

/// Waits for programs that work on the mount.
fn channel(tree: &Arc<Tree>, session: &Session, how: (u64, bool), waiting: Listener) -> io::Result<Server> {
    let served = Arc::clone(tree) as Arc<dyn control::Served>;
    Server::start(served, tree.tickets(), session.notifier(), how, waiting)
}

/// All that is closed once the mount has ended, with the names for messages about it.
struct Unclosed {
    tree: Arc<Tree>,
    name: String,
    directory: PathBuf,
    _shared: Option<platfs_open::door::Shared>,
    stored: stores::Written,
}

impl Unclosed {
    /// Closes the volume after its unmount, and that of a store below it.
    fn close(self) -> Result<(), String> {
        let closed = self.tree.close().map_err(|error| error.to_string());
        // The store may have all of it although the volume says that something failed.
        let stored = self.stored.close().map_err(|error| error.to_string());
        let closed = match (closed, stored) {
            (Err(first), Err(second)) if first != second => Err(format!("{first}; {second}")),
            (closed, stored) => closed.and(stored),
        };
        let (name, log) = (&self.name, self.tree.log());
        if let Err(error) = &closed {
            log.complain(format!("{name} was not closed in order: {error}"));
        }
        log.say(Detail::Lifecycle, format!("{name} unmounted; {}", self.tree.summary()));
        closed
    }

    fn end_trace(&self, traced: Trace) {
        if let Some((traced, path)) = traced
            && let Err(error) = traced.end()
        {
            self.tree.log().complain(format!("{}: the trace is not whole: {error}", path.display()));
        }
    }
}

/// Parts that serve, in the order in which they end.
struct Parts {
    session: Session,
    channel: Server,
    keeper: Option<Keeper>,
    prefetch: Option<Prefetch>,
    traced: Trace,
    whole: Unclosed,
    outside: Option<Arc<Outside>>,
}

impl Parts {
    /// Waits for the unmount, and closes everything.
    fn end(self) -> Result<(), MountError> {
        let Parts { whole, session, channel, keeper, prefetch, traced, outside } = self;
        let (name, directory) = (whole.name.clone(), whole.directory.clone());
        let done = session.wait();
        let ending = channel.ending();
        drop((channel, keeper, prefetch));
        ending.begin();
        whole.end_trace(traced);
        let closed = whole.close();
        if let Some(outside) = outside {
            outside.end();
        }
        ending.finish(closed.as_ref().map(drop).map_err(ToString::to_string));
        closed.map_err(|why| MountError { subject: name, why: why.into() })?;
        done.map_err(|error| about(&directory, memory::lacking(&error).into()))
    }
}

/// A volume that is mounted, until this ends or somebody unmounts it. One that is dropped is unmounted. Where files are open it
/// vanishes at once, and is closed on a thread of its own when the last of them is closed; failures go to the log then.
pub struct Mounted {
    log: Arc<Log>,
    name: String,
    directory: PathBuf,
    /// Number of the mount's file system.
    device: u64,
    transport: Transport,
    advice: Option<String>,
    mounter: Arc<dyn Mounter>,
    parts: Option<Parts>,
}

impl Mounted {
    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Tells if it is still served: also after [`Mounted::unmount`] failed because files are open.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.parts.is_some()
    }

    /// The name of the image, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The way by which requests come from the kernel.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Advice that would make this mount faster, or the reason why its transport is not the one that was asked for.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Something that can unmount it from another thread, while one waits for the end.
    #[must_use]
    pub fn mounter(&self) -> Arc<dyn Mounter> {
        Arc::clone(&self.mounter)
    }

    /// Unmounts it, and waits for its end.
    ///
    /// # Errors
    /// Files are open in it, or another mount lies on it: then it stays mounted, and this can be called again. What was
    /// written could not be stored.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        self.detach(false).map_err(|error| about(&self.directory, error.into()))?;
        self.end()
    }

    /// Waits until somebody has unmounted it, and closes the volume.
    ///
    /// # Errors
    /// Something written could not be stored; the kernel's connection failed.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), MountError> {
        self.parts.take().map_or(Ok(()), Parts::end)
    }

    /// Unmounts it, if it is what lies on the directory; nothing is to be done if it is not mounted any more.
    fn detach(&self, lazy: bool) -> io::Result<()> {
        match tuning::device_of(&self.directory) {
            Ok(found) if found != self.device => {
                let is_mounted =
                    platfs_open::door::of_ours().iter().any(|mount| mount.file_system == self.device);
                match is_mounted {
                    true => Err(io::Error::new(
                        io::ErrorKind::ResourceBusy,
                        "another mount lies on the directory, or this one was moved",
                    )),
                    // Somebody has unmounted it already: only its end is left.
                    false => Ok(()),
                }
            }
            _ => self.mounter.unmount(&self.directory, lazy),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.parts.is_none() {
            return;
        }
        let is_free = self.detach(false).is_ok();
        let lazily = if is_free { Ok(()) } else { self.detach(true) };
        let Some(parts) = self.parts.take() else { return };
        if is_free {
            // The log has what failed.
            let _ = parts.end();
            return;
        }
        if let Err(error) = lazily {
            self.log.complain(format!("{} is still mounted: {error}", self.name));
        }
        // This thread may have the files open that it would wait for. What stays mounted is served, and closed at its end.
        let spawned = std::thread::Builder::new().name("unmount".into()).spawn(move || parts.end());
        if let Err(error) = spawned {
            self.log.complain(format!("{} was not closed in order: {error}", self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use platfs::device::{Device, FileDevice};
    use platfs::mkfs::{FsType, Options, Plan};
    use platfs::{OpenOptions, Volume};
    use testkit::tool;

    use ondisk::quota::QuotaKind;

    use super::Mount;
    use crate::live::Live;
    use crate::mount::quotas::{self, Deed};

    type Tested = Result<(), Box<dyn std::error::Error>>;

    fn can_mount(test: &str) -> bool {
        let can = tool::administers() && Path::new("/dev/fuse").exists();
        if !can {
            tool::skip(test, "needs root and /dev/fuse");
        }
        can
    }

    fn made(image: &Path) -> Tested {
        let file = File::options().read(true).write(true).create_new(true).open(image)?;
        file.set_len(64 << 20)?;
        let device = FileDevice::new(file)?;
        Plan::new(&Options::new(FsType::Ext4), device.size())?.write(&device)?;
        Ok(device.flush()?)
    }

    /// A directory with an image and an empty directory in it.
    fn scene() -> Result<(tempfile::TempDir, PathBuf, PathBuf), Box<dyn std::error::Error>> {
        let top = tempfile::tempdir()?;
        let (image, directory) = (top.path().join("disk.img"), top.path().join("m"));
        fs::create_dir(&directory)?;
        made(&image)?;
        Ok((top, image, directory))
    }

    fn opened(image: &Path) -> Result<Volume, Box<dyn std::error::Error>> {
        Ok(Volume::open(Arc::new(FileDevice::new(File::open(image)?)?), &OpenOptions::new())?)
    }

    #[test]
    fn a_program_mounts_in_ten_lines() -> Tested {
        if !can_mount("a_program_mounts_in_ten_lines") {
            return Ok(());
        }
        let (top, image, directory) = scene()?;

        let mut mounted = Mount::image(&image, "noatime".parse()?)?.at(&directory)?;
        fs::create_dir(directory.join("a"))?;
        fs::write(directory.join("a/file"), "hello")?;
        let live = Live::at(&directory);
        assert_eq!(live.copy("a", "b")?.files, 1);
        assert_eq!(fs::read(directory.join("b/file"))?, b"hello");
        live.remove("a")?;
        live.snapshot(&File::options().read(true).write(true).create_new(true).open(top.path().join("s"))?)?;
        assert_eq!(live.statistics()?["writable"], true);
        let held = File::open(directory.join("b/file"))?;
        assert!(mounted.unmount().is_err() && directory.join("b/file").exists());
        drop(held);
        mounted.unmount()?;

        assert!(fs::read_dir(&directory)?.next().is_none());
        for image in [image, top.path().join("s")] {
            let volume = opened(&image)?;
            assert!(volume.resolve(b"/b/file").is_ok() && volume.resolve(b"/a").is_err());
        }
        Ok(())
    }

    #[test]
    fn an_open_volume_is_mounted_and_one_that_is_dropped_unmounted() -> Tested {
        if !can_mount("an_open_volume_is_mounted_and_one_that_is_dropped_unmounted") {
            return Ok(());
        }
        let (_top, image, directory) = scene()?;
        let volume = opened(&image)?;
        let mounted = Mount::new(volume).options("noatime".parse()?).at(&directory)?;
        assert!(fs::read_dir(&directory)?.count() > 0 && fs::write(directory.join("x"), "").is_err());
        drop(mounted);
        assert_eq!(fs::read_dir(&directory)?.count(), 0);
        Ok(())
    }

    #[test]
    fn what_others_unmounted_or_programs_hold_is_closed_in_order() -> Tested {
        if !can_mount("what_others_unmounted_or_programs_hold_is_closed_in_order") {
            return Ok(());
        }
        let (_top, image, directory) = scene()?;
        // Somebody else unmounts it: its end stores what waits.
        let mounted = Mount::image(&image, "noatime".parse()?)?.at(&directory)?;
        fs::write(directory.join("first"), "1")?;
        rustix::mount::unmount(&directory, rustix::mount::UnmountFlags::empty())?;
        drop(mounted);
        let volume = opened(&image)?;
        assert!(volume.resolve(b"/first").is_ok() && !volume.needs_recovery());
        drop(volume);
        // A program that has a file open in its own mount doesn't wait for itself.
        let mounted = Mount::image(&image, "noatime".parse()?)?.at(&directory)?;
        let held = File::open(directory.join("first"))?;
        drop(mounted);
        assert!(!directory.join("first").exists());
        drop(held);
        // A thread of its own closes it: until then the image is in use.
        while platfs_open::door::open_write(image.as_os_str()).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!opened(&image)?.needs_recovery());
        Ok(())
    }

    #[test]
    fn every_live_verb_does_its_work() -> Tested {
        if !can_mount("every_live_verb_does_its_work") {
            return Ok(());
        }
        let (top, image, directory) = scene()?;
        let mut mounted = Mount::image(&image, "noatime".parse()?)?.at(&directory)?;
        let live = Live::at(mounted.directory());
        fs::write(directory.join("file"), vec![7; 1 << 20])?;
        live.sync()?;
        let crashed = top.path().join("crashed");
        fs::copy(&image, &crashed)?;
        let volume = opened(&crashed)?;
        assert_eq!(volume.metadata(volume.resolve(b"/file")?)?.size, 1 << 20);
        let least = live.least_size()?;
        assert!(least.bytes_before == 64 << 20 && least.bytes_after < 48 << 20, "{least:?}");
        assert_eq!(live.resize(48 << 20)?.bytes_after, 48 << 20);
        assert_eq!(live.defragment("/")?["failed"], 0);
        live.trim(0)?;
        let user = QuotaKind::User;
        live.quota(Deed::Switch(quotas::bits(&[user]), 0))?;
        assert_eq!(live.quota(Deed::Show(user, 0))?.kinds.len(), 1);
        // A slash in front leads nowhere else.
        assert!(live.remove("/etc/none").is_err_and(|error| error.to_string().contains("m/etc")));
        Ok(mounted.unmount()?)
    }
}
