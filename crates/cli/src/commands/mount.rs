//! `plat mount`: a volume as a directory, served by a process in the background.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use clap::Args;
use fuse::Mounter;
use ondisk::units::InodeNumber;
use platfs::rights::Powers;
use platfs_host::path;
use platfs_open::keys;
use platfs_serve::mount::{self, Mounted, Prepared, connection};
use rustix::thread::CapabilitySet;

use super::cage;
use crate::console::{Console, Failure};
use crate::control::Listener;
use crate::daemon;
use crate::door;
use crate::image;
use crate::marks;
use crate::memory;
use crate::mount::log::{Detail, Log};
use crate::mount::opening::{self, Opened};
use crate::mount::options::{MountOptions, transport_name};
use crate::mount::outside::{self, Outside};
use crate::mount::prefetch::{Prefetch, Wanted};
use crate::mount::remount;
use crate::mount::trace::Traced;
use crate::mount::tuning;
use crate::progress;
use crate::sandbox::{self, Group, Mode, Plan};
use crate::signals::StopSignals;
use crate::stores;
use crate::text::Shown;

/// Refusal of a key in digits.
const SPELLED: &str = "-o key: takes a file; digits could be read by other users in the list of processes for as long as \
                       the mount lasts";

/// Arguments of `plat mount`.
#[derive(Args, Debug)]
pub struct Mount {
    /// The image: a file, a block device, `disk.img@part1` or `disk.img@OFFSET`.
    #[arg(requires = "directory")]
    image: Option<OsString>,
    /// The directory to mount on. Without image and directory what is mounted is listed.
    directory: Option<PathBuf>,
    /// Mount options, with ext4's names where ext4 has them.
    #[arg(short, value_name = "OPTION,...", requires = "image")]
    options: Vec<String>,
    /// Stays in the foreground.
    #[arg(short, long)]
    foreground: bool,
    /// Logs what happens; twice: every request.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Where the log goes; else to standard error, or from the background to the system's log.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Writes the calls that it answers to this file, a line each; implies `-o nowriteback_cache`,
    /// so that each write appears as it was made, unless `-o writeback_cache` is given.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Reads in the background what this trace of an earlier run has read: a volume of a store far away is used as fast
    /// as one nearby then.
    #[arg(long, value_name = "TRACE")]
    prefetch: Option<PathBuf>,
    /// Threads that serve requests.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Passes over unknown options.
    #[arg(long, hide = true)]
    sloppy: bool,
    /// This is the process in the background.
    #[arg(long, hide = true)]
    background: bool,
}

/// The warning for a user who mounts a volume and may not write in its root directory, with the remedies.
fn not_yours(opened: &Opened, options: &MountOptions) -> Option<String> {
    let user = rustix::process::geteuid();
    let as_it_is = opened.writable && !options.fake_root && !options.appearance.is_any();
    let facts = opened.volume.metadata(InodeNumber::ROOT).ok()?;
    let passes = sandbox::powers_before().contains(Powers::DAC_OVERRIDE);
    let is_open = facts.uid == user.as_raw() || facts.permissions & 0o022 != 0;
    (as_it_is && !passes && !is_open).then(|| {
        format!(
            "only user {} may write in its root directory: `-o fakeroot` has you be root in it, `-o uid={}` shows all files as \
             yours",
            facts.uid,
            user.as_raw()
        )
    })
}

impl Mount {
    fn image(&self) -> &OsStr {
        self.image.as_deref().unwrap_or_default()
    }

    fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new(""))
    }

    pub(super) fn run(&self, console: &mut Console<'_>, sandbox: Mode) -> Result<(), Failure> {
        if self.image.is_none() {
            return super::umount::list(console);
        }
        // It lasts as long as it is wanted.
        progress::end();
        let first = self.trace.is_some().then_some("nowriteback_cache");
        let words = first.into_iter().chain(self.options.iter().map(String::as_str));
        let options = MountOptions::parse(words, self.sloppy).map_err(Failure::Usage)?;
        if options.keys.iter().any(|key| keys::is_spelled(OsStr::new(key))) {
            return Err(Failure::Usage(SPELLED.to_owned()));
        }
        let directory = fuse::mount_point(self.directory()).map_err(|error| {
            let shown = Shown(self.directory().as_os_str().as_bytes());
            if error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) {
                let what = format!("the server of the mount here is gone; `plat umount {shown}` frees it");
                return Failure::about(shown, what);
            }
            Failure::about(shown, error)
        })?;
        if options.remount {
            return self.remount(console, &directory);
        }
        memory::room_to_serve()
            .map_err(|why| Failure::about(Shown(self.directory().as_os_str().as_bytes()), why))?;
        let mode = options.sandbox.unwrap_or(sandbox);
        if !self.foreground && !self.background {
            self.launch(&directory, sandbox, mode != Mode::Off, console.is_json())?;
            return self.tell(console, &directory);
        }
        let name = image::shown(self.image()).to_string();
        let log = Arc::new(self.open_log()?);
        let begun = self.begin(&options, &directory, mode)?;
        let opened = opening::open(self.image(), &options)?;
        let complaints = Arc::clone(&log);
        marks::tell_to(move |why| complaints.complain(why));
        let lacking = begun.no_cage.as_ref().map(|why| format!("it has no cage: {why}"));
        let closed = not_yours(&opened, &options);
        for warning in opened.warnings.iter().chain(&lacking).chain(&closed) {
            console.warn(format!("{name}: {warning}"));
            if self.background {
                log.complain(format!("{name}: {warning}"));
            }
        }
        self.serve(console, (opened, log, begun), &options, &directory)
    }

    /// Opens what the cage of the server would forbid, and enters it.
    fn begin(&self, options: &MountOptions, directory: &Path, mode: Mode) -> Result<Begun, Failure> {
        let failed = |error: io::Error| {
            Failure::about(Shown(directory.as_os_str().as_bytes()), memory::lacking(&error))
        };
        let about = |path: &Path, error: io::Error| Failure::about(Shown(path.as_os_str().as_bytes()), error);
        let trace = self.trace.as_deref().map(|path| Traced::file(path).map_err(|error| about(path, error)));
        let wanted =
            self.prefetch.as_deref().map(|path| Prefetch::wanted(path).map_err(|error| about(path, error)));
        let (trace, wanted) = (trace.transpose()?, wanted.transpose()?);
        let mut prepared = Prepared { waiting: Some(Listener::begin().map_err(failed)?), outside: None };
        let (group, mut no_cage) = (tuning::group(), None);
        if let Some(is_local) = options.flush_locally {
            stores::flush_locally(is_local);
        }
        if mode != Mode::Off {
            let how = connection(options, self.source(), self.threads(), true);
            let brought = if self.background { outside::brought() } else { None };
            match Outside::start(directory, &how, brought) {
                Ok(started) => {
                    prepared.outside = Some(started);
                    sandbox::enter(&self.cage(options), mode).map_err(|why| Failure::Failed(why.into()))?;
                }
                Err(error) if mode == Mode::Require => return Err(failed(error)),
                // Without `/proc`, say.
                Err(error) => no_cage = Some(error),
            }
        }
        Ok(Begun { trace, wanted, group, prepared, no_cage })
    }

    /// Plan of the server's cage: the image, what the kernel shows of callers and of the mount, and where it has to do with
    /// the scheduler and the limits of memory.
    fn cage(&self, options: &MountOptions) -> Plan {
        let is_read = options.read_only || !options.keys.is_empty();
        let mut plan = cage::with_image(cage::system(), self.image(), !is_read);
        plan.reads.extend(options.keys.iter().map(|key| keys::file_of(OsStr::new(key))));
        plan.writes.extend(["/dev/null", tuning::KNOBS].map(PathBuf::from));
        plan.calls.extend([Group::Bytes, Group::Image, Group::Answer, Group::Fuse]);
        if options.transport != fuse::Transport::Device {
            plan.calls.push(Group::Ring);
        }
        plan.keeps |= CapabilitySet::SYS_NICE | CapabilitySet::IPC_LOCK | CapabilitySet::SYS_RESOURCE;
        plan
    }

    fn remount(&self, console: &mut Console<'_>, directory: &Path) -> Result<(), Failure> {
        let about = |what: String| Failure::about(Shown(directory.as_os_str().as_bytes()), what);
        let words = self.options.iter().flat_map(|words| words.split(',')).filter(|word| !word.is_empty());
        if let Some(warning) = remount::remount(directory, words).map_err(about)? {
            console.warn(format!("{}: {warning}", Shown(directory.as_os_str().as_bytes())));
        }
        Ok(())
    }

    /// Mounts in another process that stays. It gets the option `sandbox` as it was given, and a process outside of its
    /// cage where one is wanted.
    fn launch(
        &self,
        directory: &Path,
        sandbox: Mode,
        wants_cage: bool,
        as_json: bool,
    ) -> Result<(), Failure> {
        let absolute =
            |path: &OsStr| -> io::Result<OsString> { Ok(std::path::absolute(path)?.into_os_string()) };
        let io = |error: io::Error| Failure::Failed(error.to_string().into());
        let mut arguments: Vec<OsString> = vec!["mount".into(), daemon::BACKGROUND.into()];
        if sandbox != Mode::default() {
            arguments.extend(["--sandbox".into(), sandbox.name().into()]);
        }
        for options in &self.options {
            arguments.extend(["-o".into(), options.into()]);
        }
        arguments.extend(std::iter::repeat_n("-v".into(), usize::from(self.verbose)));
        if let Some(log) = &self.log {
            arguments.extend(["--log".into(), absolute(log.as_os_str()).map_err(io)?]);
        }
        if let Some(trace) = &self.trace {
            arguments.extend(["--trace".into(), absolute(trace.as_os_str()).map_err(io)?]);
        }
        if let Some(trace) = &self.prefetch {
            arguments.extend(["--prefetch".into(), absolute(trace.as_os_str()).map_err(io)?]);
        }
        if let Some(threads) = self.threads {
            arguments.extend(["--threads".into(), threads.to_string().into()]);
        }
        let words = [(self.sloppy, "--sloppy"), (as_json, "--json")];
        arguments.extend(words.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word.into()));
        arguments.extend(["--".into(), self.absolute_image().map_err(io)?, directory.into()]);
        let of_store = stores::is_meant(self.image());
        let launched = if wants_cage {
            outside::beside(|input, meanwhile| daemon::launch(&arguments, of_store, input, meanwhile))
        } else {
            daemon::launch(&arguments, of_store, Stdio::null(), &|| {})
        };
        match launched.map_err(io)? {
            None => Ok(()),
            Some(status) => Err(match status.code() {
                Some(code) => Failure::Reported(u8::try_from(code).unwrap_or(1)),
                None => ended_too_early(directory, status),
            }),
        }
    }

    /// Says what is mounted, where JSON is wanted: on one line, since the reader of a server's output waits for no end.
    fn tell(&self, console: &mut Console<'_>, directory: &Path) -> Result<(), Failure> {
        if !console.is_json() || self.background {
            return Ok(());
        }
        let read_only = door::mounted_on(directory).is_none_or(|mount| mount.read_only);
        let image = self.absolute_image().unwrap_or_else(|_| self.image().to_owned());
        let object = super::umount::object(Path::new(&image), directory, read_only);
        writeln!(console.out, "{}", serde_json::Value::Object(object))?;
        Ok(console.out.flush()?)
    }

    /// The image by a name that holds in any working directory.
    fn absolute_image(&self) -> io::Result<OsString> {
        if stores::is_meant(self.image()) {
            return Ok(self.image().to_owned());
        }
        Ok(std::path::absolute(self.image())?.into_os_string())
    }

    fn open_log(&self) -> Result<Log, Failure> {
        let detail = Detail::from_count(self.verbose);
        match &self.log {
            Some(path) => Log::to_file(path, detail)
                .map_err(|error| Failure::about(Shown(path.as_os_str().as_bytes()), error)),
            None if self.background => Ok(Log::to_system(detail)),
            None => Log::to_stderr(detail).map_err(|error| Failure::about("standard error", error)),
        }
    }

    fn serve(
        &self,
        console: &mut Console<'_>,
        (opened, log, begun): (Opened, Arc<Log>, Begun),
        options: &MountOptions,
        directory: &Path,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::about(Shown(directory.as_os_str().as_bytes()), memory::lacking(&error))
        };
        let stop = StopSignals::hold().map_err(failed)?;
        let Begun { trace, wanted, group, prepared, no_cage: _ } = begun;
        let mount = mount::Mount::of(opened).options(options.clone()).log(log).threads(self.threads());
        let mount = mount.source(self.source()).trace(trace.zip(self.trace.clone())).prefetch(wanted);
        let mounted = mount.prepared(prepared).on(directory.to_owned())?;
        if let Some(advice) = mounted.advice() {
            // Not in the log: it is the same at each mount.
            console.warn(advice);
        }
        self.announce(&mounted);
        self.tell(console, directory)?;
        if self.background {
            daemon::detach().map_err(failed)?;
            group.map(tuning::group_comes_first).unwrap_or_default();
        }
        let told = Arc::clone(mounted.log());
        stores::tell_to(move |text| told.say(Detail::Complaints, text));
        unmount_on(stop, Arc::clone(mounted.log()), directory.to_owned(), mounted.mounter())
            .map_err(failed)?;
        Ok(mounted.wait()?)
    }

    fn threads(&self) -> usize {
        self.threads.map_or_else(mount::usual_threads, usize::from)
    }

    /// Says that the mount is there.
    fn announce(&self, mounted: &Mounted) {
        let (place, threads) = (mounted.directory().display(), self.threads());
        let (whole, transport) = (mounted.name(), transport_name(mounted.transport()));
        let begun = format!("{whole} mounted on {place} with {threads} threads, transport {transport}");
        mounted.log().say(Detail::Lifecycle, &begun);
        if self.background
            && let Ok(terminal) = Log::to_stderr(Detail::from_count(self.verbose))
        {
            // The caller is still there to read it.
            terminal.say(Detail::Lifecycle, begun);
        }
    }

    /// The image as the table of mounts shows it.
    fn source(&self) -> String {
        let spec = image::parse(self.image());
        let whole = path::whole(&spec.path).unwrap_or(spec.path);
        let part = self.image().as_bytes().iter().rposition(|byte| *byte == b'@');
        let mut name = whole.into_os_string().into_vec();
        if spec.part != image::Part::Whole {
            name.extend(part.and_then(|at| self.image().as_bytes().get(at..)).unwrap_or_default());
        }
        String::from_utf8_lossy(&name).into_owned()
    }
}

/// Files and threads that were begun before the cage.
struct Begun {
    trace: Option<File>,
    wanted: Option<Vec<Wanted>>,
    group: Option<File>,
    prepared: Prepared,
    /// Why there is no cage though one was wanted.
    no_cage: Option<io::Error>,
}

/// Unmounts on the first signal, lazily where files are open; ends the process on the second.
fn unmount_on(
    stop: StopSignals,
    log: Arc<Log>,
    directory: PathBuf,
    mounter: Arc<dyn Mounter>,
) -> io::Result<()> {
    let watch = move || {
        let Ok(signal) = stop.wait() else { return };
        log.say(Detail::Lifecycle, format!("{signal}: unmounting {}", directory.display()));
        if let Err(error) = mounter.unmount(&directory, false) {
            log.say(
                Detail::Lifecycle,
                format!("{}: {error}: gone when its last file is closed", directory.display()),
            );
            if let Err(error) = mounter.unmount(&directory, true) {
                log.complain(format!("{}: {error}", directory.display()));
            }
        }
        if let Ok(signal) = stop.wait() {
            log.complain(format!("{signal} again: stopped while files are open"));
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map(drop)
}

/// The failure of a server that a signal ended before it had mounted: for lack of memory it does so by itself. What it had
/// mounted is dead, and goes.
fn ended_too_early(directory: &Path, status: ExitStatus) -> Failure {
    let is_dead = fuse::mount_point(directory)
        .is_err_and(|error| error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()));
    // If it can't be unmounted, `plat umount` says why.
    let _ = is_dead.then(|| fuse::unmount(directory, true));
    let why = format!("its server ended before the mount stood: {status}");
    Failure::about(Shown(directory.as_os_str().as_bytes()), why)
}
