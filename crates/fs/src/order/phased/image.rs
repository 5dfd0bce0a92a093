//! The image of each kind of block in each phase.

use std::sync::Arc;

use ondisk::dirent::Layout;
use ondisk::group::{GroupFlags, RawGroupDescriptor};
use ondisk::units::{Group, bounded};

use super::{Phase, SoftdepRecord, leaves, slots};
use crate::format::Format;
use crate::role::Role;

/// A block that an epoch changes.
#[derive(Clone, Copy)]
pub(super) struct Changed<'e> {
    pub(super) block: u64,
    pub(super) role: Role,
    /// On-device contents; `None` if nothing on the device leads to the block.
    pub(super) before: Option<&'e Arc<[u8]>>,
    pub(super) after: &'e Arc<[u8]>,
}

/// Maker of block images.
#[derive(Clone, Copy)]
pub(super) struct Painter<'e> {
    pub(super) format: &'e Format,
    pub(super) notes: &'e SoftdepRecord,
    pub(super) layout: Layout,
}

impl Painter<'_> {
    /// Image of a block at the end of a phase, if the phase writes the block.
    pub(super) fn image(&self, changed: &Changed<'_>, phase: Phase) -> Option<Arc<[u8]>> {
        let after = || Some(Arc::clone(changed.after));
        match (changed.role, changed.before) {
            (Role::Inodes(first), before) => slots::changes_in(phase, before.is_none()).then(|| {
                // What was never used is taken for zeros.
                let zeros = if before.is_none() { vec![0; changed.after.len()] } else { Vec::new() };
                let before = before.map_or(&zeros[..], |before| before);
                Arc::from(slots::image(self.format, self.notes, first, (before, changed.after), phase))
            }),
            (Role::Bitmap, None) => (phase == Phase::Prepare).then(after)?,
            (Role::Bitmap, Some(before)) => match phase {
                Phase::Allocate => Some(either(before, changed.after)),
                Phase::Release => after(),
                _ => None,
            },
            (Role::Descriptors(first), Some(before)) => match phase {
                Phase::Allocate | Phase::Inode => Some(self.descriptors(first, before, changed.after, phase)),
                Phase::Release => after(),
                _ => None,
            },
            (Role::DirectoryLeaf(_) | Role::IndexNode(..), before) => self.directory(changed, before, phase),
            (Role::Attributes, Some(_)) => (phase == Phase::Release).then(after)?,
            (_, Some(_)) => (phase == Phase::Inode).then(after)?,
            (_, None) => (phase == Phase::Allocate).then(after)?,
        }
    }

    fn directory(
        &self,
        changed: &Changed<'_>,
        before: Option<&Arc<[u8]>>,
        phase: Phase,
    ) -> Option<Arc<[u8]>> {
        let is_leaf = matches!(changed.role, Role::DirectoryLeaf(_));
        let (notes, layout) = (self.notes, self.layout);
        let edited = |edit: &dyn Fn(&mut [u8])| {
            let mut bytes = changed.after.to_vec();
            edit(&mut bytes);
            Some(Arc::from(bytes))
        };
        let hide = |bytes: &mut [u8]| {
            if is_leaf {
                leaves::without_names(bytes, layout)
            }
        };
        if before.is_none() && notes.is_hidden_until_link(changed.block) {
            return match phase {
                Phase::Allocate => edited(&|bytes| {
                    leaves::apart(bytes);
                    hide(bytes);
                }),
                Phase::Up => edited(&hide),
                Phase::Link => Some(Arc::clone(changed.after)),
                _ => None,
            };
        }
        let appears = match before {
            None => Phase::Allocate,
            Some(_) if notes.is_added(changed.block) => Phase::Link,
            Some(_) => Phase::Unlink,
        };
        let kept = notes.kept(changed.block);
        if phase == appears && phase < Phase::Unlink && !kept.is_empty() {
            return edited(&|bytes| leaves::with_kept(bytes, layout, kept));
        }
        (phase == appears || phase == Phase::Unlink).then(|| Arc::clone(changed.after))
    }

    /// Descriptors that promise no more than is free before and after the epoch. That inodes are there to be
    /// looked at is said once what stands in their places is known.
    fn descriptors(&self, first: Group, before: &[u8], after: &[u8], phase: Phase) -> Arc<[u8]> {
        let size = usize::from(self.format.geometry.descriptor_size);
        let mut image = after.to_vec();
        for (index, to) in image.chunks_exact_mut(size).enumerate() {
            let old = before.get(index * size..(index + 1) * size).unwrap_or_default();
            if *old == *to {
                continue;
            }
            let (was, mut raw) = (RawGroupDescriptor::parse(old), RawGroupDescriptor::parse(to));
            let group = Group(first.0 + bounded::<u32>(index));
            raw.set_free_clusters(raw.free_clusters().min(was.free_clusters()));
            raw.set_free_inodes(raw.free_inodes().min(was.free_inodes()));
            raw.set_used_directories(raw.used_directories().max(was.used_directories()));
            if phase == Phase::Allocate {
                // Those never used count as free.
                raw.set_unused_inodes(was.unused_inodes());
                raw.set_free_inodes(raw.free_inodes().max(was.unused_inodes()));
                raw.set_flags(raw.flags() | was.flags() & GroupFlags::INODE_UNINIT);
            } else {
                raw.set_unused_inodes(raw.unused_inodes().min(was.unused_inodes()));
            }
            self.format.sealer.seal_descriptor(group, &mut raw, to.get(64..).unwrap_or_default());
            raw.store(to);
        }
        Arc::from(image)
    }
}

/// Union of the bits before and after.
fn either(before: &[u8], after: &[u8]) -> Arc<[u8]> {
    before.iter().zip(after).map(|(before, after)| before | after).collect()
}
