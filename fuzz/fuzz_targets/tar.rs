//! Archives: every entry until the first error. What an entry claims is bounded by what the archive has.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platfs_image::archive::Reader;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    // Headers get the checksum that they need, or few inputs would pass: byte 0 of each tells whether it is one.
    for block in bytes.as_chunks_mut::<512>().0 {
        if block[0] & 0x80 == 0 && block[257..262] == *b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    let length = bytes.len() as u64;
    let mut reader = Reader::new(bytes.as_slice());
    while let Ok(Some(entry)) = reader.next_entry() {
        let mut before = 0;
        for run in &entry.runs {
            assert!(run.len > 0 && run.file_offset >= before, "runs ascend");
            before = run.file_offset + run.len;
            assert!(
                before <= entry.size && run.archive_offset + run.len <= length,
                "runs lie in the archive"
            );
        }
    }
    let _ = reader.warnings().len();
});
