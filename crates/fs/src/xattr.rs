//! Held open for the module that is being written beside this one.
use crate::{error::Result, txn::Update, volume::Volume};
use ondisk::inode::Inode;
pub(crate) fn list(_: &Volume, _: &Inode) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    Ok(vec![])
}
pub(crate) fn set_all(_: &Volume, _: &mut Update<'_>, _: &mut Inode, _: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    Ok(())
}
