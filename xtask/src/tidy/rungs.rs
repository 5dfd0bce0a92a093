//! The tables of the ladder: for each crate its rungs from the top, one line each, and what is not in order yet.
//!
//! A module names modules of lower lines only. Modules of one line don't name each other, but for those of a listed knot.
//! `cargo xtask figures` prints the rungs as the code has them, to be pasted here. Knots and numbers only shrink: a new
//! entry or a larger number is a change of the architecture, and needs more than a line here.

/// What is true of the modules of a crate.
pub(super) struct Ladder {
    /// The crate's directory.
    pub(super) path: &'static str,
    /// Rungs from the top, one line each.
    pub(super) rungs: &'static str,
    /// Modules that reach each other, and why they still do.
    pub(super) knots: &'static [(&'static str, &'static str)],
    /// Most functions with more than five parameters.
    pub(super) long_lists: usize,
}

/// Most modules in all knots together.
pub(super) const IN_KNOTS: usize = 34;

/// The ladder of each crate.
pub(super) const LADDERS: &[Ladder] = &[
    Ladder {
        path: "crates/ondisk",
        rungs: "
            htree journal
            dirent orphan_file
            geometry seal xattr
            inode mmp superblock
            acl block_map corrupt extent group
            dirhash features quota units
        ",
        knots: &[],
        long_lists: 1,
    },
    Ladder {
        path: "crates/placement",
        rungs: "
            inode
            engine residency
            policy
            view
            index promise trace
            events layout quarantine stats
            cluster request sync
        ",
        knots: &[(
            "engine residency",
            "a grant holds what the engine shares, and dropping it may need a bitmap that is not in memory",
        )],
        long_lists: 7,
    },
    Ladder {
        path: "crates/fs",
        rungs: "
            front
            quota steady trim
            cache check dir file inline inode journal map ops phased space sync txn volume xattr
            admission
            dirty format mkfs options zone
            bits device error handles versions
        ",
        knots: &[
            (
                "format zone",
                "the zones of a volume are computed from its format, which asks them whether a block is its own",
            ),
            (
                "cache check dir file inline inode journal map ops phased space sync txn volume xattr",
                "issue 17: an update, its order and the cache name each other until `Tx` and `Order` part them",
            ),
        ],
        long_lists: 52,
    },
    Ladder {
        path: "crates/fuse",
        rungs: "
            session
            by_ring
            by_device by_fuser
            dispatch
            wire
            attach service
        ",
        knots: &[],
        long_lists: 23,
    },
    Ladder {
        path: "crates/chart",
        rungs: "
            page svg
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/cli",
        rungs: "
            commands
            format mount
            build writing
            check export source
            reading
            archive door image usage
            console signals size text
        ",
        knots: &[(
            "door image",
            "the door opens what the names of an image lead to, and an image is opened by the door only",
        )],
        long_lists: 12,
    },
    Ladder {
        path: "crates/crash",
        rungs: "
            faults
            campaign
            ace calls deep e2fsck judge oracle random reclaim record states workload
            model order
        ",
        knots: &[(
            "ace calls deep e2fsck judge oracle random reclaim record states workload",
            "the vocabulary of a run (calls, promises, names) lies in the modules that use it",
        )],
        long_lists: 0,
    },
    Ladder {
        path: "crates/lab",
        rungs: "
            keeping peers report
            founding matrix plot replay scenario
            layout series work
            measure workload
            counters crashes jobs system verdict volume
            drive numbers output results table tar tree
        ",
        knots: &[("replay scenario", "a trace is replayed as a scenario, and scenarios record traces")],
        long_lists: 2,
    },
    Ladder {
        path: "crates/testkit",
        rungs: "
            images unclean view
            browser fsck mount odd
            many mapped random scratch snapshot tool
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "xtask",
        rungs: "
            api tidy
        ",
        knots: &[],
        long_lists: 0,
    },
];
