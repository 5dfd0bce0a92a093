//! `-E`: extended options, each a name or a name and a value.

use platfs::mkfs::{Encoding, FeatureEdit};
use platfs::ondisk::features::{Compat, FeatureBit, Incompat};
use platfs::ondisk::quota::QuotaKind;

use super::amount::{amount, bytes, number};
use super::{Format, uuid};
use crate::console::Failure;

pub(super) const NAMES: &str = "stride, stripe_width, resize, lazy_itable_init, lazy_journal_init, packed_meta_blocks, \
     num_backup_sb, desc_size, root_owner, root_perms, root_selinux, hash_seed, offset, discard, nodiscard, \
     quotatype, encoding, encoding_flags, mmp_update_interval, assume_storage_prezeroed, orphan_file_size, revision, \
     no_copy_xattrs, test_fs";

fn wrong<T>(part: &str, why: &str) -> Result<T, Failure> {
    Err(Failure::Usage(format!("-E {part}: {why}")))
}

/// Applies a comma-separated list.
pub(super) fn apply(list: &str, format: &mut Format) -> Result<(), Failure> {
    list.split(',').filter(|part| !part.is_empty()).try_for_each(|part| {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (part, None),
        };
        one(part, &name.replace('-', "_"), value, format)
    })
}

fn one(part: &str, name: &str, value: Option<&str>, format: &mut Format) -> Result<(), Failure> {
    let label = format!("-E {name}");
    let given = || value.map_or_else(|| wrong(part, "needs a value"), Ok);
    let options = &mut format.options;
    match name {
        "stride" => options.stride = Some(number(&label, given()?)?),
        "stripe_width" => options.stripe_width = Some(number(&label, given()?)?),
        "resize" => options.resize_limit = Some(amount(&label, given()?)?),
        "lazy_itable_init" => options.lazy_inode_tables = switch(part, value)?,
        "lazy_journal_init" => options.lazy_journal = switch(part, value)?,
        "packed_meta_blocks" => options.packed_meta_blocks = switch(part, value)?,
        "assume_storage_prezeroed" => format.prezeroed = switch(part, value)?,
        "num_backup_sb" => options.backup_superblocks = number(&label, given()?)?,
        "root_owner" => {
            options.root_owner = owner(part, value)?;
            format.root.owner = Some(options.root_owner);
        }
        "root_perms" => match u16::from_str_radix(given()?, 8) {
            Ok(mode) if mode <= 0o7777 => {
                options.root_permissions = mode;
                format.root.mode = Some(mode);
            }
            _ => return wrong(part, "not octal permissions"),
        },
        "desc_size" => options.descriptor_size = Some(number(&label, given()?)?),
        "root_selinux" => {
            options.root_label = given()?.as_bytes().to_vec();
            format.root.label = Some(options.root_label.clone());
        }
        "hash_seed" => format.hash_seed = Some(uuid::choice(&label, given()?)?),
        "offset" => format.offset = bytes(&label, given()?)?,
        // Unused parts are never touched, so that there is nothing to discard or to keep from it.
        "discard" | "nodiscard" if value.is_none() => {}
        "quotatype" => options.quota_kinds = Some(quota_kinds(part, given()?)?),
        "encoding" => {
            if !matches!(given()?, "utf8" | "utf8-12.1") {
                return wrong(part, "only utf8 (utf8-12.1) is known");
            }
            options.encoding.number = 1;
            options.features.push(FeatureEdit::Set(FeatureBit::Incompat(Incompat::CASEFOLD)));
        }
        "encoding_flags" => encoding_flags(part, given()?, &mut options.encoding)?,
        "mmp_update_interval" => options.mmp_interval = number(&label, given()?)?,
        "orphan_file_size" => {
            options.orphan_file_size = Some(amount(&label, given()?)?);
            options.features.push(FeatureEdit::Set(FeatureBit::Compat(Compat::ORPHAN_FILE)));
        }
        "revision" => {
            options.old_revision = match given()? {
                "0" => true,
                "1" => false,
                _ => return wrong(part, "neither 0 nor 1"),
            }
        }
        "no_copy_xattrs" if value.is_none() => format.no_xattrs = true,
        "android_sparse" => {
            return wrong(
                part,
                "an image for fastboot is made by a name in .simg, or by `plat build --format simg`",
            );
        }
        "test_fs" if value.is_none() => options.test_volume = true,
        _ => return wrong(part, &format!("unknown; known are {NAMES}")),
    }
    Ok(())
}

fn switch(part: &str, value: Option<&str>) -> Result<bool, Failure> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => wrong(part, "neither 0 nor 1"),
    }
}

/// `uid:gid`; those of the caller without a value.
fn owner(part: &str, value: Option<&str>) -> Result<(u32, u32), Failure> {
    let Some(value) = value else {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        return Ok((uid.as_raw(), gid.as_raw()));
    };
    let ids = value.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    ids.map_or_else(|| wrong(part, "not UID:GID"), Ok)
}

fn quota_kinds(part: &str, list: &str) -> Result<Vec<QuotaKind>, Failure> {
    let kind = |name: &str| match name {
        "usrquota" | "usr" => Ok(QuotaKind::User),
        "grpquota" | "grp" => Ok(QuotaKind::Group),
        "prjquota" | "prj" => Ok(QuotaKind::Project),
        _ => wrong(part, "not usrquota, grpquota, prjquota, separated by colons"),
    };
    list.split(':').map(kind).collect()
}

fn encoding_flags(part: &str, list: &str, encoding: &mut Encoding) -> Result<(), Failure> {
    for name in list.split(':') {
        match name {
            "strict" => encoding.flags |= 1,
            "nostrict" => encoding.flags &= !1,
            _ => return wrong(part, "only strict and nostrict are known"),
        }
    }
    Ok(())
}
