//! Held open for the module that is being written beside this one.
use crate::{cache::Blocks, error::Result, format::Format, txn::Update, volume::Volume};
use ondisk::inode::Inode;
pub(crate) fn contents(_: &dyn Blocks, _: &Format, _: &Inode) -> Result<Vec<u8>> {
    Ok(vec![])
}
pub(crate) fn store(_: &Volume, _: &mut Update<'_>, _: &mut Inode, _: &[u8]) -> Result<bool> {
    Ok(false)
}
