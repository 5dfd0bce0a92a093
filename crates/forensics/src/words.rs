//! Facts as text: modes, times, flags, sizes. Excludes names, whose bytes need not be text.

use ondisk::acl::{Acl, Subject};
use ondisk::inode::{FileType, InodeFlags, Timestamp};

/// Bytes of a field that should be text, what is none replaced.
#[must_use]
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A UUID as text.
#[must_use]
pub fn uuid(bytes: &[u8; 16]) -> String {
    let text = hex(bytes);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| text.get(range).unwrap_or_default());
    parts.join("-")
}

/// The letter of a type, as ls shows it.
#[must_use]
pub fn type_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

/// The name of a type, in text and JSON alike.
#[must_use]
pub fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// Type and permissions as ls shows them: `-rwsr-xr-x`.
#[must_use]
pub fn mode(file_type: FileType, permissions: u16) -> String {
    let mut text = String::with_capacity(10);
    text.push(type_letter(file_type));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = permissions >> shift & 7;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (permissions & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time in UTC as ISO 8601 writes it, to the nanosecond.
#[must_use]
pub fn time(at: Timestamp) -> String {
    format!("{}.{:09}Z", date_and_time(at.seconds), at.nanoseconds)
}

/// A time in UTC as ISO 8601 writes it, to the second.
#[must_use]
pub fn whole_seconds(seconds: u64) -> String {
    // The superblock's 40 bits always fit.
    format!("{}Z", date_and_time(i64::try_from(seconds).unwrap_or(i64::MAX)))
}

/// Days to dates by eras of 400 years that begin in March, so that a leap day comes last
/// (H. Hinnant, "chrono-compatible low-level date algorithms").
fn date_and_time(seconds: i64) -> String {
    const DAYS_PER_ERA: i64 = 146_097;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(DAYS_PER_ERA), shifted.rem_euclid(DAYS_PER_ERA));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (DAYS_PER_ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}", second % 60)
}

/// Inode flags in the order and with the letters of lsattr(1), and a word for each.
const FLAGS: [(u32, char, &str); 22] = [
    (InodeFlags::SECRM.bits(), 's', "secure-deletion"),
    (InodeFlags::UNRM.bits(), 'u', "undelete"),
    (InodeFlags::SYNC.bits(), 'S', "sync"),
    (InodeFlags::DIRSYNC.bits(), 'D', "dirsync"),
    (InodeFlags::IMMUTABLE.bits(), 'i', "immutable"),
    (InodeFlags::APPEND.bits(), 'a', "append-only"),
    (InodeFlags::NODUMP.bits(), 'd', "no-dump"),
    (InodeFlags::NOATIME.bits(), 'A', "no-atime"),
    (InodeFlags::COMPR.bits(), 'c', "compressed"),
    (InodeFlags::ENCRYPT.bits(), 'E', "encrypted"),
    (InodeFlags::JOURNAL_DATA.bits(), 'j', "journaled-data"),
    (InodeFlags::INDEX.bits(), 'I', "indexed"),
    (InodeFlags::NOTAIL.bits(), 't', "no-tail-merging"),
    (InodeFlags::TOPDIR.bits(), 'T', "top-of-hierarchy"),
    (InodeFlags::EXTENTS.bits(), 'e', "extents"),
    (0x80_0000, 'C', "no-copy-on-write"),
    (InodeFlags::DAX.bits(), 'x', "dax"),
    (InodeFlags::CASEFOLD.bits(), 'F', "casefold"),
    (InodeFlags::INLINE_DATA.bits(), 'N', "inline-data"),
    (InodeFlags::PROJINHERIT.bits(), 'P', "inherit-project"),
    (InodeFlags::VERITY.bits(), 'V', "verity"),
    (0x400, 'm', "no-compression"),
];

/// Flags as the letters of lsattr(1).
#[must_use]
pub fn flag_letters(flags: InodeFlags) -> String {
    FLAGS.iter().map(|(bit, letter, _)| if flags.bits() & bit == 0 { '-' } else { *letter }).collect()
}

/// Flags as words; those without one as their bit.
#[must_use]
pub fn flag_names(flags: InodeFlags) -> Vec<String> {
    let named = FLAGS.iter().filter(|(bit, ..)| flags.bits() & bit != 0);
    let mut names: Vec<String> = named.map(|(.., name)| (*name).to_owned()).collect();
    let rest = FLAGS.iter().fold(flags.bits(), |rest, (bit, ..)| rest & !bit);
    names.extend(
        (0..32).map(|shift| rest & 1 << shift).filter(|bit| *bit != 0).map(|bit| format!("{bit:#x}")),
    );
    names
}

/// An access control list in the short text form of acl(5), with numeric identities.
#[must_use]
pub fn acl(list: &Acl) -> String {
    let entries = list.entries().iter().map(|entry| {
        let bits = entry.permissions;
        let letters = [(4, 'r'), (2, 'w'), (1, 'x')];
        let permissions: String =
            letters.iter().map(|(bit, letter)| if bits & bit == 0 { '-' } else { *letter }).collect();
        let subject = match entry.subject {
            Subject::Owner => "user:".to_owned(),
            Subject::User(id) => format!("user:{id}"),
            Subject::OwningGroup => "group:".to_owned(),
            Subject::Group(id) => format!("group:{id}"),
            Subject::Mask => "mask:".to_owned(),
            Subject::Others => "other:".to_owned(),
        };
        format!("{subject}:{permissions}")
    });
    entries.collect::<Vec<_>>().join(",")
}

/// A size for people: three digits and a unit, as `ls -h` rounds (up).
#[must_use]
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = (63 - bytes.max(1).leading_zeros()) / 10;
    let unit = UNITS.get(step as usize).copied().unwrap_or_default();
    let shift = 10 * step;
    let tenths = (u128::from(bytes) * 10).div_ceil(1 << shift);
    if step == 0 || tenths >= 100 {
        return format!("{} {unit}", u128::from(bytes).div_ceil(1 << shift));
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_centuries() {
        let seconds = |seconds| time(Timestamp { seconds, nanoseconds: 7 });
        assert_eq!(seconds(0), "1970-01-01T00:00:00.000000007Z");
        assert_eq!(seconds(-1), "1969-12-31T23:59:59.000000007Z");
        assert_eq!(seconds(951_868_799), "2000-02-29T23:59:59.000000007Z");
        assert_eq!(seconds(Timestamp::EARLIEST), "1901-12-13T20:45:52.000000007Z");
        assert_eq!(seconds(Timestamp::LATEST_EXTRA), "2446-05-10T22:38:55.000000007Z");
        assert_eq!(whole_seconds(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn modes_as_ls_shows_them() {
        assert_eq!(mode(FileType::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileType::Socket, 0o7000), "s--S--S--T");
    }

    #[test]
    fn flags_without_a_name_are_not_lost() {
        let flags = InodeFlags::EXTENTS | InodeFlags::from_bits_retain(0x8000_0000);
        assert_eq!(flag_letters(flags), "--------------e-------");
        assert_eq!(flag_names(flags), ["extents", "0x80000000"]);
    }

    #[test]
    fn people_read_three_digits() {
        let shown = [0, 1023, 1024, 1536, 10 << 20, u64::MAX].map(human);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10 MiB", "16 EiB"]);
    }
}
