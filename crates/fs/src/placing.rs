//! Placement settings of a volume: policies and their parameters, in an attribute of its root directory.
//!
//! Owns: the attribute's name, reading and writing it, and what goes over it when a volume is opened: what the caller
//! chose. The stripe of a RAID is the superblock's field, as for ext4. Excludes: the words (`placement::parameters`).
//!
//! The attribute comes with the image, which may be anybody's: words that this version does not know, or that are wrong,
//! place nothing, and keep nobody from opening the volume.

use ondisk::superblock::RawSuperblock;
use ondisk::units::InodeNumber;
use placement::Placing;
use placement::parameters::{self, PlacingError, Policies};

use crate::error::{Error, Result};
use crate::format::Format;
use crate::options::OpenOptions;
use crate::tx::View;
use crate::volume::Volume;

/// The attribute of the root directory.
pub const ATTRIBUTE: &[u8] = b"trusted.platfs.placement";

/// Longest value that is looked at.
const LONGEST: usize = 4_096;

/// The parameter that a field of the superblock holds.
const STRIPE: &str = "stripe";

/// The words of an attribute's value.
///
/// # Errors
/// Words that this version does not know, and what they can't be.
pub fn parse(value: &[u8]) -> std::result::Result<Placing, PlacingError> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= LONGEST);
    let placing = Placing::read(text.ok_or_else(|| PlacingError::Unknown("(no words)".into()))?)?;
    placing.clone().completed().make()?;
    Ok(placing)
}

/// The words to keep in the attribute; none for nothing.
///
/// # Errors
/// Parameters that don't belong to the policies; the stripe, which is the superblock's.
pub fn words(placing: &Placing) -> std::result::Result<String, PlacingError> {
    if placing.value(STRIPE).is_some() {
        return Err(PlacingError::Elsewhere(STRIPE));
    }
    placing.clone().completed().make()?;
    Ok(placing.to_string())
}

/// Placement settings stored in a volume. The inner error is about their text.
///
/// # Errors
/// The root directory's attributes are damaged; the device's failure.
pub fn stored(volume: &Volume) -> Result<std::result::Result<Placing, PlacingError>> {
    let value = volume.inode(InodeNumber::ROOT).xattr(ATTRIBUTE)?;
    Ok(value.map_or_else(|| Ok(Placing::default()), |value| parse(&value)))
}

/// Has a volume say how it is to be placed from the next opening on; nothing takes the words away.
///
/// # Errors
/// As [`words`], as [`Error::Invalid`]; not open for writing; no room for an attribute.
pub fn store(volume: &Volume, placing: &Placing) -> Result<()> {
    let words = words(placing).map_err(|error| Error::Invalid(error.to_string()))?;
    let root = volume.inode(InodeNumber::ROOT);
    if !words.is_empty() {
        return root.set_xattr(ATTRIBUTE, words.as_bytes());
    }
    if root.xattr(ATTRIBUTE)?.is_some() { root.remove_xattr(ATTRIBUTE) } else { Ok(()) }
}

/// The policies of a volume that is opened for writing: the caller's choice over what the volume says.
///
/// # Errors
/// Parameters that don't belong to the policies, if the caller set them.
pub(crate) fn policies(view: View<'_>, raw: &RawSuperblock, options: &OpenOptions) -> Result<Policies> {
    let asks = !options.loading && !options.replaying && options.own_policy.is_none();
    let kept = if asks { of_root(view).unwrap_or_default() } else { Placing::default() };
    let mut placing = options.placing.over(&kept).completed();
    for (name, value) in &options.tunables {
        let parameter = parameters::parameter(name).ok_or_else(|| PlacingError::Unknown(name.clone()));
        let set = parameter.and_then(|parameter| Ok(placing.set(parameter.tunable, *value)?));
        set.map_err(|error| Error::Invalid(error.to_string()))?;
    }
    let policy = placing.blocks.unwrap_or_default().row();
    if placing.value(STRIPE).is_none()
        && let Some(tunable) = policy.tunables.iter().find(|tunable| tunable.name == STRIPE)
        && let Some(stripe) = stripe(options.stripe, raw, view.format)
    {
        // One that is out of range is none, as for ext4.
        let _ = placing.set(tunable, stripe);
    }
    let Policies { blocks, inodes } = placing.make().map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(Policies { blocks: options.own_block_policy().unwrap_or(blocks), inodes })
}

fn of_root(view: View<'_>) -> Option<Placing> {
    let root = view.inode(InodeNumber::ROOT).ok()?;
    parse(&view.xattrs(&root).value(ATTRIBUTE).ok()??).ok()
}

/// Clusters of a stripe, as ext4 chooses it: what was said if a group holds it, else the superblock's width, else its
/// stride; none if it is not whole clusters.
fn stripe(said: Option<u32>, raw: &RawSuperblock, format: &Format) -> Option<u32> {
    let geometry = &format.geometry;
    let fields = [raw.s_raid_stripe_width.get(), u32::from(raw.s_raid_stride.get())];
    let of_volume = || fields.into_iter().find(|blocks| *blocks > 0 && *blocks <= geometry.blocks_per_group);
    let blocks = said.filter(|blocks| (1..=geometry.blocks_per_group).contains(blocks)).or_else(of_volume)?;
    let ratio = 1u32.checked_shl(geometry.cluster_log2)?;
    (blocks > 1 && blocks.is_multiple_of(ratio)).then_some(blocks / ratio)
}
