//! The bytes of an older image into a new file, which reads as zeros: what is zero stays a hole.

use std::io;

use platfs::device::Device;

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Bytes that are left out if all of them are zero.
const STEP: usize = 64 << 10;

/// Copies the first `bytes` bytes.
pub(super) fn copy(from: &dyn Device, to: &dyn Device, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < bytes {
        let len = usize::try_from(bytes - at).unwrap_or(PIECE).min(PIECE);
        let piece = buffer.get_mut(..len).unwrap_or_default();
        from.read_at(at, piece)?;
        copy_piece(to, at, piece)?;
        at += len as u64;
    }
    Ok(())
}

/// Writes neighbouring steps that are not zero at once.
fn copy_piece(to: &dyn Device, at: u64, piece: &[u8]) -> io::Result<()> {
    let is_zero = |from: usize| {
        let step = piece.get(from..piece.len().min(from + STEP)).unwrap_or_default();
        step.iter().all(|byte| *byte == 0)
    };
    let mut from = 0;
    while from < piece.len() {
        let mut end = from;
        while end < piece.len() && !is_zero(end) {
            end += STEP;
        }
        let data = piece.get(from..end.min(piece.len())).unwrap_or_default();
        if !data.is_empty() {
            to.write_at(at + from as u64, data)?;
        }
        from = end + STEP;
    }
    Ok(())
}
