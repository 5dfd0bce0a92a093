//! The entries of one block, or of one part of a directory inside its inode.
//!
//! Both the silent threads, which only look for any fault, and the one that reports and mends use this walk.
//! It excludes the index above the blocks ([`super::index`]), the blocks' checksums and
//! where blocks are.

use std::collections::HashMap;
use std::ops::Range;

use ondisk::dirent::{self, BrokenEntry, EntryRule, Layout, entries_without_tail};
use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, FileBlock, InodeNumber};

use super::Bounds;
use super::hash::Hasher;
use super::parents::DirectoryLinks;
use super::salvage;
use crate::facts::Facts;
use crate::issue::Location;
use crate::kinds::Kind;
use crate::kinds::directories::{
    DIRECTORY_DOT, DIRECTORY_DOT_LENGTH, DIRECTORY_DOTDOT, ENTRY_BROKEN, ENTRY_DOT, ENTRY_DOTDOT,
    ENTRY_DUPLICATE, ENTRY_ENCODING, ENTRY_ENCRYPTED, ENTRY_NAME, ENTRY_NO_NAME, ENTRY_OUTSIDE, ENTRY_POLICY,
    ENTRY_RESERVED, ENTRY_ROOT, ENTRY_SELF, ENTRY_TYPE, ENTRY_UNUSED, ENTRY_VALUE, INDEX_HASH,
};
use crate::reporter::{Finding, Reporter};
use crate::slices::{put, word};

/// Least length of an encrypted name: one block of the cipher.
const ENCRYPTED_MIN: usize = 16;

/// Where a region is.
#[derive(Clone, Copy)]
pub(super) struct RegionLocation {
    pub(super) file_block: FileBlock,
    pub(super) block: Option<Block>,
    /// Hashes that the index looks for here, both ends included.
    pub(super) hashes: Option<(u32, u32)>,
}

/// An entry's place in its directory.
pub(super) type Position = (FileBlock, usize);

/// Decision about a directory as a whole, taken once all its blocks were seen.
#[derive(Default)]
pub(super) struct RebuildDecision {
    /// It is to be rewritten.
    pub(super) rebuild: bool,
    /// Entries whose names are there already, to be renamed then.
    pub(super) rename: Vec<Position>,
    /// Something is to stay that keeps names from being read: rewriting it would lose them.
    pub(super) stays: bool,
}

/// The examination of one directory.
pub(super) struct Examiner<'a> {
    pub(super) facts: &'a Facts,
    pub(super) bounds: &'a Bounds,
    pub(super) layout: Layout,
    pub(super) inode: &'a Inode,
    pub(super) hasher: Option<Hasher>,
    pub(super) found: &'a mut DirectoryLinks,
    /// Hashes of the names that this one may not repeat.
    pub(super) seen: &'a mut Vec<u64>,
    /// The names themselves, unless the reporter is silent.
    pub(super) known: HashMap<Vec<u8>, InodeNumber>,
    pub(super) whole: RebuildDecision,
    /// True if `.` and `..` were looked at.
    pub(super) headed: bool,
}

/// One entry, without borrowing its block.
#[derive(Clone)]
struct LiveEntry {
    at: usize,
    inode: InodeNumber,
    /// Type of the inode.
    file_type: Option<FileType>,
    type_code: u8,
    name: Range<usize>,
}

/// Makes an entry an unused one of the same length.
pub(super) fn clear(bytes: &mut [u8], at: usize, name_len: usize) {
    put(bytes, at, &[0; 4]);
    put(bytes, at + 6, &[0; 2]);
    bytes.get_mut(at + 8..at + 8 + name_len).unwrap_or_default().fill(0);
}

impl Examiner<'_> {
    pub(super) fn is_opaque(&self) -> bool {
        self.inode.flags().contains(InodeFlags::ENCRYPT)
    }

    fn place(&self, region: &RegionLocation) -> Location {
        let place = Location::inode(self.inode.number()).at_file_block(region.file_block);
        match region.block {
            Some(block) => place.at_block(block),
            None => place,
        }
    }

    /// Examines the entries that cover `bytes`; the first two are `.` and `..` if `dots`. Whether
    /// anything was changed. Ends early where a silent reporter has found something, or a broken entry is to
    /// stay.
    pub(super) fn walk(
        &mut self,
        bytes: &mut [u8],
        region: &RegionLocation,
        dots: bool,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        let mut changed = dots && self.head(bytes, region, reporter);
        let mut at = 0;
        let mut before = None;
        let mut nth = if dots { 0 } else { 2 };
        while at < bytes.len() {
            if reporter.any() {
                return changed;
            }
            match entries_without_tail(bytes.get(at..).unwrap_or_default(), self.layout).next() {
                Some(Ok(entry)) => {
                    let len = entry.len;
                    if let Some(inode) = entry.inode.filter(|_| nth >= 2) {
                        let (type_code, name) = (entry.type_code, at + 8..at + 8 + entry.name.len());
                        let file_type = self.facts.file_type(inode);
                        let seen = LiveEntry { at, inode, file_type, type_code, name };
                        changed |= self.entry(bytes, &seen, region, reporter);
                    }
                    (before, at) = (Some((at, len)), at + len);
                }
                Some(Err(broken)) => match (broken.rule, nth >= 2) {
                    (EntryRule::NoName { len }, true) => {
                        if self.nameless(word(bytes, at), region, reporter) {
                            clear(bytes, at, 0);
                            changed = true;
                        }
                        (before, at) = (Some((at, len)), at + len);
                    }
                    (rule, true)
                        if self.broken(bytes, BrokenEntry { offset: at, rule }, region, reporter) =>
                    {
                        changed = true;
                        let next = self.salvage(bytes, at, before);
                        if next > at {
                            before = before
                                .map_or(Some((at, next - at)), |(first, _)| Some((first, next - first)));
                            at = next;
                            nth += 1;
                            continue;
                        }
                        let parsed =
                            entries_without_tail(bytes.get(at..).unwrap_or_default(), self.layout).next();
                        if !matches!(parsed, Some(Ok(_))) {
                            return changed;
                        }
                        continue;
                    }
                    _ => return changed,
                },
                None => return changed,
            }
            nth += 1;
        }
        changed
    }

    /// Reports the entry at a byte, which breaks a rule; returns true if the chain is to be mended there.
    fn broken(
        &mut self,
        bytes: &[u8],
        broken: BrokenEntry,
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        let BrokenEntry { offset: at, rule } = broken;
        let mends = reporter.found(&ENTRY_BROKEN, || {
            let next = self.next_sound(bytes, at);
            let kept = self.readable(bytes, at, next).is_some();
            let lost = if kept { "it is kept, since its name can be read" } else { "it is given up" };
            Finding::new(self.place(region), format!("the entry at byte {at}: {rule}"), lost)
                .expected(format!("the next sound entry begins at byte {next}"))
        });
        if !mends && !reporter.is_silent() {
            // The names behind it are not known.
            self.facts.names_unknown();
            self.whole.stays = true;
        }
        mends
    }

    fn next_sound(&self, bytes: &[u8], at: usize) -> usize {
        salvage::next_sound(bytes, self.layout, at, self.bounds.inodes, self.is_opaque())
    }

    /// The broken entry's inode and length of name, if it names a file that exists.
    fn readable(&self, bytes: &[u8], at: usize, next: usize) -> Option<(InodeNumber, usize)> {
        let (inode, len) = salvage::head(bytes, at, next)?;
        (self.unfit(inode).is_none() && bytes.get(at + 7).is_some_and(|code| *code <= 7))
            .then_some((inode, len))
    }

    /// Mends the chain at a broken entry, whatever else is wrong with that: it lasts to the next sound one,
    /// and is joined to the one before it if there is nothing to keep. Where to go on.
    fn salvage(&self, bytes: &mut [u8], at: usize, before: Option<(usize, usize)>) -> usize {
        let next = self.next_sound(bytes, at);
        if self.readable(bytes, at, next).is_some() {
            self.put_len(bytes, at, next - at);
            return at;
        }
        self.facts.names_lost();
        if before.is_none() && next - at < dirent::MIN_ENTRY_LEN {
            // Too short for an unused entry, and none is ahead to take it in: what follows moves up.
            self.move_up(bytes, at, next);
            return at;
        }
        bytes.get_mut(at..next).unwrap_or_default().fill(0);
        let first = before.map_or(at, |(first, _)| first);
        self.put_len(bytes, first, next - first);
        next
    }

    /// Moves the sound entries from `next` on up to `at`; the last of them takes in what that leaves free.
    fn move_up(&self, bytes: &mut [u8], at: usize, next: usize) {
        let end = bytes.len();
        bytes.copy_within(next.., at);
        bytes.get_mut(end - (next - at)..).unwrap_or_default().fill(0);
        let moved = bytes.get(at..end - (next - at)).unwrap_or_default();
        let last = entries_without_tail(moved, self.layout).map_while(Result::ok).last();
        if let Some((offset, len)) = last.map(|entry| (entry.offset, entry.len)) {
            self.put_len(bytes, at + offset, len + (next - at));
        }
    }

    fn put_len(&self, bytes: &mut [u8], at: usize, len: usize) {
        put(bytes, at + 4, &self.layout.encode_len(len));
    }

    /// Reports an entry without a name; returns true if it is to be removed.
    fn nameless(&mut self, inode: u32, region: &RegionLocation, reporter: &mut Reporter<'_, '_>) -> bool {
        let found = reporter.found(&ENTRY_NO_NAME, || {
            Finding::new(self.place(region), format!("inode {inode} without a name"), "the entry is removed")
        });
        self.whole.stays |= !found;
        if found {
            InodeNumber::new(inode).into_iter().for_each(|inode| self.facts.name_lost_of(inode));
        }
        found
    }

    /// Returns the issue if no name may lead to an inode.
    fn unfit(&self, inode: InodeNumber) -> Option<&'static Kind> {
        if inode.get() > self.bounds.inodes {
            Some(&ENTRY_OUTSIDE)
        } else if self.bounds.is_reserved(inode) {
            Some(&ENTRY_RESERVED)
        } else if !self.facts.used.contains(u64::from(inode.index())) {
            Some(&ENTRY_UNUSED)
        } else if self.facts.values.contains(u64::from(inode.index())) {
            Some(&ENTRY_VALUE)
        } else {
            None
        }
    }

    /// Returns true if a file may be in this encrypted directory: what has contents is encrypted as the directory is.
    fn has_policy(&self, inode: InodeNumber) -> bool {
        let has_contents = matches!(
            self.facts.file_type(inode),
            Some(FileType::Regular | FileType::Directory | FileType::Symlink)
        );
        !has_contents || self.facts.policies.agree(self.inode.number(), inode)
    }

    /// Returns the issue for which an entry behind the first two is removed.
    fn unwanted(&self, seen: &LiveEntry, name: &[u8]) -> Option<&'static Kind> {
        let unfit = self.unfit(seen.inode);
        match name {
            _ if seen.inode == self.inode.number() => Some(&ENTRY_SELF),
            _ if unfit.is_some_and(|kind| *kind != ENTRY_UNUSED) => unfit,
            b"." => Some(&ENTRY_DOT),
            b".." => Some(&ENTRY_DOTDOT),
            _ if seen.inode == InodeNumber::ROOT => Some(&ENTRY_ROOT),
            _ if unfit.is_none() && self.is_opaque() && name.len() < ENCRYPTED_MIN => Some(&ENTRY_ENCRYPTED),
            _ if unfit.is_none() && self.is_opaque() && !self.has_policy(seen.inode) => Some(&ENTRY_POLICY),
            _ => unfit,
        }
    }

    fn entry(
        &mut self,
        bytes: &mut [u8],
        seen: &LiveEntry,
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        let name = bytes.get(seen.name.clone()).unwrap_or_default();
        if let Some(kind) = self.unwanted(seen, name) {
            let removed = reporter.found(kind, || {
                let place = self.place(region).named(name);
                Finding::new(place, format!("inode {}", seen.inode), "the name is removed")
            });
            if removed {
                clear(bytes, seen.at, seen.name.len());
                self.lost(kind, seen);
            }
            return removed;
        }
        let mut changed = self.file_type(bytes, seen, region, reporter);
        changed |= !self.is_opaque() && self.name(bytes, seen, region, reporter);
        self.hash(bytes, seen, region, reporter);
        if self.duplicate(bytes, seen, region, reporter) {
            clear(bytes, seen.at, seen.name.len());
            self.facts.name_lost_of(seen.inode);
            return true;
        }
        self.found.names.push(seen.inode);
        changed
    }

    /// Notes which file lost a name. Where the number of the inode was to blame, that is not known.
    fn lost(&self, kind: &'static Kind, seen: &LiveEntry) {
        let facts = self.facts;
        let fits = self.unfit(seen.inode).is_none() && ![&ENTRY_SELF, &ENTRY_ROOT].contains(&kind);
        let file = FileType::from_entry_code(seen.type_code);
        if fits {
            facts.name_lost_of(seen.inode);
        } else if *kind == ENTRY_UNUSED && facts.altered.contains(u64::from(seen.inode.index())) {
            // It went with what it held, and that is known.
        } else if *kind != ENTRY_UNUSED || file.is_some_and(|file| file != FileType::Directory) {
            facts.name_lost();
        } else {
            // A directory that is gone, with all names in it.
            facts.names_lost();
        }
    }

    fn file_type(
        &self,
        bytes: &mut [u8],
        seen: &LiveEntry,
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        let right = match (self.layout.file_types, seen.file_type) {
            (false, _) => 0,
            (true, Some(file_type)) => file_type.entry_code(),
            (true, None) => return false,
        };
        // An unknown type is allowed: programs look at the file then.
        if seen.type_code == right || seen.type_code == 0 {
            return false;
        }
        let set = reporter.found(&ENTRY_TYPE, || {
            let place = self.place(region).named(bytes.get(seen.name.clone()).unwrap_or_default());
            Finding::new(place, format!("type {}", seen.type_code), "the type is set")
                .expected(format!("type {right}"))
        });
        if set {
            put(bytes, seen.at + 7, &[right]);
        }
        set
    }

    fn name(
        &mut self,
        bytes: &mut [u8],
        seen: &LiveEntry,
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        let name = bytes.get(seen.name.clone()).unwrap_or_default();
        let bad = |byte: &u8| matches!(byte, 0 | b'/');
        if !name.iter().any(bad) {
            return self.encoding(bytes, seen, region, reporter);
        }
        let changed = reporter.found(&ENTRY_NAME, || {
            let place = self.place(region).named(name);
            Finding::new(place, format!("inode {}", seen.inode), "the bytes become underscores")
        });
        if changed {
            let name = bytes.get_mut(seen.name.clone()).unwrap_or_default();
            name.iter_mut().filter(|byte| bad(byte)).for_each(|byte| *byte = b'_');
            // The name's hash is another one now.
            self.whole.rebuild |= self.hasher.is_some();
        }
        changed
    }

    /// Names without case are UTF-8 where the volume is strict about it.
    fn encoding(
        &mut self,
        bytes: &mut [u8],
        seen: &LiveEntry,
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        let name = bytes.get(seen.name.clone()).unwrap_or_default();
        let judged = self.bounds.strict && self.inode.flags().contains(InodeFlags::CASEFOLD);
        if !judged || std::str::from_utf8(name).is_ok() {
            return false;
        }
        let changed = reporter.found(&ENTRY_ENCODING, || {
            let place = self.place(region).named(name);
            Finding::new(place, format!("inode {}", seen.inode), "the bytes become underscores")
        });
        if changed {
            let mut right = Vec::with_capacity(name.len());
            for part in name.utf8_chunks() {
                right.extend_from_slice(part.valid().as_bytes());
                right.resize(right.len() + part.invalid().len(), b'_');
            }
            put(bytes, seen.name.start, &right);
            self.whole.rebuild |= self.hasher.is_some();
        }
        changed
    }

    fn hash(
        &mut self,
        bytes: &[u8],
        seen: &LiveEntry,
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) {
        let (Some(hasher), Some((least, most))) = (&self.hasher, region.hashes) else { return };
        if self.whole.rebuild {
            return;
        }
        let name = bytes.get(seen.name.clone()).unwrap_or_default();
        let behind = bytes.get(seen.name.end.next_multiple_of(4)..).unwrap_or_default();
        let Some(hash) = hasher.hash(name, behind) else { return };
        if (least..=most).contains(&hash.major) {
            return;
        }
        self.whole.rebuild |= reporter.found(&INDEX_HASH, || {
            let found = format!("hash {:#010x}", hash.major);
            Finding::new(self.place(region).named(name), found, "the index is rebuilt")
                .expected(format!("{least:#010x} to {most:#010x}"))
        });
    }

    /// Looks whether the name was there before; returns true if its entry is to be removed now.
    fn duplicate(
        &mut self,
        bytes: &[u8],
        seen: &LiveEntry,
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        let name = bytes.get(seen.name.clone()).unwrap_or_default();
        if reporter.is_silent() {
            self.seen.push(super::hash::of_name(name));
            return false;
        }
        let Some(first) = self.known.insert(name.to_vec(), seen.inode) else { return false };
        self.known.insert(name.to_vec(), first);
        let (same, opaque) = (first == seen.inode, self.is_opaque());
        let mend = reporter.found(&ENTRY_DUPLICATE, || {
            let repair = match (same, opaque) {
                (true, _) => "one of the two is removed: both lead to the same file",
                (false, true) => "the second name is removed, its file is put into lost+found",
                (false, false) => "the second name gets `~0`, or the next free number, behind it",
            };
            let found = format!("leads to inode {first} and to inode {}", seen.inode);
            Finding::new(self.place(region).named(name), found, repair)
        });
        if mend && !same && !opaque {
            self.whole.rebuild = true;
            self.whole.rename.push((region.file_block, seen.at));
        }
        mend && (same || opaque)
    }

    /// Examines `.` and `..` at the front of a directory's first block, once; returns true if they were changed.
    pub(super) fn head(
        &mut self,
        bytes: &mut [u8],
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        if std::mem::replace(&mut self.headed, true) {
            return false;
        }
        let mut changed = self.dots(bytes, region, reporter);
        let mut at = 0;
        for name in [&b"."[..], b".."] {
            let entry = entries_without_tail(bytes.get(at..).unwrap_or_default(), self.layout).next();
            let Some(Ok(entry)) = entry else { return changed };
            let len = entry.len;
            if entry.name == name
                && let Some(inode) = entry.inode
            {
                let (file_type, name) = (Some(FileType::Directory), at + 8..at + 8 + name.len());
                let seen = LiveEntry { at, inode, file_type, type_code: entry.type_code, name };
                changed |= self.file_type(bytes, &seen, region, reporter);
            }
            at += len;
        }
        changed
    }

    /// Sees to it that a directory's first block begins with `.` and `..`; returns true if it was changed.
    fn dots(&mut self, bytes: &mut [u8], region: &RegionLocation, reporter: &mut Reporter<'_, '_>) -> bool {
        let own = self.inode.number();
        let first = entries_without_tail(bytes, self.layout).next().and_then(Result::ok);
        // Old code looks for a zero behind the name, too.
        let is_dot = first.is_some_and(|entry| entry.name == b"." && entry.inode == Some(own))
            && bytes.get(9) == Some(&0);
        let first_len = first.map(|entry| entry.len);
        let mut changed = false;
        if !is_dot {
            let repair = "`.` is put back";
            let found = first.map_or("nothing that can be read".into(), |entry| {
                format!("`{}` leading to inode {}", entry.name.escape_ascii(), raw_inode(entry.inode))
            });
            if !reporter.found(&DIRECTORY_DOT, || Finding::new(self.place(region), found, repair)) {
                self.whole.stays = true;
                return self.dotdot(bytes, first_len.unwrap_or(12), region, reporter);
            }
            let len = first_len.unwrap_or_else(|| self.next_dotdot(bytes));
            self.overwritten(first, b".");
            self.put_dot(bytes, len);
            changed = true;
        } else if let Some(len) = first_len.filter(|len| *len > 24) {
            let found =
                || Finding::new(self.place(region), format!("{len} bytes"), "the entry is made short");
            if reporter.found(&DIRECTORY_DOT_LENGTH, found) {
                self.put_dot(bytes, len);
                changed = true;
            }
        }
        let dot_len = entries_without_tail(bytes, self.layout).next().and_then(Result::ok);
        self.dotdot(bytes, dot_len.map_or(12, |entry| entry.len), region, reporter) || changed
    }

    /// Says what is lost where `.` or `..` is put over an entry, or over what can't be read.
    fn overwritten(&self, entry: Option<dirent::Entry<'_>>, dots: &[u8]) {
        match entry {
            None => self.facts.names_lost(),
            Some(entry) if entry.name == dots => {}
            Some(entry) => entry.inode.into_iter().for_each(|inode| self.facts.name_lost_of(inode)),
        }
    }

    /// Where `..` probably begins: behind a `.` of any length that is sound, or where a chain does.
    fn next_dotdot(&self, bytes: &[u8]) -> usize {
        let second = entries_without_tail(bytes.get(12..).unwrap_or_default(), self.layout).next();
        match second {
            Some(Ok(_)) => 12,
            _ => self.next_sound(bytes, 0),
        }
    }

    /// Writes `.` over an entry of `len` bytes, and an unused entry behind it if there is room and nothing
    /// that is `..` already.
    fn put_dot(&self, bytes: &mut [u8], len: usize) {
        let type_code = if self.layout.file_types { FileType::Directory.entry_code() } else { 0 };
        let own_len = if len >= 24 { 12 } else { len };
        put(bytes, 0, &self.inode.number().get().to_le_bytes());
        self.put_len(bytes, 0, own_len);
        put(bytes, 6, &[1, type_code, b'.', 0, 0, 0]);
        let second = entries_without_tail(bytes.get(12..len).unwrap_or_default(), self.layout).next();
        let is_dotdot = matches!(second, Some(Ok(entry)) if entry.name == b"..");
        if len >= 24 && !is_dotdot {
            bytes.get_mut(12..24).unwrap_or_default().fill(0);
            self.put_len(bytes, 12, len - 12);
        }
    }

    fn dotdot(
        &mut self,
        bytes: &mut [u8],
        at: usize,
        region: &RegionLocation,
        reporter: &mut Reporter<'_, '_>,
    ) -> bool {
        let second = entries_without_tail(bytes.get(at..).unwrap_or_default(), self.layout).next();
        let second = second.and_then(Result::ok);
        if let Some(entry) = second
            && entry.name == b".."
            && entry.inode.is_some()
            && bytes.get(at + 10) == Some(&0)
        {
            self.found.dotdot = entry.inode;
            return false;
        }
        let found = second.map_or("nothing that can be read".into(), |entry| {
            format!("`{}` leading to inode {}", entry.name.escape_ascii(), raw_inode(entry.inode))
        });
        // An entry in place of `.` that was to stay may reach to the end of the block.
        let has_room = bytes.len().saturating_sub(at) >= dirent::MIN_ENTRY_LEN;
        let repair = if has_room { "`..` is put back" } else { "" };
        if !reporter.found(&DIRECTORY_DOTDOT, || Finding::new(self.place(region), found, repair)) {
            self.facts.dotdot_left.insert(u64::from(self.inode.number().index()));
            self.whole.stays = true;
            return false;
        }
        let len = second.map_or_else(|| self.next_sound(bytes, at) - at, |entry| entry.len);
        let type_code = if self.layout.file_types { FileType::Directory.entry_code() } else { 0 };
        self.overwritten(second, b"..");
        self.facts.dotdot_left.remove(u64::from(self.inode.number().index()));
        // The pass over the tree finds the parent.
        put(bytes, at, &InodeNumber::ROOT.get().to_le_bytes());
        self.put_len(bytes, at, len);
        put(bytes, at + 6, &[2, type_code, b'.', b'.', 0, 0]);
        true
    }
}

fn raw_inode(inode: Option<InodeNumber>) -> u32 {
    inode.map_or(0, InodeNumber::get)
}

/// Returns true if the chain of entries from the front has an end of one at `offset`.
pub(super) fn chain_reaches(block: &[u8], layout: Layout, offset: usize) -> bool {
    let mut at = 0;
    while at < offset {
        match entries_without_tail(block.get(at..).unwrap_or_default(), layout).next() {
            Some(Ok(entry)) => at += entry.len,
            Some(Err(dirent::BrokenEntry { rule: EntryRule::NoName { len }, .. })) => at += len,
            _ => return false,
        }
    }
    at == offset
}
