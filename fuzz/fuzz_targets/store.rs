//! Objects of a store whose bytes are the input: manifests, maps, objects of logs, chunks, lists. First as they are, then
//! patched into a sound store with their checksums made right, which is opened, read, verified, cleaned up, written.

#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use platfs::device::{Device, MemoryDevice};
use platfs_store::format::log::Header;
use platfs_store::format::manifest::Manifest;
use platfs_store::format::map::Map;
use platfs_store::format::{hash, packed};
use platfs_store::objects::{Memory, Objects, Patience};
use platfs_store::{Push, Store, Stored, Volume, clean, fork, push, verify};

const SIZE: u64 = 2 << 20;

fn over(contents: BTreeMap<String, Vec<u8>>) -> Arc<Store> {
    let patience = Patience { limit: Duration::ZERO, ..Patience::simulated() };
    Arc::new(Store::new(Arc::new(Memory::holding(contents)) as Arc<dyn Objects>, patience, None))
}

/// A store with a volume that has chunks, a map and a log of some objects, and a snapshot of it.
fn sound() -> &'static BTreeMap<String, Vec<u8>> {
    static SOUND: OnceLock<BTreeMap<String, Vec<u8>>> = OnceLock::new();
    // Open for good: closing it would bring its log into the map.
    static OPEN: OnceLock<Volume> = OnceLock::new();
    SOUND.get_or_init(|| {
        let memory = Arc::new(Memory::new());
        let store = Arc::new(Store::new(memory.clone() as Arc<dyn Objects>, Patience::default(), None));
        let image = MemoryDevice::new(SIZE);
        (0..8).for_each(|at| image.write_at(at * 200_000, &[at as u8 + 1; 9000]).unwrap());
        push(&store, &image, "one", &Push::default()).unwrap();
        let volume = Volume::open(&store, "one", "fuzz", true).unwrap();
        for at in 0..4 {
            volume.write_at(at * 70_000, &[9; 3000]).unwrap();
            volume.discard(1 << 20, 4096 * (at + 1)).unwrap();
            volume.flush().unwrap();
        }
        fork(&store, "one", "one@snapshot").unwrap();
        drop(OPEN.set(volume));
        memory.contents()
    })
}

/// Makes the checksum inside an object right again.
fn sealed(key: &str, bytes: &mut [u8]) {
    let end = match key {
        _ if key.ends_with("/manifest") => bytes.len(),
        _ if key.starts_with("vol/") => match Header::len(bytes) {
            Ok(len) => len.min(bytes.len()),
            Err(_) => return,
        },
        _ => return,
    };
    let Some(body) = end.checked_sub(32) else { return };
    let sum = hash(&bytes[..body]);
    bytes[body..end].copy_from_slice(&sum);
}

/// Patches of three bytes of place and one of value each, in one object.
fn patched(bytes: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let (which, rest) = bytes.split_first()?;
    let mut contents = sound().clone();
    let key = contents.keys().nth(usize::from(*which) % contents.len())?.clone();
    let object = contents.get_mut(&key)?;
    for patch in rest.chunks_exact(4).take(64) {
        let at = usize::from(patch[0]) | usize::from(patch[1]) << 8 | usize::from(patch[2]) << 16;
        match patch[3] {
            0xfe => object.truncate(at % (object.len() + 1)),
            0xff => object.extend([0; 64]),
            value if !object.is_empty() => {
                let len = object.len();
                object[at % len] = value;
            }
            _ => {}
        }
    }
    sealed(&key, object);
    Some(contents)
}

fn used(contents: BTreeMap<String, Vec<u8>>) {
    let store = over(contents);
    for name in ["one", "one@snapshot"] {
        let Ok(stored) = Stored::open(&store, name) else { continue };
        let mut buffer = vec![0; 300_000];
        for at in (0..stored.size().min(4 << 20)).step_by(buffer.len()) {
            let len = (stored.size() - at).min(buffer.len() as u64) as usize;
            let _ = stored.read_at(at, &mut buffer[..len]);
        }
    }
    let _ = verify(&store, &mut |_| {});
    let _ = clean(&store, Duration::ZERO, false);
    if let Ok(volume) = Volume::open(&store, "one", "fuzz", true) {
        let _ = volume.write_at(0, &[1; 5000]);
        let _ = (volume.flush(), volume.close());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let _ = Manifest::decode(bytes);
    for size in [SIZE, 3 << 30] {
        let _ = (Map::root(bytes, size), Map::leaf(bytes, 0, size), Map::leaf(bytes, 2, size));
        let _ = Header::decode(bytes, size);
    }
    let _ = packed::unpack(bytes, &hash(bytes), 1 << 20);
    patched(bytes).into_iter().for_each(used);
});
