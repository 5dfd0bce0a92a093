//! The options by which a volume that exists is changed: letters and meanings as in tune2fs.
//!
//! Here text becomes values; which changes a volume allows is for [`platfs_reshape::tune`] to say.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use platfs::mkfs::{Encoding, JournalOptions, parse_features};
use platfs::ondisk::quota::QuotaKind;
use platfs_reshape::tune::{Field, Request};

use super::amount::{amount, bytes, number, scaled};
use super::uuid::{self, UuidChoice};
use super::{ON_ERROR, one_of, usage};
use crate::clock::seconds as now;
use crate::console::Failure;

/// Changes that are asked for. Lists are separated by commas.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Changes (as in tune2fs)")]
pub struct ChangeArgs {
    /// Label, at most 16 bytes.
    #[arg(short = 'L', long)]
    label: Option<OsString>,
    /// A UUID, or random, time, clear.
    #[arg(short = 'U', long)]
    uuid: Option<String>,
    /// With -U: checksums stay as they are, made with the old UUID (metadata_csum_seed).
    #[arg(long, requires = "uuid")]
    fast: bool,
    /// Share of the blocks reserved for the super-user, in percent.
    #[arg(short = 'm', long = "reserved-percent", value_name = "PERCENT", allow_hyphen_values = true)]
    reserved_percent: Option<String>,
    /// Number of blocks reserved for the super-user.
    #[arg(short = 'r', long = "reserved-blocks", value_name = "BLOCKS", conflicts_with = "reserved_percent")]
    reserved_blocks: Option<String>,
    /// User who may take reserved blocks, as a number.
    #[arg(short = 'u', long = "reserved-user", value_name = "UID")]
    reserved_user: Option<u32>,
    /// Group that may take reserved blocks, as a number.
    #[arg(short = 'g', long = "reserved-group", value_name = "GID")]
    reserved_group: Option<u32>,
    /// On errors the kernel shall continue, remount-ro or panic.
    #[arg(short = 'e', long = "errors", value_name = "BEHAVIOUR")]
    on_error: Option<String>,
    /// Mounts until a check is due; 0 or -1: never; random: from 20 to 40.
    #[arg(short = 'c', long = "max-mount-count", value_name = "COUNT", allow_hyphen_values = true)]
    most_mounts: Option<String>,
    /// Mounts since the last check.
    #[arg(short = 'C', long = "mount-count", value_name = "COUNT")]
    mounts: Option<u16>,
    /// Time until a check is due, in days, or with d, w or m behind in days, weeks or months; 0: never.
    #[arg(short = 'i', long = "interval", value_name = "TIME")]
    interval: Option<String>,
    /// When the volume was last checked: now, YYYYMMDD[HHMM[SS]] in UTC, or @SECONDS since 1970.
    #[arg(short = 'T', long = "last-checked", value_name = "TIME")]
    last_checked: Option<String>,
    /// Directory that the volume was last mounted on.
    #[arg(short = 'M', long = "last-mounted", value_name = "DIRECTORY")]
    last_mounted: Option<OsString>,
    /// Default mount options to set, or to clear with ^NAME.
    #[arg(short = 'o', long = "mount-options", value_name = "OPTIONS")]
    mount_options: Vec<String>,
    /// Extended options: stride, stripe_width, hash_alg, hash_seed, mount_opts, mmp_update_interval and others.
    #[arg(short = 'E', long = "extended", value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Features to turn on, or off with ^NAME.
    #[arg(short = 'O', long = "features", value_name = "FEATURES")]
    features: Vec<String>,
    /// Make a journal.
    #[arg(short = 'j', long = "journal")]
    journal: bool,
    /// The journal: size=MIB, fast_commit_size=KIB, location=BLOCK; it takes the place of the one that is there.
    #[arg(short = 'J', long = "journal-options", value_name = "OPTIONS")]
    journal_options: Option<String>,
    /// Size of an inode record in bytes, larger than it is.
    #[arg(short = 'I', long = "inode-size", value_name = "BYTES")]
    inode_size: Option<String>,
    /// Kinds of quota to keep: usrquota, grpquota, prjquota, with ^ no longer.
    #[arg(short = 'Q', long = "quota", value_name = "KINDS")]
    quotas: Vec<String>,
}

/// `s_default_mount_opts` by name.
const MOUNT_OPTIONS: [(&str, u32); 12] = [
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", 0x4),
    ("acl", 0x8),
    ("uid16", 0x10),
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];

const HASHES: [(&str, u8); 3] = [("legacy", 0), ("half_md4", 1), ("tea", 2)];

pub(super) const QUOTAS: [(&str, QuotaKind); 6] = [
    ("usrquota", QuotaKind::User),
    ("usr", QuotaKind::User),
    ("grpquota", QuotaKind::Group),
    ("grp", QuotaKind::Group),
    ("prjquota", QuotaKind::Project),
    ("prj", QuotaKind::Project),
];

pub(super) const EXTENDED: &str = "stride, stripe_width, hash_alg, hash_seed, mount_opts, mmp_update_interval, clear_mmp, \
     force_fsck, test_fs, encoding, encoding_flags, orphan_file_size, quotatype";

/// A name in a list, and whether it is to be set.
fn toggled(name: &str) -> (&str, bool) {
    match name.strip_prefix('^') {
        Some(bare) => (bare, false),
        None => (name.strip_prefix('+').unwrap_or(name), true),
    }
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

impl ChangeArgs {
    /// The changes as values.
    ///
    /// # Errors
    /// Text that is no value: a usage error that names option and text.
    pub fn parse(&self) -> Result<Request, Failure> {
        let mut request = Request { random: UuidChoice::Random.bytes(0)?, ..Request::default() };
        self.texts(&mut request)?;
        self.numbers(&mut request)?;
        for name in self.mount_options.iter().flat_map(|list| items(list)) {
            let (bare, on) = toggled(name);
            request.fields.push(Field::MountOption(one_of("-o", bare, &MOUNT_OPTIONS)?, on));
        }
        for list in &self.extended {
            for part in items(list) {
                extended(part, &mut request)?;
            }
        }
        for list in &self.features {
            let edits = parse_features(list).map_err(|why| Failure::Usage(format!("-O {list}: {why}")))?;
            request.features.extend(edits);
        }
        for name in self.quotas.iter().flat_map(|list| items(list)) {
            let (bare, on) = toggled(name);
            request.quotas.push((one_of("-Q", bare, &QUOTAS)?, on));
        }
        request.journal = self.journal()?;
        request.inode_size = self.inode_size.as_deref().map(|text| number("-I", text)).transpose()?;
        request.keep_checksums = self.fast;
        Ok(request)
    }

    fn texts(&self, request: &mut Request) -> Result<(), Failure> {
        if let Some(label) = &self.label {
            request.fields.push(Field::Label(label.as_bytes().to_vec()));
        }
        if let Some(path) = &self.last_mounted {
            request.fields.push(Field::LastMounted(path.as_bytes().to_vec()));
        }
        if let Some(text) = &self.uuid {
            request.uuid = Some(uuid::choice("-U", text)?.bytes(now()?)?);
        }
        if let Some(text) = &self.on_error {
            request.fields.push(Field::OnError(one_of("-e", text, &ON_ERROR)?));
        }
        Ok(())
    }

    fn numbers(&self, request: &mut Request) -> Result<(), Failure> {
        let fields = &mut request.fields;
        if let Some(text) = &self.reserved_percent {
            match text.parse() {
                Ok(percent) => fields.push(Field::ReservedPercent(percent)),
                Err(_) => return usage(format!("-m {text}: not a percentage from 0 to 50")),
            }
        }
        if let Some(text) = &self.reserved_blocks {
            fields.push(Field::ReservedBlocks(bytes("-r", text)?));
        }
        fields.extend(self.reserved_user.map(Field::ReservedUser));
        fields.extend(self.reserved_group.map(Field::ReservedGroup));
        match self.most_mounts.as_deref() {
            None => {}
            Some("random") => fields.push(Field::MostMounts(20 + i16::from(request.random[0] % 21))),
            Some(text) => match text.parse() {
                Ok(most) => fields.push(Field::MostMounts(most)),
                Err(_) => return usage(format!("-c {text}: not a number of mounts up to 32767")),
            },
        }
        fields.extend(self.mounts.map(Field::Mounts));
        if let Some(text) = &self.interval {
            fields.push(Field::CheckInterval(interval(text)?));
        }
        if let Some(text) = &self.last_checked {
            fields.push(Field::LastChecked(moment(text)?));
        }
        Ok(())
    }

    fn journal(&self) -> Result<Option<JournalOptions>, Failure> {
        let mut journal = JournalOptions::default();
        for part in self.journal_options.iter().flat_map(|list| items(list)) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "size" => journal.size = Some(scaled("-J size", value, 20)?),
                "fast_commit_size" => {
                    journal.fast_commit_size = Some(scaled("-J fast_commit_size", value, 10)?);
                }
                "location" => journal.location = Some(amount("-J location", value)?),
                "device" => {
                    return usage("-J device: external journals can be made (-O journal_dev), not attached");
                }
                _ => {
                    return usage(format!(
                        "-J {part}: unknown; size, fast_commit_size and location are known"
                    ));
                }
            }
        }
        Ok((self.journal || self.journal_options.is_some()).then_some(journal))
    }
}

fn extended(part: &str, request: &mut Request) -> Result<(), Failure> {
    let wrong = |why: &str| Failure::Usage(format!("-E {part}: {why}"));
    let (name, value) = match part.split_once('=') {
        Some((name, value)) => (name.replace('-', "_"), Some(value)),
        None => (part.replace('-', "_"), None),
    };
    let label = format!("-E {name}");
    let given = || value.ok_or_else(|| wrong("needs a value"));
    match &name[..] {
        "stride" => request.fields.push(Field::Stride(number(&label, given()?)?)),
        "stripe_width" => request.fields.push(Field::StripeWidth(number(&label, given()?)?)),
        "hash_alg" => request.fields.push(Field::HashAlgorithm(one_of(&label, given()?, &HASHES)?)),
        "hash_seed" => {
            let seed = uuid::choice(&label, given()?)?.bytes(now()?)?;
            request.fields.push(Field::HashSeed(seed));
        }
        "mount_opts" => request.fields.push(Field::MountText(given()?.as_bytes().to_vec())),
        "mmp_update_interval" => request.mmp.interval = Some(number(&label, given()?)?),
        "clear_mmp" if value.is_none() => request.mmp.clear = true,
        "force_fsck" if value.is_none() => request.fields.push(Field::ForceCheck),
        "test_fs" if value.is_none() => request.fields.push(Field::TestVolume(true)),
        "^test_fs" if value.is_none() => request.fields.push(Field::TestVolume(false)),
        "orphan_file_size" => request.orphan_file_size = Some(amount(&label, given()?)?),
        "encoding" if matches!(value, Some("utf8" | "utf8-12.1")) => {
            request.encoding.get_or_insert(Encoding { number: 1, flags: 0 });
        }
        "encoding" => return Err(wrong("only utf8 (utf8-12.1) is known")),
        "encoding_flags" => {
            let encoding = request.encoding.get_or_insert(Encoding { number: 1, flags: 0 });
            match given()? {
                "strict" => encoding.flags |= 1,
                "nostrict" => encoding.flags &= !1,
                _ => return Err(wrong("only strict and nostrict are known")),
            }
        }
        "quotatype" => {
            for kind in given()?.split(':') {
                request.quotas.push((one_of(&label, kind, &QUOTAS)?, true));
            }
        }
        _ => return Err(wrong(&format!("unknown; known are {EXTENDED}"))),
    }
    Ok(())
}

/// Seconds of a time between checks; a month has 30 days.
fn interval(text: &str) -> Result<u32, Failure> {
    const DAY: u64 = 86_400;
    let (digits, unit) = match text.strip_suffix(['d', 'w', 'm']) {
        Some(digits) if text.ends_with('w') => (digits, 7 * DAY),
        Some(digits) if text.ends_with('m') => (digits, 30 * DAY),
        Some(digits) => (digits, DAY),
        None => (text, DAY),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
    seconds.ok_or_else(|| {
        Failure::Usage(format!("-i {text}: not a number of days, or with w weeks, with m months"))
    })
}

/// Seconds since 1970 of a moment.
fn moment(text: &str) -> Result<u64, Failure> {
    let wrong = || Failure::Usage(format!("-T {text}: not now, YYYYMMDD[HHMM[SS]] in UTC, or @SECONDS"));
    if text == "now" {
        return now();
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().map_err(|_| wrong());
    }
    let is_date = matches!(text.len(), 8 | 12 | 14) && text.bytes().all(|byte| byte.is_ascii_digit());
    let part = |at: usize, len: usize| text.get(at..at + len).map_or(Ok(0), |part| part.parse::<u64>());
    let parts = || {
        Ok::<_, std::num::ParseIntError>([
            part(0, 4)?,
            part(4, 2)?,
            part(6, 2)?,
            part(8, 2)?,
            part(10, 2)?,
            part(12, 2)?,
        ])
    };
    let [year, month, day, hour, minute, second] =
        is_date.then(parts).ok_or_else(wrong)?.map_err(|_| wrong())?;
    let right = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !right || hour > 23 || minute > 59 || second > 59 {
        return Err(wrong());
    }
    Ok(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years that begin in March end with the leap day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    before + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_tune2fs_reads_them() {
        assert_eq!(interval("2w").ok(), Some(1_209_600));
        assert_eq!(interval("3").ok(), Some(259_200));
        assert_eq!(interval("1m").ok(), Some(2_592_000));
        assert!(interval("x").is_err() && interval("99999999m").is_err() && interval("").is_err());
        assert_eq!(moment("19700101").ok(), Some(0));
        assert_eq!(moment("20240229120130").ok(), Some(1_709_208_090));
        assert_eq!(moment("@77").ok(), Some(77));
        assert!(moment("20241301").is_err() && moment("2024").is_err() && moment("yesterday").is_err());
    }

    #[test]
    fn lists_set_and_clear() {
        let arguments = ChangeArgs {
            mount_options: vec!["^acl,journal_data".into()],
            extended: vec!["stride=16,^test_fs,mount_opts=data=journal".into()],
            quotas: vec!["usrquota,^prjquota".into()],
            ..ChangeArgs::default()
        };
        let request = arguments.parse().ok().unwrap();
        assert_eq!(
            request.fields,
            [
                Field::MountOption(8, false),
                Field::MountOption(0x20, true),
                Field::Stride(16),
                Field::TestVolume(false),
                Field::MountText(b"data=journal".to_vec()),
            ]
        );
        assert_eq!(request.quotas, [(QuotaKind::User, true), (QuotaKind::Project, false)]);
        for wrong in ["stride=x", "colour=red", "hash_alg=md5", "stride"] {
            let arguments = ChangeArgs { extended: vec![wrong.into()], ..ChangeArgs::default() };
            assert!(arguments.parse().is_err(), "{wrong}");
        }
    }
}
