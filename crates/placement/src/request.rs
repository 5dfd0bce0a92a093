//! Plain data in and out of the engines: requests, refusals, contradictions.
//!
//! Owns no state and makes no decision.

use ondisk::units::{Cluster, ClusterRun, Group};

/// Use of clusters; policies may keep the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// Contents of files.
    #[default]
    Data,
    /// Directory blocks, map blocks and other structures.
    Metadata,
}

/// A place in a file that has its place on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its block in the file.
    pub logical: u64,
    /// Its block on the volume, counted from the first of the first group.
    pub disk: u64,
}

/// Knowledge of a file system about the file that a request is for. Policies that follow a kernel ask for it
/// ([`crate::policy::BlockPolicy::wants_file`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Its size in bytes, as programs see it before the request is served.
    pub bytes: u64,
    /// Where ext4 would begin to look: from the nearest mapped block as far as the request lies behind it in the file,
    /// or at the beginning of the file's own part of the volume.
    pub goal: Cluster,
    /// The last mapped block before the request.
    pub before: Option<Mapped>,
    /// The first mapped block behind it.
    pub behind: Option<Mapped>,
    /// The space is reserved by a call, and the call says how much.
    pub reserved: bool,
    /// A program has it open.
    pub is_open: bool,
}

/// A request for one run of clusters. Lengths are counted in clusters.
///
/// The grant has `want` clusters whenever a free run of that length is known; otherwise it is the
/// longest the policy can find, never under `min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the run would best begin: the cluster after the file's last one, or the start of the
    /// directory's area. A goal past the end of the volume counts as 0.
    pub goal: Cluster,
    /// Shortest run that is of any use.
    pub min: u32,
    /// Length that is wanted.
    pub want: u32,
    /// Use of the clusters.
    pub kind: Kind,
    /// Loading in order, as an image builder does: the run is taken at the goal if it is long
    /// enough there, otherwise it is the first long enough after the goal. Gaps stay for later.
    pub stream: bool,
    /// Key of the file (its inode number); 0 when there is none yet.
    pub owner: u64,
    /// Position in the file of the first cluster that is asked for, in clusters.
    pub offset: u64,
    /// The goal is the cluster behind the one that is mapped at `offset - 1`.
    pub extends: bool,
    /// Clusters of the file as far as known, at least `offset + want`.
    pub size: u64,
    /// The file is still open for writing and may well grow behind this request. False when its
    /// final size is known, as for a delayed write after the last close.
    pub growing: bool,
    /// Key of the directory whose files should lie together (its inode number); 0 for none.
    pub directory: u64,
    /// Key of the process that begins a part of the file here, with nothing of it before: the goal is no more than the
    /// start of a group. 0 where none is known or the part goes on behind another.
    pub process: u32,
    /// More of the file, where the policy wants it and a file system stands behind the request.
    pub file: Option<FileState>,
    /// Number of times that [`Refusal::NeedBitmap`] was already answered for this request. The engine stops
    /// asking for bitmaps merely to find something better once this reaches
    /// [`Request::PATIENCE`].
    pub attempt: u32,
}

impl Request {
    /// Bitmaps the engine asks for, per request, in search of a better run.
    pub const PATIENCE: u32 = 4;

    /// A request for exactly `count` data clusters near `goal`, content with fewer.
    #[must_use]
    pub fn data(goal: Cluster, count: u32) -> Self {
        Request {
            goal,
            min: 1,
            want: count,
            kind: Kind::Data,
            stream: false,
            owner: 0,
            offset: 0,
            extends: false,
            size: u64::from(count),
            growing: false,
            directory: 0,
            process: 0,
            file: None,
            attempt: 0,
        }
    }

    /// Makes a request for metadata.
    #[must_use]
    pub fn metadata(goal: Cluster, count: u32) -> Self {
        Request { kind: Kind::Metadata, ..Self::data(goal, count) }
    }

    /// Cuts the request to at most `count` clusters, which are at least its minimum.
    #[must_use]
    pub(crate) fn at_most(mut self, count: u32) -> Self {
        self.want = self.want.min(count);
        self
    }

    /// Puts the lengths in order and the goal inside the volume.
    #[must_use]
    pub(crate) fn ordered(mut self, clusters: u64) -> Self {
        self.want = self.want.max(1);
        self.min = self.min.clamp(1, self.want);
        if self.goal.0 >= clusters {
            self.goal = Cluster(0);
        }
        self
    }
}

/// Reason for which nothing was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No free run of the minimum length exists.
    #[error("no free run of the wanted minimum length")]
    NoSpace,
    /// The bitmap of this group must be read and given to `load_group`; then the caller asks again.
    #[error("the bitmap of group {0} has to be loaded first")]
    NeedBitmap(Group),
}

/// Reason for which clusters or inodes can't be given back or taken by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The bitmap of this group must be loaded first.
    #[error("the bitmap of group {0} has to be loaded first")]
    NeedBitmap(Group),
    /// A part of the run is not in the state the caller believes: taking what is used, or freeing
    /// what is free. Nothing was changed.
    #[error("clusters {start}+{count} are not all {expected}", start = .run.start, count = .run.count)]
    Mismatch {
        /// The run that was named.
        run: ClusterRun,
        /// The state it should have had: "free" or "used".
        expected: &'static str,
    },
    /// The run does not lie in the volume.
    #[error("clusters {start}+{count} are not in the volume", start = .0.start, count = .0.count)]
    Outside(ClusterRun),
    /// The inode does not lie in the volume, or is not in the state the caller believes.
    #[error("inode index {index} is not {expected}")]
    Inode {
        /// The inode, counted from 0.
        index: u32,
        /// The state it should have had.
        expected: &'static str,
    },
}

/// Statements about the volume that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// The geometry is impossible.
    #[error("impossible layout: {0}")]
    Layout(&'static str),
    /// A group past the last one was named.
    #[error("group {0} does not exist")]
    NoSuchGroup(Group),
    /// More free clusters or inodes than the group has.
    #[error("group {group} claims {free} free of {size}")]
    TooManyFree {
        /// The group.
        group: Group,
        /// Free count of its descriptor.
        free: u32,
        /// Clusters that it has.
        size: u32,
    },
    /// The bitmap is shorter than the group.
    #[error("the bitmap of group {group} has {bytes} bytes, {needed} are needed")]
    ShortBitmap {
        /// The group.
        group: Group,
        /// Bytes given.
        bytes: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Bitmap and descriptor disagree. The group is out of service: nothing in it is allocated or
    /// freed, and its clusters count as used.
    #[error("group {group}: the bitmap shows {counted} free, the descriptor {described}")]
    FreeCount {
        /// The group.
        group: Group,
        /// Counted in the bitmap.
        counted: u32,
        /// Stated by the descriptor.
        described: u32,
    },
    /// A used run of the description lies outside its group.
    #[error("group {group}: a used run lies outside the group")]
    UsedOutside {
        /// The group.
        group: Group,
    },
}
