//! The words behind `-o`: ext4's names where ext4 has them, the kernel's for all mounts, FUSE's, ours.

use std::str::FromStr;
use std::time::Duration;

use fuse::{GiveWay, Transport};
use platfs::placement::{BlockPolicyKind, DirectoryPolicyKind, Placing};
use platfs::{AccessTimes, DataMode, WriteOrder};

use super::appearance::Appearance;
use super::remount;
use crate::sandbox::Mode;
use platfs_open::precheck::When;
use platfs_open::stores;

/// Ways that requests may come, by their names.
const TRANSPORTS: [(&str, Transport); 3] =
    [("auto", Transport::Auto), ("uring", Transport::Ring), ("device", Transport::Device)];

/// When serving threads give way, by the words for it.
const GIVING_WAY: [(&str, GiveWay); 3] =
    [("auto", GiveWay::Auto), ("never", GiveWay::Never), ("always", GiveWay::Always)];

/// Where a flush of a volume of a store ends: whether on this host.
const FLUSHES: [(&str, bool); 2] = [("store", false), ("local", true)];

/// Reactions to damage, by ext4's words for them.
const ON_DAMAGE: [(&str, OnDamage); 3] =
    [("continue", OnDamage::Continue), ("remount-ro", OnDamage::ReadOnly), ("panic", OnDamage::Stop)];

/// How data goes with the journal.
const DATA: [(&str, DataMode); 3] =
    [("ordered", DataMode::Ordered), ("writeback", DataMode::Writeback), ("journal", DataMode::Journal)];

/// The name of a transport.
#[must_use]
pub fn transport_name(transport: Transport) -> &'static str {
    TRANSPORTS.iter().find(|(_, other)| *other == transport).map_or("", |(name, _)| name)
}

/// Reaction when the volume turns out to be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDamage {
    /// Calls that meet the damage fail; all else goes on.
    Continue,
    /// As `Continue`, and nothing more is written.
    #[default]
    ReadOnly,
    /// The mount ends at once.
    Stop,
}

/// The side that checks permissions: the kernel or the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Permissions {
    /// The mount where only root comes in, else the kernel.
    #[default]
    Auto,
    /// The mount.
    Own,
    /// The kernel.
    Kernel,
}

/// Options of a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the command line")]
pub struct MountOptions {
    /// `ro` was asked for.
    pub read_only: bool,
    /// `rw` was asked for.
    pub read_write: bool,
    /// In which order changes reach the image.
    pub ordering: WriteOrder,
    /// Journal mode of contents.
    pub data: DataMode,
    /// Each change is stable when it is answered.
    pub sync: bool,
    /// True if changes of names are synchronous.
    pub sync_names: bool,
    /// When reading changes the time of access, of files and of directories.
    pub access_times: AccessTimes,
    /// How blocks and inodes are placed, over what the volume says.
    pub placing: Placing,
    /// Blocks of a RAID stripe, over what the volume says.
    pub stripe: Option<u32>,
    /// A flush of a volume of a store ends in a log on this host, or in the store; over what the environment says. It holds for
    /// this process: the first mount that says it decides.
    pub flush_locally: Option<bool>,
    /// How long a store that does not answer is waited for, over what the environment says. It holds for this process: the
    /// first mount that says it decides.
    pub patience: Option<Duration>,
    /// How files look where the image does not say it.
    pub appearance: Appearance,
    /// All who come in are root in the image.
    pub fake_root: bool,
    /// Written bytes wait in memory for their blocks.
    pub delay: bool,
    /// The kernel may keep what programs write in its pages for a while. `None`: as suits the volume's size.
    pub writeback: Option<bool>,
    /// Freed space is reported to the device.
    pub discard: bool,
    /// Limits of quota count.
    pub limits: bool,
    /// When the whole volume is checked before it is opened for writing.
    pub check: When,
    /// Seconds after which what was written is on its way to the device.
    pub commit: u32,
    /// Words about writing that change nothing as yet.
    pub without_effect: Vec<String>,
    /// `noload`: read even though the journal was not brought in.
    pub noload: bool,
    /// `key=FILE`: keys of encrypted files, for reading.
    pub keys: Vec<String>,
    /// Lists of access control count.
    pub acl: bool,
    /// Attributes of users are shown.
    pub user_xattr: bool,
    /// There are extended attributes.
    pub xattr: bool,
    /// Reaction to damage.
    pub on_damage: OnDamage,
    /// Others may look.
    pub allow_other: bool,
    /// The side that checks permissions.
    pub permissions: Permissions,
    /// Set-user-id bits count.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs run.
    pub exec: bool,
    /// The name of the source, if it is not the image's.
    pub source: Option<String>,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// When the threads that serve give way to the programs they answer.
    pub give_way: GiveWay,
    /// Rights that the server gives up, if the command line does not say it elsewhere.
    pub sandbox: Option<Mode>,
    /// True if a mount that stands is to be changed.
    pub remount: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            read_write: false,
            ordering: WriteOrder::default(),
            data: DataMode::default(),
            sync: false,
            sync_names: false,
            access_times: AccessTimes::Relative,
            placing: Placing::default(),
            stripe: None,
            flush_locally: None,
            patience: None,
            appearance: Appearance::default(),
            fake_root: false,
            delay: true,
            writeback: None,
            discard: false,
            limits: true,
            check: When::default(),
            commit: COMMIT,
            without_effect: Vec::new(),
            noload: false,
            keys: Vec::new(),
            acl: true,
            user_xattr: true,
            xattr: true,
            on_damage: OnDamage::default(),
            allow_other: false,
            permissions: Permissions::Auto,
            suid: false,
            dev: false,
            exec: true,
            source: None,
            transport: Transport::Auto,
            give_way: GiveWay::Auto,
            sandbox: None,
            remount: false,
        }
    }
}

/// Seconds after which what was written is on its way to the device.
const COMMIT: u32 = 5;

/// Words that ask for nothing that is not so anyway, or that are the concern of mount(8).
const AS_IT_IS: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "diratime",
    "nolazytime",
    "barrier",
    "silent",
    "loud",
    "loop",
    "bsddf",
    "nogrpid",
    "sysvgroups",
    "data_err=ignore",
];

/// Returns true if a word asks for nothing, or is the concern of mount(8).
#[must_use]
pub fn is_as_it_is(word: &str) -> bool {
    AS_IT_IS.contains(&word) || word.starts_with("x-") || word.starts_with("X-")
}

/// Words about writing that change nothing as yet; each asks for less work or for better layout.
const WITHOUT_EFFECT: &[&str] = &["lazytime", "nobarrier", "auto_da_alloc", "noauto_da_alloc", "nodiratime"];

/// ext4's words, without `=` and its value, that ask for nothing a volume holds: about how the kernel's driver
/// works inside, or removed from it. They are accepted, with a warning that they have no effect.
const OF_THE_DRIVER: &[&str] = &[
    "bh",
    "block_validity",
    "debug",
    "debug_want_extra_isize",
    "dioread_lock",
    "dioread_nolock",
    "i_version",
    "init_itable",
    "inode_readahead_blks",
    "journal_checksum",
    "journal_ioprio",
    "max_batch_time",
    "mblk_io_submit",
    "min_batch_time",
    "no_mbcache",
    "no_prefetch_block_bitmaps",
    "nobh",
    "noblock_validity",
    "nodioread_nolock",
    "noinit_itable",
    "nojournal_checksum",
    "nombcache",
    "nomblk_io_submit",
    "nowarn_on_error",
    "prefetch_block_bitmaps",
    "warn_on_error",
];

/// Why some of [`OF_THE_DRIVER`] have nothing to act on here.
const INSTEAD: &[(&str, &str)] = &[
    (
        "inode_readahead_blks",
        "blocks of inodes are read when they are wanted, many at once where names are listed",
    ),
    ("prefetch_block_bitmaps", "a bitmap is read when a policy asks for it"),
];

/// ext4's words, without what is behind `=`, that ask for what is not done here, and why.
const REFUSED: &[(&str, &str)] = &[
    ("abort", "it is for tests of the kernel's driver"),
    ("bsdgroups", "the set-group-id bit of a directory gives its group to new files"),
    ("data_err", "bytes that can't be written are reported by fsync; only `data_err=ignore` is known"),
    ("dax", "an image is no memory"),
    ("fc_debug_force", "fast commits are not written"),
    ("grpid", "the set-group-id bit of a directory gives its group to new files"),
    ("grpjquota", NO_QUOTA),
    ("inlinecrypt", NO_KEYS),
    ("journal_async_commit", "a commit is written behind what it commits"),
    ("journal_dev", NO_DEVICE),
    ("journal_path", NO_DEVICE),
    ("jqfmt", NO_QUOTA),
    ("max_dir_size_kb", "directories are bounded by their format only"),
    ("minixdf", "`statfs` leaves out what the file system itself takes"),
    ("nouid32", "owners have 32 bits"),
    ("resgid", NO_RESERVE),
    ("resuid", NO_RESERVE),
    ("sb", "`plat check` repairs a superblock from a copy"),
    ("test_dummy_encryption", NO_KEYS),
    ("usrjquota", NO_QUOTA),
];
const OWN_FOR_OTHERS: &str = "mount option `own_permissions` can't be had with `allow_other`: the kernel passes names \
     that it has cached without asking whether a user may";
const FAKE_ROOT: &str = "mount option `fakeroot` can't be had with `suid` or `dev`: whoever comes in could make programs \
     and devices of root";
const OWN_AS_SHOWN: &str = "mount option `own_permissions` can't be had with `uid`, `gid`, masks or `fakeroot`: it goes by \
     what the image says";
const NO_QUOTA: &str = "quota is kept in files of the volume's own (`plat quota --on user,group`)";
const NO_KEYS: &str = "encrypted files are read only, with `key=FILE`";
const NO_DEVICE: &str = "journals on another device can't be used yet";
const NO_RESERVE: &str = "who may take the reserved blocks stands in the volume (`tune2fs -u`, `-g`)";

impl FromStr for MountOptions {
    type Err = String;

    /// Reads words with commas between, as behind `plat mount -o`.
    fn from_str(words: &str) -> Result<Self, String> {
        MountOptions::parse([words], false)
    }
}

impl MountOptions {
    /// Takes the arguments of all `-o` apart; later words win. With `sloppy`, unknown words are passed
    /// over, as mount(8) asks of its helpers by `-s`.
    ///
    /// # Errors
    /// The fault, naming the word.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>, sloppy: bool) -> Result<Self, String> {
        let mut options = MountOptions::default();
        let words = arguments.into_iter().flat_map(|argument| argument.split(','));
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let remounts = words.contains(&"remount");
        for word in words {
            if remounts && remount::is_of_fuse(word)
                || is_as_it_is(word)
                || options.is_for_the_driver(word)?
            {
                continue;
            }
            let known = match word.split_once('=') {
                Some((name, value)) => options.take_value(name, value)?,
                None => options.take_word(word),
            };
            if !known && !sloppy {
                return Err(format!("unknown mount option `{word}`; `plat help mount-options` lists all"));
            }
        }
        if options.allow_other && options.permissions == Permissions::Own {
            return Err(OWN_FOR_OTHERS.to_owned());
        }
        let placing = options.placing.clone().completed();
        placing.make().map_err(|error| format!("mount options of placement: {error}"))?;
        if options.permissions == Permissions::Own && (options.fake_root || options.appearance.is_any()) {
            return Err(OWN_AS_SHOWN.to_owned());
        }
        if options.fake_root && (options.suid || options.dev) {
            return Err(FAKE_ROOT.to_owned());
        }
        // Lists speak of owners that are not shown.
        options.acl &= !options.appearance.is_any() && !options.fake_root;
        // Lists are attributes.
        options.acl &= options.xattr;
        options.user_xattr &= options.xattr;
        Ok(options)
    }

    /// The side that checks permissions: where files look otherwise than the image has them, by what the kernel shows; and
    /// nobody asks for those of root.
    #[must_use]
    pub fn asked_permissions(&self) -> Permissions {
        let by_kernel = self.fake_root || self.appearance.is_any();
        if by_kernel { Permissions::Kernel } else { self.permissions }
    }

    /// Takes ext4's words that change nothing here.
    fn is_for_the_driver(&mut self, word: &str) -> Result<bool, String> {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(format!("mount option `{word}` can't be had: {why}"));
        }
        let passes = OF_THE_DRIVER.contains(&name);
        if passes {
            self.without_effect.push(word.to_owned());
        }
        Ok(passes)
    }

    /// The warnings about words without effect.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.without_effect.iter().map(|word| {
            let name = word.split_once('=').map_or(&word[..], |(name, _)| name);
            let of_driver = OF_THE_DRIVER.contains(&name);
            let when =
                if of_driver { "is for the kernel's driver and has no effect" } else { "has no effect yet" };
            let instead = INSTEAD.iter().find(|(of, _)| *of == name);
            let instead = instead.map(|(_, instead)| format!("; {instead}")).unwrap_or_default();
            format!("mount option `{word}` {when}{instead}")
        })
    }

    fn take_word(&mut self, word: &str) -> bool {
        match word {
            "ro" => (self.read_only, self.read_write) = (true, false),
            "rw" => (self.read_only, self.read_write) = (false, true),
            "remount" => self.remount = true,
            // ext4's and ext3's words for policies.
            "orlov" => self.placing.inodes = Some(DirectoryPolicyKind::Orlov),
            "oldalloc" => self.placing.inodes = Some(DirectoryPolicyKind::OldAlloc),
            "reservation" => self.placing.blocks = Some(BlockPolicyKind::Window),
            "noreservation" => self.placing.blocks = Some(BlockPolicyKind::Single),
            // As `mb_optimize_scan=1`: ext4 takes it without a number.
            "mb_optimize_scan" => return self.take_value(word, "1").unwrap_or(false),
            "noload" | "norecovery" => self.noload = true,
            "acl" => self.acl = true,
            "noacl" => self.acl = false,
            "user_xattr" => self.user_xattr = true,
            "nouser_xattr" => self.user_xattr = false,
            "xattr" => self.xattr = true,
            "noxattr" => self.xattr = false,
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.permissions = Permissions::Kernel,
            "fakeroot" => self.fake_root = true,
            "own_permissions" => self.permissions = Permissions::Own,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "async" => (self.ordering, self.sync) = (WriteOrder::Async, false),
            // mount(8) keeps `async` to itself.
            "unordered" => self.ordering = WriteOrder::Async,
            "softdep" => self.ordering = WriteOrder::Softdep,
            "normal" => self.ordering = WriteOrder::Normal,
            "sync" => self.sync = true,
            "delalloc" => self.delay = true,
            "nodelalloc" => self.delay = false,
            "writeback_cache" => self.writeback = Some(true),
            "nowriteback_cache" => self.writeback = Some(false),
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "quota" | "usrquota" | "grpquota" | "prjquota" => self.limits = true,
            "noquota" => self.limits = false,
            // As of old in ext2.
            "check" => self.check = When::ForAll,
            "nocheck" => self.check = When::Never,
            "dirsync" => self.sync_names = true,
            "noatime" => self.access_times = AccessTimes::Off,
            "strictatime" => self.access_times = AccessTimes::Strict,
            "atime" | "relatime" | "norelatime" | "nostrictatime" => {
                self.access_times = AccessTimes::Relative;
            }
            word if WITHOUT_EFFECT.contains(&word) => self.without_effect.push(word.to_owned()),
            _ => return false,
        }
        true
    }

    fn passed_over(&mut self, name: &str, value: &str) -> bool {
        self.without_effect.push(format!("{name}={value}"));
        true
    }

    fn take_value(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "errors" => self.on_damage = one_of(&ON_DAMAGE, name, value)?,
            "fsname" => self.source = Some(value.to_owned()),
            "key" => self.keys.push(value.to_owned()),
            "transport" => self.transport = one_of(&TRANSPORTS, name, value)?,
            "flush" => self.flush_locally = Some(one_of(&FLUSHES, name, value)?),
            "patience" => {
                let wrong =
                    || format!("mount option `{name}` takes a time, such as `90s` or `5m`, not `{value}`");
                self.patience = Some(stores::time(value).ok_or_else(wrong)?);
            }
            "sandbox" => self.sandbox = Some(one_of(&Mode::NAMES, name, value)?),
            "giveway" => self.give_way = one_of(&GIVING_WAY, name, value)?,
            "data" => self.data = one_of(&DATA, name, value)?,
            "commit" => {
                let seconds = number(name, value)?;
                self.commit = if seconds == 0 { COMMIT } else { seconds };
            }
            "uid" => self.appearance.uid = Some(number(name, value)?),
            "gid" => self.appearance.gid = Some(number(name, value)?),
            "fmask" => self.appearance.file_mask = Some(mask(name, value)?),
            "dmask" => self.appearance.directory_mask = Some(mask(name, value)?),
            "umask" => {
                let mask = Some(mask(name, value)?);
                (self.appearance.file_mask, self.appearance.directory_mask) = (mask, mask);
            }
            "stripe" => self.stripe = Some(number(name, value)?),
            "barrier" | "auto_da_alloc" => {
                one_of(&[("0", ()), ("1", ())], name, value)?;
                return Ok(self.passed_over(name, value));
            }
            "comment" => {}
            _ => {
                let taken = self.placing.take(name, value);
                return taken.map_err(|error| format!("mount option `{name}`: {error}"));
            }
        }
        Ok(true)
    }
}

fn number(name: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("mount option `{name}` takes a number, not `{value}`"))
}

fn mask(name: &str, value: &str) -> Result<u16, String> {
    let bits = u16::from_str_radix(value, 8).ok().filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| format!("mount option `{name}` takes an octal number up to 777, not `{value}`"))
}

/// Returns the meaning of a word, of those that an option takes.
fn one_of<T: Copy>(meanings: &[(&str, T)], name: &str, value: &str) -> Result<T, String> {
    let found = meanings.iter().find(|(word, _)| *word == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<&str> = meanings.iter().map(|(word, _)| *word).collect();
        format!("mount option `{name}` is one of {}, not `{value}`", words.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_words_win_and_words_without_effect_are_kept_to_be_reported() {
        let parsed = MountOptions::parse(
            ["rw,noatime,ro,nobarrier,softdep", "noload,commit=5,noacl,barrier=1,x-systemd.automount"],
            false,
        );
        let options = parsed.unwrap();
        assert_eq!((options.commit, options.access_times), (5, AccessTimes::Off));
        assert_eq!(options.without_effect, ["nobarrier", "barrier=1"]);
        assert_eq!(options.ordering, WriteOrder::Softdep);
        assert!(options.read_only && !options.read_write && options.noload && !options.acl);
        assert!(options.user_xattr && options.xattr && options.exec && !options.suid && !options.dev);
    }

    #[test]
    fn owners_and_masks_leave_permissions_to_the_kernel_and_lists_out() {
        let options = MountOptions::parse(["uid=5,gid=6,umask=027,dmask=22"], false).unwrap();
        let shown =
            Appearance { uid: Some(5), gid: Some(6), file_mask: Some(0o027), directory_mask: Some(0o022) };
        assert_eq!((options.appearance, options.acl), (shown, false));
        assert_eq!(options.asked_permissions(), Permissions::Kernel);
        let options = MountOptions::parse(["fakeroot"], false).unwrap();
        assert!(options.fake_root && !options.acl && options.asked_permissions() == Permissions::Kernel);
        assert_eq!(MountOptions::default().asked_permissions(), Permissions::Auto);
    }

    #[test]
    fn without_attributes_there_are_no_lists() {
        let of = |words: &str| {
            let options = MountOptions::parse([words], false).unwrap();
            (options.xattr, options.acl, options.user_xattr)
        };
        assert_eq!(of("noxattr"), (false, false, false));
        assert_eq!(of("noxattr,acl,user_xattr"), (false, false, false));
        assert_eq!(of("noxattr,xattr"), (true, true, true));
    }

    #[test]
    fn words_of_ext4_are_taken_with_what_they_come_to() {
        let words = "dioread_nolock,bsddf,data_err=ignore,inode_readahead_blks=32,remount";
        let options = MountOptions::parse([words], false).unwrap();
        assert!(options.remount);
        let warnings: Vec<String> = options.warnings().collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert_eq!(warnings[0], "mount option `dioread_nolock` is for the kernel's driver and has no effect");
        assert!(warnings[1].contains("when they are wanted"), "{warnings:?}");
        let names = |row: &(&str, &str)| row.0.to_owned();
        for name in REFUSED.iter().map(names).chain(OF_THE_DRIVER.iter().map(|name| (*name).to_owned())) {
            assert!(!is_as_it_is(&name), "{name} has one meaning");
        }
        assert!(INSTEAD.iter().all(|(name, _)| OF_THE_DRIVER.contains(name)));
    }

    /// Words of ext3 and ext4 choose the policies that they name, and every parameter of a policy is an option.
    #[test]
    fn words_and_parameters_of_placement_choose_policies() {
        let placing = |words: &str| {
            MountOptions::parse([words], false).map(|options| options.placing.completed().to_string())
        };
        for (words, expected) in [
            ("rw", "alloc=lease,dirs=near"),
            ("orlov", "alloc=lease,dirs=orlov"),
            ("oldalloc,reservation", "alloc=window,dirs=oldalloc"),
            ("noreservation", "alloc=single,dirs=near"),
            ("mb_optimize_scan=0", "alloc=mballoc,dirs=near,mb_optimize_scan=0"),
            ("mb_optimize_scan", "alloc=mballoc,dirs=near,mb_optimize_scan=1"),
            ("alloc=mballoc-6.4,mb_max_to_scan=9", "alloc=mballoc-6.4,dirs=near,mb_max_to_scan=9"),
            ("avgfpdir=9", "alloc=lease,dirs=dirpref,avgfpdir=9"),
        ] {
            assert_eq!(placing(words).as_deref(), Ok(expected));
        }
        for parameter in platfs::placement::parameters::parameters() {
            let name = parameter.tunable.name;
            if name != "stripe" {
                let words = format!("{name}={}", parameter.tunable.least);
                assert!(placing(&words).unwrap().contains(&words), "{words}");
            }
            assert!(!OF_THE_DRIVER.contains(&name) && !REFUSED.iter().any(|row| row.0 == name), "{name}");
        }
        assert!(placing("lease_tight=0").unwrap_err().contains("from 1 to 1000"));
        assert_eq!(MountOptions::parse(["stripe=64"], false).unwrap().stripe, Some(64));
    }

    #[test]
    fn what_is_unknown_or_makes_no_sense_is_named() {
        let error = |words: &str| MountOptions::parse([words], false).unwrap_err();
        assert_eq!(
            error("ro,frobnicate"),
            "unknown mount option `frobnicate`; `plat help mount-options` lists all"
        );
        let refused = "mount option `usrjquota=aquota` can't be had: quota is kept in files of the \
                       volume's own (`plat quota --on user,group`)";
        assert_eq!(error("usrjquota=aquota"), refused);
        assert!(error("data_err=abort").contains("fsync") && error("dax").contains("dax"));
        assert_eq!(error("commit=soon"), "mount option `commit` takes a number, not `soon`");
        assert!(error("data=ordred").contains("one of ordered, writeback, journal"));
        assert!(error("transport=pigeon").contains("one of auto, uring, device"));
        assert!(error("giveway=sometimes").contains("one of auto, never, always"));
        assert!(error("alloc=best").contains("one of lease"));
        assert!(error("own_permissions,allow_other").contains("without asking"));
        assert!(error("own_permissions,uid=5").contains("what the image says"));
        assert!(error("fakeroot,dev").contains("whoever") && error("suid,fakeroot").contains("whoever"));
        assert!(error("umask=8").contains("octal") && error("fmask=1000").contains("up to 777"));
        assert!(MountOptions::parse(["frobnicate"], true).is_ok());
    }
}
