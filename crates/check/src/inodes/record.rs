//! The examination of one inode: which rules are asked in which order.

use std::io;

use ondisk::inode::{FileType, Inode, InodeFlags};
use ondisk::units::{Block, InodeNumber};

use super::Pass;
use super::attributes::AttributeClaims;
use super::special::Role;
use crate::issue::Location;
use crate::kinds::Kind;
use crate::kinds::inodes::{INODE_CHECKSUM, INODE_DELETION_TIME};
use crate::kinds::opening::ORPHANS;
use crate::reporter::{Finding, Reporter};
use crate::subject::Subject;
use platfs_device::Device;

/// Blocks that an inode claims.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) start: Block,
    pub(super) count: u64,
    /// True if these are nodes of the map.
    pub(super) node: bool,
}

/// An inode that is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) file_type: Option<FileType>,
    pub(super) fragmented: bool,
}

/// Memory of one examination, used again for the next, and what it found.
pub(super) struct Scratch {
    pub(super) inode: Inode,
    pub(super) claims: Vec<Claim>,
    /// Set where the inode is in use.
    pub(super) used: Option<Used>,
    /// Attributes that other inodes know of too.
    pub(super) held: AttributeClaims,
    /// A block for each level of a map.
    pub(super) nodes: Vec<Vec<u8>>,
    /// Parts of an attribute region that are taken.
    pub(super) spans: Vec<(usize, usize)>,
}

impl Scratch {
    pub(super) fn new(subject: &Subject) -> Self {
        let blank = Inode::blank(InodeNumber::ROOT, subject.geometry.inode_size);
        Scratch {
            inode: blank,
            claims: Vec::new(),
            used: None,
            held: AttributeClaims::default(),
            nodes: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Begins with another inode.
    pub(super) fn refill(&mut self, number: InodeNumber, record: &[u8]) {
        self.inode.refill(number, record);
        self.claims.clear();
        self.used = None;
        self.held.clear();
    }

    /// Begins with an inode as it is now at a byte offset of the volume.
    pub(super) fn load(&mut self, subject: &Subject, number: InodeNumber, offset: u64) -> io::Result<()> {
        let mut record = vec![0; usize::from(subject.geometry.inode_size)];
        subject.device.read_at(offset, &mut record)?;
        self.refill(number, &record);
        Ok(())
    }
}

/// One inode under examination.
pub(super) struct Examination<'x, 'p, 'r, 's> {
    pub(super) pass: &'x Pass<'p>,
    pub(super) scratch: &'x mut Scratch,
    pub(super) reporter: &'x mut Reporter<'r, 's>,
    /// True if the record was mended in memory.
    pub(super) changed: bool,
    /// True if the map or the attributes were mended, so that counts follow without an issue of their own.
    pub(super) cut: bool,
    /// True if the inode was given up.
    pub(super) cleared: bool,
    /// Clusters of attribute values in other inodes, which are charged to this one.
    pub(super) charged: u64,
    /// The first failure to stage something.
    pub(super) failed: Option<io::Error>,
}

impl<'x, 'p, 'r, 's> Examination<'x, 'p, 'r, 's> {
    pub(super) fn new(
        pass: &'x Pass<'p>,
        scratch: &'x mut Scratch,
        reporter: &'x mut Reporter<'r, 's>,
    ) -> Self {
        Examination {
            pass,
            scratch,
            reporter,
            changed: false,
            cut: false,
            cleared: false,
            charged: 0,
            failed: None,
        }
    }

    pub(super) fn subject(&self) -> &'p Subject {
        self.pass.subject
    }

    pub(super) fn inode(&self) -> &Inode {
        &self.scratch.inode
    }

    pub(super) fn place(&self) -> Location {
        Location::inode(self.scratch.inode.number())
    }

    pub(super) fn has(&self, flags: InodeFlags) -> bool {
        self.inode().flags().intersects(flags)
    }

    /// Reports something about the inode; returns true if it is to be mended, which then counts as a change
    /// of the record.
    pub(super) fn tell(&mut self, kind: &'static Kind, words: impl FnOnce(&Inode) -> Finding) -> bool {
        let inode = &self.scratch.inode;
        let mends = self.reporter.found(kind, || words(inode).at(Location::inode(inode.number())));
        self.changed |= mends;
        mends
    }

    /// Takes flags away.
    pub(super) fn drop_flags(&mut self, flags: InodeFlags) {
        let rest = self.inode().flags() - flags;
        self.scratch.inode.set_flags(rest);
        self.changed = true;
    }

    /// Returns true if nothing more need be looked at: a silent reporter has found something, or the inode was
    /// given up.
    pub(super) fn is_over(&self) -> bool {
        self.cleared || self.reporter.any()
    }

    /// Asks every rule.
    pub(super) fn run(&mut self) {
        let right = self.subject().sealer.inode_is_right(self.inode());
        if !right && self.reporter.is_silent() {
            self.tell(&INODE_CHECKSUM, |_| Finding::default());
            return;
        }
        if !right && self.is_garbage() {
            return;
        }
        if self.reporter.is_silent() && self.subject().cut_wanted.contains(&self.inode().number()) {
            // What is behind its end is taken aloud.
            self.tell(&ORPHANS, |_| Finding::default());
            return;
        }
        self.ask();
        if !right && !self.changed && !self.cleared {
            self.tell(&INODE_CHECKSUM, |_| {
                Finding::unplaced(
                    "the checksum is wrong, all that can be judged is right",
                    "the checksum is recomputed",
                )
            });
        }
    }

    fn ask(&mut self) {
        let number = self.inode().number();
        let role = self.pass.special.role(number);
        self.low_deletion_time();
        if self.inode().links() == 0 && !self.pass.special.is_used_without_links(number) {
            return self.unused();
        }
        self.flags_and_features();
        if self.is_over() || self.special(role) || self.is_over() {
            return;
        }
        if self.inode().links() == 0 {
            return;
        }
        self.deletion_time();
        self.fields();
        if self.is_over() {
            return;
        }
        self.extra_fields();
        self.in_inode_attributes();
        self.times();
        self.encryption();
        self.file_type();
        if self.is_over() {
            return;
        }
        self.contents();
    }

    /// Deletion times that are numbers of inodes: a list of orphans that was lost.
    fn low_deletion_time(&mut self) {
        let time = self.inode().raw().i_dtime.get();
        if time == 0 || time >= self.pass.special.low_time {
            return;
        }
        if self.tell(&INODE_DELETION_TIME, |inode| {
            Finding::unplaced(
                format!("the deletion time is {time}, a number of an inode: it was on a list of orphans"),
                if inode.links() == 0 { "the time becomes that of now" } else { "the time is cleared" },
            )
        }) {
            let time = if self.inode().links() == 0 { self.subject().deletion_time() } else { 0 };
            self.scratch.inode.raw_mut().i_dtime.set(time);
        }
    }

    /// An inode without links is free; it should say when it became so.
    fn unused(&mut self) {
        let raw = self.inode().raw();
        if raw.i_dtime.get() == 0
            && raw.i_mode.get() != 0
            && self.tell(&INODE_DELETION_TIME, |_| {
                Finding::unplaced("a deleted inode without a deletion time", "the time becomes that of now")
            })
        {
            let now = self.subject().deletion_time();
            self.scratch.inode.raw_mut().i_dtime.set(now);
        }
    }

    /// An inode in use was not deleted.
    pub(super) fn deletion_time(&mut self) {
        let time = self.inode().raw().i_dtime.get();
        if time != 0
            && self.tell(&INODE_DELETION_TIME, |_| {
                Finding::unplaced(format!("has links and a deletion time, {time}"), "the time is cleared")
            })
        {
            self.scratch.inode.raw_mut().i_dtime.set(0);
        }
    }

    /// Counts and sizes follow from what was mended, blocks may be free now.
    pub(super) fn cut(&mut self) {
        (self.changed, self.cut) = (true, true);
        self.pass.facts.gave_up();
    }

    /// The inode is no longer what names and bitmaps take it for.
    pub(super) fn altered(&self) {
        self.pass.facts.altered.insert(u64::from(self.inode().number().index()));
    }

    /// Gives the inode up: what it held is free, names that lead to it go.
    pub(super) fn clear(&mut self) {
        let now = self.subject().deletion_time();
        let reserved = !self.pass.special.is_ordinary(self.inode().number());
        if self.inode().file_type().is_none_or(|file_type| file_type == FileType::Directory) {
            self.pass.facts.names_lost();
        }
        let inode = &mut self.scratch.inode;
        let raw = inode.raw_mut();
        raw.i_flags.set(0);
        raw.i_links_count.set(0);
        raw.i_dtime.set(now);
        (self.changed, self.cleared) = (true, true);
        self.scratch.used = None;
        self.scratch.held.clear();
        self.scratch.claims.clear();
        if reserved && self.inode().number() != InodeNumber::ROOT {
            // Reserved ones are in use, whatever they hold: nothing now.
            self.scratch.inode.bytes_mut().fill(0);
            self.use_as(None, false);
        }
        self.altered();
        self.pass.facts.gave_up();
    }

    /// Stages a block that was mended.
    pub(super) fn stage(&mut self, block: Block, bytes: &[u8]) {
        if let Err(problem) = self.pass.subject.write(block, bytes) {
            self.failed.get_or_insert(problem);
        }
    }

    /// Stages the record where it was mended.
    pub(super) fn mend(&mut self) -> io::Result<()> {
        if let Some(problem) = self.failed.take() {
            return Err(problem);
        }
        if self.changed { self.pass.subject.write_inode(&mut self.scratch.inode) } else { Ok(()) }
    }

    /// Reserved inodes, hidden files and the root; returns true if nothing more is to be asked.
    fn special(&mut self, role: Role) -> bool {
        match role {
            Role::Ordinary => false,
            Role::Root => {
                self.root_type();
                false
            }
            Role::Vacant => {
                self.vacant();
                self.use_as(None, false);
                false
            }
            Role::BadBlocks => {
                self.bad_blocks();
                true
            }
            Role::Hidden | Role::Reserved | Role::Resize => {
                self.reserved_type(role);
                self.extra_fields();
                self.contents();
                true
            }
        }
    }

    pub(super) fn use_as(&mut self, file_type: Option<FileType>, fragmented: bool) {
        self.scratch.used = Some(Used { file_type, fragmented });
    }
}
