//! Acts: kinds of system calls for which a piece of work stands. The kernel may refuse each of them to an actor at a place.
//!
//! Owns: the kinds of acts, and sets of them. Excludes how they are proved (`control`), and rights by owner and mode
//! ([`platfs::rights`]): those are judged for each file, while rules about paths (Landlock, views for reading only) hold for
//! all that is below a directory.

/// A kind of system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Opening a file to read it.
    ReadFile,
    /// Listing a directory.
    List,
    /// Opening a file to write to it.
    WriteFile,
    /// Making a regular file.
    MakeFile,
    /// Making a directory.
    MakeDirectory,
    /// Making a symbolic link.
    MakeSymlink,
    /// Making a named pipe.
    MakeFifo,
    /// Making a socket.
    MakeSocket,
    /// Making a character device.
    MakeCharDevice,
    /// Making a block device.
    MakeBlockDevice,
    /// Giving a file a name in another directory.
    Link,
    /// Setting the set-user-id and set-group-id bits.
    SetId,
    /// Removing what is no directory.
    RemoveFile,
    /// Removing a directory.
    RemoveDirectory,
}

impl Act {
    /// All of them. Those that take something away come last.
    pub const ALL: [Act; 14] = [
        Act::ReadFile,
        Act::List,
        Act::WriteFile,
        Act::MakeFile,
        Act::MakeDirectory,
        Act::MakeSymlink,
        Act::MakeFifo,
        Act::MakeSocket,
        Act::MakeCharDevice,
        Act::MakeBlockDevice,
        Act::Link,
        Act::SetId,
        Act::RemoveFile,
        Act::RemoveDirectory,
    ];
}

/// A set of acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acts(u16);

impl Acts {
    /// No act.
    pub const NONE: Acts = Acts(0);
    /// All acts.
    pub const ALL: Acts = Acts::of(&Act::ALL);
    /// Those that only look.
    pub const READING: Acts = Acts::of(&[Act::ReadFile, Act::List]);
    /// Those that add.
    pub const MAKING: Acts = Acts(Acts::ALL.0 & !Acts::READING.0 & !Acts::REMOVING.0);
    /// Those that take something away.
    pub const REMOVING: Acts = Acts::of(&[Act::RemoveFile, Act::RemoveDirectory]);

    /// These acts.
    #[must_use]
    pub const fn of(acts: &[Act]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < acts.len() {
            bits |= 1 << acts[at] as u16;
            at += 1;
        }
        Acts(bits)
    }

    /// Tells if an act is among them.
    #[must_use]
    pub fn has(self, act: Act) -> bool {
        self.has_all(Acts::of(&[act]))
    }

    /// Tells if all of these are among them.
    #[must_use]
    pub fn has_all(self, others: Acts) -> bool {
        self.0 & others.0 == others.0
    }

    /// These and others.
    #[must_use]
    pub const fn and(self, others: Acts) -> Self {
        Acts(self.0 | others.0)
    }

    /// Those that are among others, too.
    #[must_use]
    pub const fn only(self, others: Acts) -> Self {
        Acts(self.0 & others.0)
    }

    /// Each of them, in the order of [`Act::ALL`].
    pub fn each(self) -> impl Iterator<Item = Act> {
        Act::ALL.into_iter().filter(move |act| self.has(*act))
    }
}
