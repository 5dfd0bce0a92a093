//! The tables of the ladder: for each crate its rungs from the top, one line each, and what is not in order yet.
//!
//! A module names modules of lower lines only. Modules of one line don't name each other, but for those of a listed knot.
//! `cargo xtask figures` prints the rungs as the code has them, to be pasted here. Knots and numbers only shrink: a new
//! entry or a larger number is a change of the architecture, and needs more than a line here.

/// Rules for the modules of a crate.
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

/// The ladder of each crate.
pub(super) const LADDERS: &[Ladder] = &[
    Ladder {
        path: "crates/ondisk",
        rungs: "
            htree journal unseal
            dirent orphan_file
            geometry seal xattr
            file_size inode mmp superblock
            acl block_map corrupt extent group
            encryption
            dirhash features invariant quota units
        ",
        knots: &[],
        long_lists: 1,
    },
    Ladder {
        path: "crates/host",
        rungs: "
            output
            unfinished walk
            descent reach system tree
            directory
            attributes path
            contents errno facts random
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/device",
        rungs: "
            journal mmp
            groups
            lookalike search
            superblock
            error file map memory overlay partitions record snapshot window write_behind
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/check",
        rungs: "
            shared
            glance inodes
            connect links opening orphans quota space
            descriptors lost_found named paths resize
            directories fields log places protection superblock
            bitmap contents facts reporter usual write_safety
            parts
            apply issue policies subject
            kinds paged parallel plausible seed staged
            copies slices
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/forensics",
        rungs: "
            removed
            facts history metadata used
            htree log names owners
            raw_image words
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/placement",
        rungs: "
            parameters
            closing inode residency
            engine
            bound
            policy
            view
            index promise trace
            events layout orphaned_grants shrink_reservation stats
            timing
            request sync
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/fs",
        rungs: "
            api
            growth shrink
            sizes
            check mkfs opening
            journal placing quota
            admission ops trim
            dir xattr
            file
            volume
            usage
            inline inode map
            reclaiming tx
            space
            txn
            order session
            crypt
            cache dirty format handles options
            keys numbers write_batch
            charges
            bits ciphers context hashing ranges role versions zone
            bytes error locks versioned
        ",
        knots: &[],
        long_lists: 3,
    },
    Ladder {
        path: "crates/fuse",
        rungs: "
            session
            by_ring
            by_device
            dispatch idle_scheduling notify
            flush_pages serving
            wire
            ask attach class server_threads service
        ",
        knots: &[],
        long_lists: 3,
    },
    Ladder {
        path: "crates/chart",
        rungs: "
            page svg
            colours
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/image",
        rungs: "
            builder export
            source
            disk
            archive named output
            clock size text watch
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/reshape",
        rungs: "
            tune
            resize
            draft
            error
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/store",
        rungs: "
            compacting
            cleaning
            census volume
            pushing
            forking
            leases survey
            marks reading
            known renewal replay
            ahead
            view
            store
            address cache keys
            objects
            local
            extents fetching
            format
            together
            error holder masking pieces random
        ",
        knots: &[],
        long_lists: 1,
    },
    Ladder {
        path: "crates/open",
        rungs: "
            device
            door
            image
            marks precheck stores
            hearer keys names
            explain kept locks memory paths process stores_left_out undo
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/serve",
        rungs: "
            live
            mount
            control
            bulk
            free_runs nbd refusal sandbox sizes
        ",
        knots: &[],
        long_lists: 4,
    },
    Ladder {
        path: "crates/cli",
        rungs: "
            commands
            reshaping
            check manual owner writing
            format helper hints larger reading signals
            clock keys progress usage
            console daemon panics size text
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "research/crash",
        rungs: "
            faults
            campaign
            runs
            judge reclaim
            ace deep oracle random record
            whole
            calls e2fsck states
            run
            workload
            model order
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "research/lab",
        rungs: "
            fidelity
            bench matrix peers report run
            experiment replay work
            crashes layout plan plot workload
            counters jobs measure system table
            results
            better digest drive file numbers output summary tape tar tree
            traffic
        ",
        knots: &[],
        long_lists: 0,
    },
    Ladder {
        path: "crates/testkit",
        rungs: "
            images unclean view
            browser fsck mount odd
            again clock many mapped random scratch snapshot sparse tool
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
