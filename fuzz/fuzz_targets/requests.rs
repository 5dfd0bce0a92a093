//! Requests of the kernel's FUSE on any bytes, in one piece and in two: no panic, and no more work than bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (cut, bytes) = data.split_first().map_or((0, data), |(cut, rest)| (usize::from(*cut), rest));
    let said = fuse::decode_any(bytes, cut);
    assert!(said.len() <= 1000 + bytes.len() * 40, "a request says no more than it holds");
});
