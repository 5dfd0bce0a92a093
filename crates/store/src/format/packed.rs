//! Contents that are named by their hash: chunks of images and maps, compressed where that helps.
//!
//! The name is the hash of the contents, not of what is stored: the same contents have one name however they were
//! compressed. What is stored is one byte for the method, and the rest.

use super::{Hash, Wrong, hash};

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// Compresses about as fast as a store takes bytes.
const LEVEL: i32 = 3;

/// Packs contents for storage.
#[must_use]
pub fn pack(contents: &[u8]) -> Vec<u8> {
    let mut out = vec![ZSTD];
    match zstd::bulk::compress(contents, LEVEL) {
        // An eighth is the least that is worth the time of each reader.
        Ok(packed) if packed.len() + packed.len() / 7 < contents.len() => out.extend_from_slice(&packed),
        _ => {
            out = vec![PLAIN];
            out.extend_from_slice(contents);
        }
    }
    out
}

/// The contents of at most `most` bytes, if they are those that the name promises.
///
/// # Errors
/// An unknown method, a stream that can't be decompressed or is longer, another hash.
pub fn unpack(stored: &[u8], name: &Hash, most: usize) -> Result<Vec<u8>, Wrong> {
    let (method, rest) = stored.split_first().ok_or("is empty")?;
    let contents = match *method {
        PLAIN if rest.len() <= most => rest.to_vec(),
        PLAIN => return Err(format!("holds {} bytes, at most {most} are allowed", rest.len())),
        ZSTD => zstd::bulk::decompress(rest, most)
            .map_err(|why| format!("can't be decompressed to {most} bytes, as many as are allowed: {why}"))?,
        other => return Err(format!("is compressed by method {other}, which this version does not know")),
    };
    if hash(&contents) != *name {
        return Err("its contents don't have the hash that it is named by".to_owned());
    }
    Ok(contents)
}

/// Most bytes of what is stored for contents of that length.
#[must_use]
pub fn bound(contents: usize) -> u64 {
    contents as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_come_back_and_nothing_else_does() {
        let (dull, odd) =
            (vec![7; 100_000], (0..5000_u32).map(|i| hash(&i.to_le_bytes())[0]).collect::<Vec<u8>>());
        for contents in [&dull, &odd, &Vec::new()] {
            let (name, stored) = (hash(contents), pack(contents));
            assert!(stored.len() as u64 <= bound(contents.len()));
            assert_eq!(unpack(&stored, &name, contents.len()).unwrap(), *contents);
            if !contents.is_empty() {
                assert!(unpack(&stored, &name, contents.len() - 1).is_err(), "a bomb");
                assert!(unpack(&stored[..stored.len() - 1], &name, contents.len()).is_err());
            }
            assert!(unpack(&stored, &[1; 32], contents.len()).unwrap_err().contains("hash"));
        }
        assert!(pack(&dull).len() < 100);
        assert!(unpack(&[9], &[0; 32], 10).unwrap_err().contains("method 9"));
        assert!(unpack(&[], &[0; 32], 10).is_err());
    }
}
