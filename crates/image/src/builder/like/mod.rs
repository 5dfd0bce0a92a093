//! An image in which all that did not change lies where it lay in an older one.
//!
//! The older image is copied, compared with the source meanwhile, and then the copy is changed: names, attributes and
//! contents that differ, nothing else. A file that is the same keeps its inode, its generation and its blocks. Where new
//! blocks go is decided by the policy `settled` of the placement crate. The result is a function of the older image and the
//! source: nothing here depends on clocks, threads or chance.
//!
//! | module | owns |
//! | --- | --- |
//! | `copy` | the bytes of the older image into the new file |
//! | `scan` | which inode each file keeps, which names come and go |
//! | `contents` | whether a file's contents are the same, and where not |
//! | `room` | whether the volume has to grow |
//! | `apply` | the changes, on the copy |
//!
//! Contents of free blocks stay, as after any removal: bytes that nobody asked to change are bytes that need not travel.

mod apply;
mod contents;
mod copy;
mod room;
mod scan;

use std::path::Path;
use std::sync::Arc;

use platfs::device::Device;
use platfs::ondisk::inode::Timestamp;
use platfs::placement::BlockPolicyKind;
use platfs::{OpenOptions, Volume, check};

use super::error::BuildError;
use super::identity::{self, Identity};
use super::job::built;
use super::wanted::VolumeMetadata;
use super::{Builder, Built};
use crate::output::{Output, device_of};
use crate::source::Catalogue;
use crate::watch::Stage;
use scan::Scan;

/// Counts of what an image took over from an older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update {
    /// Files whose contents stayed as they were.
    pub same: u64,
    /// Files of which some blocks were written where they lie.
    pub in_place: u64,
    /// Files whose contents went to new blocks: new ones, and those that became longer or changed in many places.
    pub placed: u64,
    /// Of files with new names: those that keep inode and blocks.
    pub renamed: u64,
    /// Names that the older image had and the source has not.
    pub removed: u64,
    /// Bytes by which the volume became longer.
    pub grown: u64,
}

/// The identifiers of an older image: for one that is to be its successor, and is laid out from the start.
///
/// # Errors
/// A device without an ext2, ext3 or ext4 volume.
pub fn identifiers(old: &Arc<dyn Device>) -> Result<super::identity::GivenIdentity, platfs::Error> {
    let raw = platfs::read_superblock(&**old)?;
    let (uuid, hash_seed) = (Some(raw.s_uuid), Some(seed_of(&raw)));
    Ok(super::identity::GivenIdentity { uuid, hash_seed, time: None })
}

fn seed_of(raw: &platfs::ondisk::superblock::RawSuperblock) -> [u8; 16] {
    let mut seed = [0; 16];
    for (bytes, word) in seed.chunks_exact_mut(4).zip(&raw.s_hash_seed) {
        bytes.copy_from_slice(&word.get().to_le_bytes());
    }
    seed
}

/// Builds the image.
pub(super) fn build(builder: &Builder<'_>, old: &Arc<dyn Device>, path: &Path) -> Result<Built, BuildError> {
    let mut meter = builder.meter()?;
    let catalogue = builder.source.catalogue();
    let was = open_old(old)?;
    let identity = identity_of(builder, &was, catalogue);
    let bytes = was.format().geometry.blocks << was.format().geometry.block_size.log2();
    let begin = if builder.overwrite { Output::replacing } else { Output::new };
    let output = begin(path, bytes, builder.privacy).map_err(BuildError::output("create", path))?;
    let device = || device_of(&output).map_err(BuildError::output("open", path));
    let copy = device()?;
    let scan = std::thread::scope(|scope| {
        let copying = std::thread::Builder::new()
            .spawn_scoped(scope, || copy::copy(&**old, &copy, bytes))
            .map_err(BuildError::output("start a thread for", path))?;
        let scan = in_order(old).and_then(|()| Scan::of(catalogue, &was, &mut meter));
        let copied =
            copying.join().unwrap_or_else(|_| Err(std::io::Error::other("the copying thread ended")));
        // That the older image is damaged says more than what copying met there.
        let scan = scan?;
        copied.map_err(BuildError::output("copy the older image to", path))?;
        Ok::<_, BuildError>(scan)
    })?;
    let room = room::SpaceNeeds { scan: &scan, was: &was, size: builder.size, now: now(&identity) };
    let grown = room.make(&output, path)?;
    let volume = open_new(Arc::new(device()?.without_flush()), &identity)?;
    let wanted = VolumeMetadata { catalogue, settle_times: !builder.keep_times };
    let clamped = apply::apply(&scan, &volume, wanted, &mut meter)?;
    meter.begin(Stage::Finishing, None, None)?;
    volume.sync()?;
    let update = Update { grown, ..scan.update };
    let facts = Built { clamped, update: Some(update), ..built(&volume, catalogue) };
    volume.close()?;
    let verity = builder.finish(output, path, &identity)?;
    Ok(Built { verity, ..facts })
}

fn now(identity: &Identity) -> Timestamp {
    Timestamp { seconds: i64::try_from(identity.time).unwrap_or(i64::MAX), nanoseconds: 0 }
}

/// The older image's identifiers, and the time that is stated or that the source has.
fn identity_of(builder: &Builder<'_>, was: &Volume, catalogue: &Catalogue) -> Identity {
    let raw = was.superblock();
    let time = builder.identity.time.unwrap_or_else(|| identity::derived(catalogue).time);
    Identity { uuid: raw.s_uuid, hash_seed: seed_of(&raw), time }
}

fn refused(why: String) -> BuildError {
    BuildError::Like(format!("the older image {why}"))
}

/// Opens the older image for reading.
fn open_old(old: &Arc<dyn Device>) -> Result<Volume, BuildError> {
    let volume = Volume::open(Arc::clone(old), &OpenOptions::new())
        .map_err(|error| refused(format!("can't be read: {error}")))?;
    if volume.needs_recovery() {
        return Err(refused(
            "was not unmounted, and its journal waits to be replayed: check it first".into(),
        ));
    }
    Ok(volume)
}

/// Checks that the older image is in order.
fn in_order(old: &Arc<dyn Device>) -> Result<(), BuildError> {
    let mut found = FirstFlaw(None);
    let checked = check::check(Arc::clone(old), &check::Options::default(), &mut found);
    match (checked, found.0) {
        (Err(error), _) => Err(refused(format!("can't be checked: {error}"))),
        (Ok(_), Some(first)) => Err(refused(format!("is damaged, check it first: {first}"))),
        (Ok(_), None) => Ok(()),
    }
}

/// The first thing found that makes a volume unfit to be changed.
struct FirstFlaw(Option<String>);

impl check::Sink for FirstFlaw {
    fn issue(&mut self, issue: check::Issue) -> check::Decision {
        if issue.kind.severity > check::Severity::Untidy && self.0.is_none() {
            self.0 = Some(format!("{}: {}", issue.kind.id, issue.found));
        }
        check::Decision::Leave
    }
}

/// Opens the copy to be changed.
fn open_new(device: Arc<dyn Device>, identity: &Identity) -> Result<Volume, platfs::Error> {
    let options = OpenOptions::new()
        .write(true)
        .unordered(true)
        .policy(BlockPolicyKind::Settled)
        .unshared(true)
        .now(now(identity))
        .seed(identity.generation_seed());
    Volume::open(device, &options)
}
