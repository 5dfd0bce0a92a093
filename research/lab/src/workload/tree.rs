//! `tar xf` and `rm -rf` of a tree: the ports collection of 2001, or what any archive holds.
//!
//! The archive itself is read from elsewhere; what the program computes for each entry is `compute`. Removing goes depth
//! first, in the order in which things were made, and looks at each entry before it removes it, as `rm` does.

use std::path::Path;
use std::sync::Arc;

use super::Scale;
use crate::system::{Op, Phase, Stream};
use crate::tar::{self, Member, MemberKind};
use crate::tree::{self, Entry, Tree};

/// Bytes of one write of `tar`.
const PIECE: u64 = 64 << 10;

pub(super) fn phases(scale: &Scale) -> Result<Vec<Phase>, String> {
    let members = match scale.settings.get("tar") {
        Some(path) => tar::members(Path::new(path))?,
        None => flat(&tree::ports(if scale.quick { 24 } else { 1 })),
    };
    let members = Arc::new(members);
    let compute = scale.number("compute", 0, 0)?;
    let sync = || -> Stream { Box::new(std::iter::once(Op::SyncAll)) };
    Ok(vec![
        Phase::new("untar", vec![unpack(Arc::clone(&members), compute)]),
        Phase::new("sync", vec![sync()]),
        Phase::new("rm", vec![remove(&members)]),
        Phase::new("sync", vec![sync()]),
    ])
}

/// A tree as an archive has it.
fn flat(tree: &Tree) -> Vec<Member> {
    let mut found = Vec::new();
    gather(tree, &tree.name, &mut found);
    found
}

fn gather(tree: &Tree, path: &str, found: &mut Vec<Member>) {
    found.push(Member { path: path.into(), what: MemberKind::Directory });
    for entry in &tree.entries {
        match entry {
            Entry::File(name, len) => {
                found.push(Member { path: format!("{path}/{name}"), what: MemberKind::File(*len) });
            }
            Entry::Directory(below) => gather(below, &format!("{path}/{}", below.name), found),
        }
    }
}

fn unpack(members: Arc<Vec<Member>>, compute: u64) -> Stream {
    let count = members.len();
    let computed = move || (compute > 0).then_some(Op::Think(compute));
    Box::new(
        (0..count)
            .flat_map(move |at| computed().into_iter().chain(members.get(at).map_or_else(Vec::new, make))),
    )
}

/// The calls that make a member.
pub(super) fn make(member: &Member) -> Vec<Op> {
    let path: Box<str> = member.path.as_str().into();
    match &member.what {
        MemberKind::Directory => vec![Op::MakeDirectory(path)],
        MemberKind::Symlink(target) => vec![Op::Symlink { target: target.as_str().into(), path }],
        MemberKind::Link(to) => vec![Op::Link(to.as_str().into(), path)],
        MemberKind::File(len) => {
            let mut calls = vec![Op::Open { slot: 0, path, create: true }];
            let pieces = (0..*len).step_by(usize::try_from(PIECE).unwrap_or(usize::MAX));
            calls.extend(pieces.map(|offset| Op::Write { slot: 0, offset, len: PIECE.min(len - offset) }));
            calls.push(Op::Close(0));
            calls
        }
    }
}

/// The calls that remove what an archive made, in the order of its directories.
pub(super) fn remove(members: &[Member]) -> Stream {
    // Children by parent, in order of making; a stack instead of calls, for trees of any depth.
    let mut children: std::collections::BTreeMap<&str, Vec<&Member>> = std::collections::BTreeMap::new();
    for member in members {
        let above = member.path.rsplit_once('/').map_or("", |(above, _)| above);
        children.entry(above).or_default().push(member);
    }
    let mut calls = Vec::new();
    let mut stack: Vec<(&Member, bool)> =
        children.get("").into_iter().flatten().rev().map(|member| (*member, false)).collect();
    while let Some((member, emptied)) = stack.pop() {
        let path = || -> Box<str> { member.path.as_str().into() };
        match (&member.what, emptied) {
            (MemberKind::Directory, false) => {
                calls.extend([Op::Status(path()), Op::List(path())]);
                stack.push((member, true));
                let inside = children.get(member.path.as_str()).into_iter().flatten();
                stack.extend(inside.rev().map(|member| (*member, false)));
            }
            (MemberKind::Directory, true) => calls.push(Op::RemoveDirectory(path())),
            _ => calls.extend([Op::Status(path()), Op::Remove(path())]),
        }
    }
    Box::new(calls.into_iter())
}
