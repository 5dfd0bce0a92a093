//! Opening: the only door from an untrusted device to a usable volume.
//!
//! Owns: what must hold before anything of a volume is in memory, what a crash left being brought in first (the journal's
//! replay, [`recovery`]), and putting the volume together. Excludes: what is reclaimed once it is in use (`ops::reclaim`).

mod recovery;

use std::sync::Arc;

use ondisk::corrupt::Place;
use ondisk::features::{Compat, Incompat, RoCompat};
use ondisk::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use platfs_device::journal::Log;

use crate::admission::{read_superblock, refuse_unphased, refuse_unreadable, refuse_unwritable};
use crate::cache::Cache;
use crate::context::Context;
use crate::device::Device;
use crate::device::mmp::{self, Purpose};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::journal::{self, Recovery};
use crate::keys::Keyring;
use crate::map;
use crate::options::OpenOptions;
use crate::order::{Journal, Order, OrderChoice, mark};
use crate::placing;
use crate::session::Session;
use crate::space::{Marked, Space};
use crate::tx::View;
use crate::volume::{Opened, Volume};
use crate::zone::Zone;

/// The superblock of a device and the facts of its format, checked.
fn readable(device: &dyn Device, lenient: bool) -> Result<(RawSuperblock, Format)> {
    let raw = read_superblock(device)?;
    refuse_unreadable(raw.features())?;
    let format = Format::from_superblock(&raw)?;
    if !format.sealer.superblock_is_right(&raw) {
        return Err(Error::corrupt(Place::Superblock, "checksum is wrong"));
    }
    let (blocks, log2) = (format.geometry.blocks, format.geometry.block_size.log2());
    if blocks > device.size() >> log2 && !lenient {
        return Err(Error::corrupt(
            Place::Superblock,
            format!(
                "the volume has {blocks} blocks, the device only {}: its end is cut off",
                device.size() >> log2
            ),
        ));
    }
    Ok((raw, format))
}

/// A device with a volume that can be used: its journal replayed, if it has to be.
struct Recovered {
    device: Arc<dyn Device>,
    recovery: Option<Recovery>,
    /// Leftovers to reclaim, where changes are kept in order without a journal.
    unclean: Option<Marked>,
}

fn recovered(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Recovered> {
    if options.replaying {
        return Ok(Recovered { device, recovery: None, unclean: None });
    }
    let (device, recovery) = replayed(device, options)?;
    let is_phased = OrderChoice::from_options(options, false) == OrderChoice::Phased;
    let unclean = if is_phased { unclean(&device, options)? } else { None };
    Ok(Recovered { device, recovery, unclean })
}

/// Finds the leftovers of a crash, if the volume was not closed cleanly. Lists of orphans are not kept in order
/// either: those of other ways of writing go first.
fn unclean(device: &Arc<dyn Device>, options: &OpenOptions) -> Result<Option<Marked>> {
    let (raw, format) = readable(&**device, false)?;
    let state = raw.s_state.get();
    let has_orphans =
        raw.s_last_orphan.get() != 0 || raw.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    let unclean = state & STATE_VALID == 0 && !options.force;
    if state & STATE_ERROR != 0 || !(unclean || has_orphans) {
        return Ok(None);
    }
    refuse_unwritable(&raw, &**device, &format, &options.clone().force(true))?;
    refuse_unphased(&format)?;
    recovery::recover(device, options, has_orphans)
}

/// A device whose journal was replayed, if it has to be.
fn replayed(device: Arc<dyn Device>, options: &OpenOptions) -> Result<(Arc<dyn Device>, Option<Recovery>)> {
    let (raw, mut format) = readable(&*device, options.lenient)?;
    if options.noload || !journal::is_pending(&raw) {
        return Ok((device, None));
    }
    if !options.write {
        let (device, recovery) = journal::replayed(device)?;
        return Ok((device, Some(recovery)));
    }
    // What else speaks against writing is asked before the first write.
    format.features.incompat.remove(Incompat::RECOVER);
    refuse_unwritable(&raw, &*device, &format, options)?;
    let replay = journal::plan(&device, &raw)?;
    if let Some(missing) = replay.recovery.missing() {
        return Err(Error::Unsupported(format!("the volume was not closed cleanly, and {missing}")));
    }
    replay.write(&*device)?;
    Ok((device, Some(replay.recovery)))
}

/// The space of a volume, to read, once it is known what of it no map may lead to. A writer needs to know
/// all of that.
fn zoned(
    device: &dyn Device,
    cache: &Cache,
    raw: &RawSuperblock,
    format: &mut Format,
    options: &OpenOptions,
) -> Result<Space> {
    let space = Space::for_reading(device, format, options.lenient)?;
    let descriptor = |group| space.descriptors().get(group);
    format.zone = Zone::from_descriptors(&format.geometry, raw, descriptor, options.write)?;
    if options.write {
        format.zone = format.zone.keeping(map::own_files(View { blocks: cache, format, space: &space })?)?;
    }
    Ok(space)
}

/// The space of a volume that will be written (I35). Linux keeps the sums of the superblock up to date only when
/// it closes a volume: what is taken and freed from now on is added to those of the groups.
fn writable(
    space: Space,
    cache: &Arc<Cache>,
    format: &Format,
    raw: &mut RawSuperblock,
    options: &OpenOptions,
) -> Result<Space> {
    let view = View { blocks: &**cache, format, space: &space };
    let policies = placing::policies(view, raw, options)?;
    let space = space.for_writing(format, Arc::clone(cache), policies, options.loading)?;
    let sums = space.descriptors().sums()?;
    raw.set_free_blocks_count(sums.blocks);
    raw.s_free_inodes_count.set(sums.inodes);
    Ok(match options.bitmaps {
        Some(bytes) => space.bounded(bytes),
        None => space,
    })
}

/// The order in which changes will reach the device.
fn order(
    choice: OrderChoice,
    cache: &Arc<Cache>,
    raw: &RawSuperblock,
    format: &Format,
    options: &OpenOptions,
) -> Result<Order> {
    let journal = match choice {
        OrderChoice::Journal(data) => {
            let log = Log::find(cache.device(), raw)?;
            Some(Journal::new(log, cache, format, raw, data)?)
        }
        OrderChoice::Phased => {
            refuse_unphased(format)?;
            None
        }
        OrderChoice::Any => None,
    };
    Ok(Order::new(choice, options.ordering, journal))
}

impl Volume {
    /// Opens the volume on a device. A journal that was left with changes is replayed: in memory, the
    /// device untouched, if the volume is only to be read, else on the device.
    ///
    /// # Errors
    /// The device's failure; a superblock that is none, has a wrong checksum, contradicts itself or
    /// describes more than the device holds; features that this code can't read or, when opened for
    /// writing, can't write; a journal that can't be replayed, or for writing not wholly; for writing,
    /// another host that has the volume ([`OpenOptions::unshared`]).
    pub fn open(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Self> {
        if options.write && !options.keys.is_empty() {
            return Err(Error::Invalid("keys are for reading: encrypted files are not written".into()));
        }
        if options.write && options.lenient {
            return Err(Error::Invalid("a damaged volume is read as it is, or written, not both".into()));
        }
        let device = match options.marking() {
            Some(host) => mmp::take(device, Purpose::Write, host)?,
            None => device,
        };
        let Recovered { device, recovery, unclean } = recovered(device, options)?;
        let (mut raw, mut format) = readable(&*device, options.lenient)?;
        format.keys = Keyring::new(&options.keys, raw.s_uuid);
        if options.replaying {
            // Its log is in place.
            format.features.incompat.remove(Incompat::RECOVER);
        }
        let is_unclean = unclean.is_some() || raw.s_state.get() & STATE_VALID == 0;
        let choice = OrderChoice::from_options(options, format.features.compat.contains(Compat::HAS_JOURNAL));
        let cache = Cache::new(Arc::clone(&device), format.geometry.block_size, format.sealer);
        let cache = cache.keeping(choice.cache_policy());
        let cache = Arc::new(match options.cache {
            Some(bytes) => cache.bounded(bytes),
            None => cache,
        });
        let space = if options.write {
            let is_seen_to = options.force || unclean.is_some();
            refuse_unwritable(&raw, &*device, &format, &options.clone().force(is_seen_to))?;
            mark::remove(&mut raw);
            let space = zoned(&*device, &cache, &raw, &mut format, options)?;
            writable(space, &cache, &format, &mut raw, options)?
        } else {
            zoned(&*device, &cache, &raw, &mut format, options)?
        };
        let order = order(choice, &cache, &raw, &format, options)?;
        let session = Session::new(options, raw, &format.geometry);
        let opened = Opened { format, cache, space, session, order, recovery };
        let volume = opened.into_volume(Context::new(options.now));
        if let Some(unclean) = unclean {
            volume.leftovers().begin(unclean);
        }
        if options.write && !options.replaying {
            // Counts follow changes in a journal only.
            let was_counted = volume.recovery().is_some() || options.loading;
            let counts_again = is_unclean && !was_counted;
            if counts_again {
                volume.quota().mend_files()?;
            }
            volume.leftovers().orphan_lists().clean()?;
            if counts_again && !volume.quota().kinds().is_empty() {
                volume.quota().correct_counts()?;
            }
        }
        Ok(volume)
    }
}
