//! The words behind `-o`: ext4's names where ext4 has them, the kernel's for all mounts, FUSE's, ours.

/// What happens when the volume turns out to be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDamage {
    /// What meets the damage fails; all else goes on.
    Continue,
    /// As `Continue`, and nothing more is written.
    #[default]
    ReadOnly,
    /// The mount ends at once.
    Stop,
}

/// What a mount was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the command line")]
pub struct MountOptions {
    /// `ro` was asked for.
    pub read_only: bool,
    /// `rw` was asked for.
    pub read_write: bool,
    /// `noload`: read even though the journal was not brought in.
    pub noload: bool,
    /// Lists of access control count.
    pub acl: bool,
    /// Attributes of users are shown.
    pub user_xattr: bool,
    /// What happens on damage.
    pub on_damage: OnDamage,
    /// Others may look.
    pub allow_other: bool,
    /// Set-user-id bits count.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs run.
    pub exec: bool,
    /// The name of the source, if it is not the image's.
    pub source: Option<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            read_write: false,
            noload: false,
            acl: true,
            user_xattr: true,
            on_damage: OnDamage::default(),
            allow_other: false,
            suid: false,
            dev: false,
            exec: true,
            source: None,
        }
    }
}

/// Words without an effect on a mount for reading, each of them ext4's or mount(8)'s.
const WITHOUT_EFFECT: &[&str] = &[
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
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "async",
    "nodiscard",
    "discard",
    "delalloc",
    "nodelalloc",
    "barrier",
    "nobarrier",
    "auto_da_alloc",
    "noauto_da_alloc",
    "default_permissions",
    "silent",
    "loud",
    "loop",
];

/// Words that would be promises about writing.
const ABOUT_WRITING: &[&str] = &["sync", "dirsync", "softdep", "normal"];

impl MountOptions {
    /// Takes the arguments of all `-o` apart; later words win. With `sloppy`, unknown words are passed
    /// over, as mount(8) asks of its helpers by `-s`.
    ///
    /// # Errors
    /// What is wrong, naming the word.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>, sloppy: bool) -> Result<Self, String> {
        let mut options = MountOptions::default();
        let words = arguments.into_iter().flat_map(|argument| argument.split(','));
        for word in words.filter(|word| !word.is_empty()) {
            let known = match word.split_once('=') {
                Some((name, value)) => options.take_value(name, value)?,
                None => options.take_word(word),
            };
            if !known && !sloppy {
                return Err(format!("unknown mount option `{word}`"));
            }
        }
        Ok(options)
    }

    fn take_word(&mut self, word: &str) -> bool {
        match word {
            "ro" => (self.read_only, self.read_write) = (true, false),
            "rw" => (self.read_only, self.read_write) = (false, true),
            "noload" | "norecovery" => self.noload = true,
            "acl" => self.acl = true,
            "noacl" => self.acl = false,
            "user_xattr" => self.user_xattr = true,
            "nouser_xattr" => self.user_xattr = false,
            "allow_other" => self.allow_other = true,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            word => {
                return WITHOUT_EFFECT.contains(&word)
                    || ABOUT_WRITING.contains(&word)
                    || word.starts_with("x-")
                    || word.starts_with("X-");
            }
        }
        true
    }

    fn take_value(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let number = || match value.parse::<u32>() {
            Ok(_) => Ok(true),
            Err(_) => Err(format!("mount option `{name}` takes a number, not `{value}`")),
        };
        let one_of = |names: &[&str]| match names.contains(&value) {
            true => Ok(true),
            false => Err(format!("mount option `{name}` is one of {}, not `{value}`", names.join(", "))),
        };
        match name {
            "errors" => {
                one_of(&["continue", "remount-ro", "panic"])?;
                self.on_damage = match value {
                    "continue" => OnDamage::Continue,
                    "panic" => OnDamage::Stop,
                    _ => OnDamage::ReadOnly,
                };
                Ok(true)
            }
            "fsname" => {
                self.source = Some(value.to_owned());
                Ok(true)
            }
            "data" => one_of(&["ordered", "writeback", "journal"]),
            "commit" | "stripe" => number(),
            "barrier" | "auto_da_alloc" => one_of(&["0", "1"]),
            "alloc" => one_of(&block_policies()),
            "dirs" if platfs::placement::DirectoryPolicyKind::named(value).is_some() => Ok(true),
            "dirs" => Err(format!("mount option `dirs` names a directory policy, not `{value}`")),
            "comment" => Ok(true),
            name => Ok(name.starts_with("x-") || name.starts_with("X-")),
        }
    }
}

fn block_policies() -> Vec<&'static str> {
    platfs::placement::policy::POLICIES.iter().map(|row| row.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_words_win_and_words_without_effect_pass() {
        let parsed =
            MountOptions::parse(["rw,noatime,ro", "noload,commit=5,noacl,x-systemd.automount"], false);
        let options = parsed.unwrap();
        assert!(options.read_only && !options.read_write && options.noload && !options.acl);
        assert!(options.user_xattr && options.exec && !options.suid && !options.dev);
    }

    #[test]
    fn what_is_unknown_or_makes_no_sense_is_named() {
        let error = |words: &str| MountOptions::parse([words], false).unwrap_err();
        assert_eq!(error("ro,frobnicate"), "unknown mount option `frobnicate`");
        assert_eq!(error("usrjquota=aquota"), "unknown mount option `usrjquota=aquota`");
        assert_eq!(error("commit=soon"), "mount option `commit` takes a number, not `soon`");
        assert!(error("data=ordred").contains("one of ordered, writeback, journal"));
        assert!(error("alloc=best").contains("lease"));
        assert!(MountOptions::parse(["frobnicate"], true).is_ok());
    }
}
