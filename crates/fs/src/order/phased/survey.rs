//! Survey of a volume after a crash, while it is in use: names of inodes, and which are directories.
//!
//! All inodes that were marked as in use at opening are looked at in the order of their numbers, each as of one moment;
//! what a directory holds belongs to the directory. Behind the place that the survey has come to, updates report what
//! they change; before it they need not, since it will be seen. So what is counted is exact for the part that was
//! surveyed, at any time; and for the volume, in the end (I33). Inodes that came into use since count as surveyed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ondisk::invariant_or;
use ondisk::units::{InodeNumber, saturated};

use crate::bits::Bits;

/// Fields of an inode's record that the survey counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) is_directory: bool,
    /// The block of attributes, or 0.
    pub(crate) attributes: u64,
}

/// Something that an update changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkDelta {
    /// A name in a directory appears or vanishes.
    Name { directory: InodeNumber, inode: InodeNumber, appears: bool },
    /// A record changes.
    Record { inode: InodeNumber, was: Facts, is: Facts },
}

/// State of an inode at one moment.
#[derive(Default)]
pub(crate) struct InodeSnapshot {
    pub(crate) facts: Facts,
    pub(crate) links: u16,
    /// Users that the block of attributes counts.
    pub(crate) attribute_users: u32,
    /// Targets of the names of a directory, without its two dots, and true for directories.
    pub(crate) names: Vec<(InodeNumber, bool)>,
    /// Where the `..` of a directory leads.
    pub(crate) parent: Option<InodeNumber>,
}

/// Counts of the survey so far.
pub(crate) struct Survey {
    /// Marked as in use at opening.
    inodes: Bits,
    per_group: u32,
    /// Index of the first inode that was not looked at.
    reached: u64,
    /// Names of inodes, by group; of groups without any in use at opening nothing.
    names: Vec<Vec<u16>>,
    /// Directories in each group.
    directories: Vec<u32>,
    /// Users of blocks of attributes that count several.
    attributes: HashMap<u64, u32>,
    /// Where directories have their name; one of them.
    parents: HashMap<InodeNumber, InodeNumber>,
    /// Directories that have several names, with all that hold them.
    pub(crate) twice: BTreeMap<InodeNumber, BTreeSet<InodeNumber>>,
    /// Directories whose `..` does not lead where a name of them was seen before.
    pub(crate) astray: BTreeSet<InodeNumber>,
    /// Files with several links.
    pub(crate) linked: BTreeSet<InodeNumber>,
    /// Directories with more links than they need, and how many.
    pub(crate) heavy: Vec<(InodeNumber, u16)>,
}

impl Survey {
    /// Of the inodes that were marked as in use at opening.
    pub(crate) fn new(inodes: Bits, groups: u32, per_group: u32) -> Self {
        let mut names = vec![Vec::new(); groups as usize];
        let mut next = inodes.next(0);
        while let Some(index) = next {
            let group = index / u64::from(per_group);
            let page = usize::try_from(group).ok().and_then(|group| names.get_mut(group));
            *invariant_or!(page, break, "an inode lies in a group") = vec![0; per_group as usize];
            next = inodes.next((group + 1) * u64::from(per_group));
        }
        Survey {
            inodes,
            per_group,
            reached: 0,
            names,
            directories: vec![0; groups as usize],
            attributes: HashMap::new(),
            parents: HashMap::new(),
            twice: BTreeMap::new(),
            astray: BTreeSet::new(),
            linked: BTreeSet::new(),
            heavy: Vec::new(),
        }
    }

    /// How many inodes were marked at opening.
    pub(crate) fn total(&self) -> u64 {
        self.inodes.count()
    }

    /// The first inode from an index on that was marked as in use at opening.
    pub(crate) fn next(&self, from: u64) -> Option<InodeNumber> {
        let index = u32::try_from(self.inodes.next(from)?).ok()?;
        InodeNumber::new(index.checked_add(1)?)
    }

    /// True if an inode was marked as in use at opening.
    pub(crate) fn knows(&self, number: InodeNumber) -> bool {
        self.inodes.has(u64::from(number.index()))
    }

    fn is_counted(&self, number: InodeNumber) -> bool {
        u64::from(number.index()) < self.reached || !self.knows(number)
    }

    fn page_index(&self, number: InodeNumber) -> (usize, usize) {
        let index = number.index();
        ((index / self.per_group) as usize, (index % self.per_group) as usize)
    }

    /// Names of an inode that were counted.
    pub(crate) fn names(&self, number: InodeNumber) -> u16 {
        let (group, at) = self.page_index(number);
        self.names.get(group).and_then(|page| page.get(at)).copied().unwrap_or(0)
    }

    fn count_name(&mut self, number: InodeNumber, appears: bool) {
        let (group, at) = self.page_index(number);
        // A group without any inode in use at opening has no page: nothing of it can be left over.
        if let Some(names) = self.names.get_mut(group).and_then(|page| page.get_mut(at)) {
            *names = if appears { names.saturating_add(1) } else { names.saturating_sub(1) };
        }
    }

    fn count_directory(&mut self, number: InodeNumber, appears: bool) {
        let (group, _) = self.page_index(number);
        if let Some(count) = self.directories.get_mut(group) {
            *count = if appears { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
    }

    /// Directories of a group that were counted.
    pub(crate) fn directories_of(&self, group: u32) -> u32 {
        self.directories.get(group as usize).copied().unwrap_or(0)
    }

    /// Blocks of attributes that counted several users.
    pub(crate) fn attributes(&self) -> BTreeSet<u64> {
        self.attributes.keys().copied().collect()
    }

    /// Users of such a block that were found.
    pub(crate) fn users_of(&self, block: u64) -> u32 {
        self.attributes.get(&block).copied().unwrap_or(0)
    }

    /// Where a directory has its name.
    pub(crate) fn parent(&self, number: InodeNumber) -> Option<InodeNumber> {
        self.parents.get(&number).copied()
    }

    /// Takes in what an update changes.
    pub(crate) fn take_in(&mut self, delta: LinkDelta) {
        match delta {
            LinkDelta::Name { directory, inode, appears } if self.is_counted(directory) => {
                self.count_name(inode, appears);
            }
            LinkDelta::Record { inode, was, is } if self.is_counted(inode) => {
                if was.is_directory != is.is_directory {
                    self.count_directory(inode, is.is_directory);
                }
                if was.attributes != is.attributes
                    && let Some(users) = self.attributes.get_mut(&was.attributes)
                {
                    // With soft updates none comes to share a block.
                    *users = users.saturating_sub(1);
                }
            }
            _ => {}
        }
    }

    /// Takes in what was seen of an inode, which is surveyed from now on.
    pub(crate) fn count(&mut self, number: InodeNumber, snapshot: &InodeSnapshot) {
        self.reached = u64::from(number.index()) + 1;
        let (facts, users) = (snapshot.facts, snapshot.attribute_users);
        if users > 1 || self.attributes.contains_key(&facts.attributes) {
            *self.attributes.entry(facts.attributes).or_default() += 1;
        }
        if !facts.is_directory {
            if snapshot.links > 1 {
                self.linked.insert(number);
            }
            snapshot.names.iter().for_each(|(inode, _)| self.count_name(*inode, true));
            return;
        }
        self.count_directory(number, true);
        let mut below = BTreeSet::new();
        for (inode, is_directory) in &snapshot.names {
            self.count_name(*inode, true);
            if *is_directory {
                below.insert(*inode);
                self.note_parent(*inode, number);
            }
        }
        let needed = saturated::<u16>(below.len() + 2);
        if snapshot.links > needed {
            self.heavy.push((number, snapshot.links - needed));
        }
        if snapshot.parent != self.parent(number) {
            self.astray.insert(number);
        }
    }

    fn note_parent(&mut self, number: InodeNumber, parent: InodeNumber) {
        if let Some(before) = self.parents.insert(number, parent) {
            self.twice.entry(number).or_default().extend([before, parent]);
        }
    }
}
