//! Directory blocks: which of their names may stand on the device in which phase (I29).

use ondisk::dirent::{self, Layout, Name, Record};
use ondisk::inode::FileType;
use ondisk::units::InodeNumber;

use super::RetainedName;

/// The bytes of an entry before its name.
const HEADER_LEN: usize = dirent::HEADER_LEN;

/// With names that have left. Their room is still there, since no name came to the block after them.
pub(super) fn with_kept(bytes: &mut [u8], layout: Layout, kept: &[RetainedName]) {
    for entry in kept {
        let Ok(name) = Name::new(&entry.name) else { continue };
        let file_type = entry.file_type.unwrap_or(FileType::Regular);
        let record = Record::new(name, entry.inode, file_type, layout);
        let room = dirent::find_room(bytes, layout, record.needs());
        let taken = matches!(dirent::find(bytes, layout, &entry.name), Ok(Some(_)));
        match room {
            Ok(Some(room)) if !taken => dirent::insert_at(bytes, layout, room, &record),
            _ => debug_assert!(false, "a name that left a block finds its room there"),
        }
    }
}

/// Without any name but `.` and `..`.
pub(super) fn without_names(bytes: &mut [u8], layout: Layout) {
    let named = |bytes: &[u8]| {
        let mut entries = dirent::entries(bytes, layout).map_while(Result::ok);
        let name = entries.find(|entry| entry.inode.is_some() && !matches!(entry.name, b"." | b".."));
        name.map(|entry| entry.offset)
    };
    while let Some(offset) = named(bytes) {
        if !matches!(dirent::remove(bytes, layout, offset), Ok(true)) {
            break;
        }
    }
}

/// Where the `..` of a directory's first block stands.
fn dotdot(bytes: &[u8]) -> Option<usize> {
    let at = usize::from(u16::from_le_bytes(bytes.get(4..6)?.try_into().ok()?));
    let is_first = bytes.get(6) == Some(&1) && bytes.get(HEADER_LEN) == Some(&b'.');
    let is_second = bytes.get(at + 6) == Some(&2) && bytes.get(at + HEADER_LEN..at + 10) == Some(b"..");
    (is_first && is_second).then_some(at)
}

/// Where `.` and `..` lead, in a directory's first block.
pub(super) fn dots(bytes: &[u8]) -> Option<(InodeNumber, InodeNumber)> {
    let at = dotdot(bytes)?;
    let number = |at: usize| {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        InodeNumber::new(u32::from_le_bytes(bytes))
    };
    Some((number(0)?, number(at)?))
}

/// A directory that is its own parent: no other is counted as having it.
pub(super) fn apart(bytes: &mut [u8]) {
    if let (Some((own, _)), Some(at)) = (dots(bytes), dotdot(bytes))
        && let Some(to) = bytes.get_mut(at..at + 4)
    {
        to.copy_from_slice(&own.get().to_le_bytes());
    }
}
