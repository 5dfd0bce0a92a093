//! Held open for the module that is being written beside this one.
use crate::{cache::Blocks, error::Result, format::Format, ops::DirEntry, txn::Update, volume::Volume};
use ondisk::{
    inode::{FileType, Inode},
    units::InodeNumber,
};
pub(crate) fn lookup(
    _: &dyn Blocks,
    _: &Format,
    _: &Inode,
    _: &[u8],
) -> Result<Option<(InodeNumber, Option<FileType>)>> {
    Ok(None)
}
pub(crate) fn insert(
    _: &Volume,
    _: &mut Update<'_>,
    _: &mut Inode,
    _: &[u8],
    _: InodeNumber,
    _: FileType,
) -> Result<()> {
    Ok(())
}
pub(crate) fn init(_: &Volume, _: &mut Update<'_>, _: &mut Inode, _: InodeNumber) -> Result<()> {
    Ok(())
}
pub(crate) fn entries(_: &Volume, _: Inode) -> Result<std::vec::IntoIter<Result<DirEntry>>> {
    Ok(vec![].into_iter())
}
