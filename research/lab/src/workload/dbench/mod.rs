//! Clients of a file server, as dbench plays them: each carries out the calls of a load file in its own
//! directory. Any load file of dbench's client format will do; without one, a load of our own making
//! ([`load`]) is the same on every machine.

mod line;
mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Scale;
use crate::system::{Op, Phase, Slot, Stream};
use line::Call;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let clients = scale.number("clients", 8, 2)?;
    let rounds = scale.number("rounds", 4, 2)?;
    let sync = scale.number("fsync", 0, 0)? != 0;
    let text = match scale.settings.get("load") {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?,
        None => load::generate(scale.seed, rounds),
    };
    let calls: Arc<[Call]> = line::parse(&text)?.into();
    let client = |number| -> Stream {
        let calls = Arc::clone(&calls);
        let mut player = Player::new(number, sync);
        // The common directory is there before any client begins.
        Box::new(
            (0..calls.len())
                .flat_map(move |at| calls.get(at).map(|call| player.play(call)).unwrap_or_default()),
        )
    };
    let root: Stream = Box::new(std::iter::once(Op::MakeDirectory("clients".into())));
    Ok(vec![Phase::new("begin", vec![root]), Phase::new("load", (1..=clients).map(client).collect())])
}

/// Files that a client has made and holds open.
struct Player {
    /// Its directory in place of that of the load file's client 1.
    own: String,
    /// `Flush` is an fsync; dbench leaves it out by default.
    sync: bool,
    slots: BTreeMap<u32, Slot>,
    free: Vec<Slot>,
    files: BTreeSet<String>,
    directories: BTreeSet<String>,
}

impl Player {
    fn new(number: u64, sync: bool) -> Self {
        Player {
            own: format!("clients/client{number}"),
            sync,
            slots: BTreeMap::new(),
            free: Vec::new(),
            files: BTreeSet::new(),
            directories: BTreeSet::from(["clients".to_string()]),
        }
    }

    /// A path of the load file: backslashes, and always client 1's.
    fn path(&self, name: &str) -> String {
        let path = name.trim_matches('\\').replace('\\', "/");
        match path.strip_prefix("clients/client1") {
            Some(rest) => format!("{}{rest}", self.own),
            None => path,
        }
    }

    /// The slot of a handle of the load file, taken if it is new.
    fn slot(&mut self, handle: u32) -> Slot {
        let next = Slot::try_from(self.slots.len()).unwrap_or(Slot::MAX);
        let free = &mut self.free;
        *self.slots.entry(handle).or_insert_with(|| free.pop().unwrap_or(next))
    }

    /// The calls of a line. Calls that failed when the load was recorded look for a name, which is all that they cost;
    /// locks and the like cost nothing here.
    fn play(&mut self, call: &Call) -> Vec<Op> {
        match call {
            Call::Look(name) => vec![Op::Look(self.path(name).into())],
            Call::List(name) => {
                let path = self.path(name);
                let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                if self.directories.contains(directory) {
                    vec![Op::List(directory.into())]
                } else {
                    Vec::new()
                }
            }
            Call::MakeDirectory(name) => {
                let path = self.path(name);
                let new = self.directories.insert(path.clone());
                if new { vec![Op::MakeDirectory(path.into())] } else { vec![Op::Look(path.into())] }
            }
            Call::Open { name, handle, create } => {
                let path = self.path(name);
                if self.directories.contains(&path) {
                    return vec![Op::Look(path.into())];
                }
                let create = *create || !self.files.contains(&path);
                self.files.insert(path.clone());
                vec![Op::Open { slot: self.slot(*handle), path: path.into(), create }]
            }
            Call::Remove(name) => {
                let path = self.path(name);
                if self.files.remove(&path) {
                    vec![Op::Remove(path.into())]
                } else {
                    vec![Op::Look(path.into())]
                }
            }
            Call::Rename(from, to) => self.rename(self.path(from), self.path(to)),
            Call::RemoveTree(name) => self.remove_tree(&self.path(name)),
            Call::Nothing => Vec::new(),
            call => self.on_open(call).into_iter().collect(),
        }
    }

    /// Calls on a handle; those on handles of directories, which are not open here, are nothing.
    fn on_open(&mut self, call: &Call) -> Option<Op> {
        Some(match *call {
            Call::Write { handle, offset, len } => Op::Write { slot: *self.slots.get(&handle)?, offset, len },
            Call::Read { handle, offset, len } => Op::Read { slot: *self.slots.get(&handle)?, offset, len },
            Call::Flush { handle } if self.sync => {
                Op::Sync { slot: *self.slots.get(&handle)?, data_only: false }
            }
            Call::Close { handle } => {
                let slot = self.slots.remove(&handle)?;
                self.free.push(slot);
                Op::Close(slot)
            }
            _ => return None,
        })
    }

    fn rename(&mut self, from: String, to: String) -> Vec<Op> {
        if !self.files.remove(&from) {
            return vec![Op::Look(from.into())];
        }
        self.files.insert(to.clone());
        vec![Op::Rename(from.into(), to.into())]
    }

    fn remove_tree(&mut self, root: &str) -> Vec<Op> {
        let below = |path: &String| {
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let files: Vec<_> = self.files.iter().filter(|path| below(path)).cloned().collect();
        // The deepest go first.
        let directories: Vec<_> = self.directories.iter().rev().filter(|path| below(path)).cloned().collect();
        self.files.retain(|path| !below(path));
        self.directories.retain(|path| !below(path));
        let files = files.into_iter().map(|path| Op::Remove(path.into()));
        files.chain(directories.into_iter().map(|path| Op::RemoveDirectory(path.into()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &str) -> Vec<Op> {
        let mut player = Player::new(3, true);
        line::parse(text).unwrap().iter().flat_map(|call| player.play(call)).collect()
    }

    #[test]
    fn lines_become_calls_in_the_client_s_own_directory() {
        let text = "Deltree \"\\clients\\client1\" NT_STATUS_OK\n\
            NTCreateX \"\\clients\\client1\" 0x1 0x2 7 NT_STATUS_OK\nClose 7 NT_STATUS_OK\n\
            NTCreateX \"\\clients\\client1\\a\" 0x40 0x2 8 NT_STATUS_OK\n\
            WriteX 8 65534 1 1 NT_STATUS_OK\nWriteX 8 0 100 60 NT_STATUS_OK\nFlush 8 NT_STATUS_OK\nClose 8 NT_STATUS_OK\n\
            QUERY_PATH_INFORMATION \"\\clients\\client1\\b\" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND\n\
            LockX 8 1 1 NT_STATUS_OK\n\
            Rename \"\\clients\\client1\\a\" \"\\clients\\client1\\b\" NT_STATUS_OK\n\
            FIND_FIRST \"\\clients\\client1\\<.X\" 260 1366 0 NT_STATUS_NO_SUCH_FILE\n\
            Unlink \"\\clients\\client1\\c\" 0x6 NT_STATUS_OK\n\
            Deltree \"\\clients\\client1\" NT_STATUS_OK\n";
        let own = |name: &str| -> Box<str> { format!("clients/client3{name}").into() };
        let expected = [
            Op::MakeDirectory(own("")),
            Op::Open { slot: 0, path: own("/a"), create: true },
            Op::Write { slot: 0, offset: 65534, len: 1 },
            Op::Write { slot: 0, offset: 0, len: 60 },
            Op::Sync { slot: 0, data_only: false },
            Op::Close(0),
            Op::Look(own("/b")),
            Op::Rename(own("/a"), own("/b")),
            Op::List(own("")),
            Op::Look(own("/c")),
            Op::Remove(own("/b")),
            Op::RemoveDirectory(own("")),
        ];
        assert_eq!(calls(text), expected);
    }

    #[test]
    fn a_load_of_our_own_is_whole_and_leaves_nothing() {
        let text = load::generate(5, 2);
        assert_eq!(text, load::generate(5, 2));
        assert_ne!(text, load::generate(6, 2));
        let calls = calls(&text);
        let count = |kind: &str| calls.iter().filter(|call| call.kind() == kind).count();
        assert!(count("write") > 100 && count("read") > 100 && count("rename") > 0);
        assert_eq!(count("open") + count("create"), count("close"));
        assert_eq!(count("mkdir"), count("rmdir"));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        assert!(line::parse("Close x NT_STATUS_OK").unwrap_err().contains("line 1"));
        assert!(
            line::parse("Close 1 NT_STATUS_OK\nFrobnicate 1 NT_STATUS_OK").unwrap_err().contains("line 2")
        );
    }
}
