//! The reader of traces on any bytes: it ends, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use placement::trace::{Reader, put_head, put_record};

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = Reader::new(data) else { return };
    let mut again = Vec::new();
    put_head(&mut again, reader.layout());
    let mut records = 0usize;
    while let Ok(Some(record)) = reader.record() {
        put_record(&mut again, &record);
        records += 1;
        assert!(records <= data.len(), "every record takes a byte");
    }
    // The encoding is unique, so what was read is written the same.
    assert_eq!(data.get(..again.len()), Some(again.as_slice()));
});
