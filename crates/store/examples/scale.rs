//! Cost of fleets and very large volumes for a store: the figures of `research/docs/scale.md`.
//!
//! The formats and the clean-up are the real ones, over a store in memory that counts. What a store and a line can do are
//! assumptions, and stand in the constants.

use std::sync::Arc;
use std::time::Duration;

use platfs_device::Device;
use platfs_store::format::hash;
use platfs_store::format::manifest::{Flags, Manifest};
use platfs_store::format::map::{CHUNK, Extent, LEAF_SPAN, Leaf, Map, Target};
use platfs_store::format::packed;
use platfs_store::objects::{Counts, Memory, Objects, Patience};
use platfs_store::{
    Kind, Result, Store, Volume, clean, fork, id_of, key_of, key_of_manifest, remove, volumes,
};

/// Requests that read which one prefix of S3 answers in a second, and those that write, by its documentation.
const READS_A_SECOND: u64 = 5_500;
const WRITES_A_SECOND: u64 = 3_500;
/// Milliseconds of one request, there and back.
const ROUND: u64 = 25;
/// Bytes in a second between all hosts and the store: 100 Gbit/s.
const LINE: u64 = 12_500_000_000;
/// Packed size of a chunk, in per cent: a Debian root.
const PACKED: u64 = 35;
/// Bytes that a host reads of its image to start: 150 MiB.
const START: u64 = 150 << 20;

const GIB: u64 = 1 << 30;
/// Bytes of a chunk, as maps have them.
const LEN: u32 = 512 << 10;

fn store() -> (Arc<Store>, Arc<Memory>) {
    let memory = Arc::new(Memory::new());
    (Arc::new(Store::new(Arc::clone(&memory) as Arc<dyn Objects>, Patience::default(), None)), memory)
}

/// Seconds of processor time that this process has used.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn between(now: Counts, before: Counts) -> String {
    format!("{} reads, {} writes", now.reads - before.reads, now.writes - before.writes)
}

/// A full leaf of chunks; those from `own` on are an image's own.
fn leaf(number: u64, own: u64, image: u64) -> Leaf {
    let mut leaf = Leaf::default();
    for (chunk, object) in (0..LEAF_SPAN / CHUNK as u64).zip(0..) {
        let of = if chunk >= own { image } else { 0 };
        let name = hash(&[number.to_le_bytes(), chunk.to_le_bytes(), of.to_le_bytes()].concat());
        leaf.objects.push(Target::Chunk { hash: name, len: LEN });
        let start = number * LEAF_SPAN + chunk * CHUNK as u64;
        leaf.extents.push(Extent { start, len: LEN, object, offset: 0 });
    }
    leaf
}

fn manifest(name: &str, size: u64, map: [u8; 32]) -> Manifest {
    Manifest {
        id: id_of(name),
        parent: [0; 16],
        name: name.to_owned(),
        holder: String::new(),
        flags: Flags::default(),
        size,
        created: 0,
        epoch: 1,
        nonce: 0,
        map,
        segments: Vec::new(),
    }
}

fn put(store: &Store, leaf: Leaf) -> Result<[u8; 32]> {
    store.put_contents(Kind::Map, &Map::Leaf(leaf).encode())
}

/// Hosts that start one image of 2 GiB at the same time.
fn fleet(hosts: u64) {
    let map: u64 =
        (0..2).map(|number| packed::pack(&Map::Leaf(leaf(number, 0, 1)).encode()).len() as u64).sum();
    let manifest = manifest("image", 2 * GIB, [1; 32]).encode().len() as u64;
    // The manifest, the index and two leaves, and chunks.
    let requests = 4 + START / CHUNK as u64;
    let bytes = manifest + map + START * PACKED / 100;
    let (all, all_bytes) = (hosts * requests, hosts * bytes);
    println!("{hosts} hosts start one image of 2 GiB, {} MiB of it:", START >> 20);
    println!("  a host: {requests} requests, {} MiB; the map {} KiB of that", bytes >> 20, map >> 10);
    println!("  together: {all} requests, {} GiB", all_bytes / GIB);
    println!("  by requests at least {} s, by the line {} s", all / READS_A_SECOND, all_bytes / LINE);
    println!("  with one cache for each 40 hosts: {} requests, {} GiB", all / 40, all_bytes / 40 / GIB);
}

/// Images of 2 GiB over one base, with 40 chunks (20 MiB) of their own each.
fn images(count: u64) -> Result<()> {
    let (store, memory) = store();
    platfs_store::ready(&store)?;
    let chunks = LEAF_SPAN / CHUNK as u64;
    let base = put(&store, leaf(0, chunks, 0))?;
    for image in 1..=count {
        let own = put(&store, leaf(1, chunks - 40, image))?;
        let root = store.put_contents(Kind::Map, &Map::Index(vec![base, own]).encode())?;
        let name = format!("image-{image}");
        store.objects().create(&key_of_manifest(&id_of(&name)), &manifest(&name, 2 * GIB, root).encode())?;
        for target in &leaf(1, chunks - 40, image).objects {
            if let Target::Chunk { hash, .. } = target {
                store.objects().put(&key_of(Kind::Chunk, hash), b"")?;
            }
        }
    }
    let objects = memory.contents();
    let maps: u64 =
        objects.iter().filter(|(key, _)| key.starts_with("map/")).map(|(_, map)| map.len() as u64).sum();
    let (before, begun) = (store.counts(), processor());
    clean(&store, Duration::from_secs(86_400), true)?;
    let asked = store.counts();
    let lists = objects.len() as u64 / 1000 + 2;
    println!("{count} images of one base of 2 GiB, 20 MiB of their own each:");
    println!("  {} objects; maps {} MiB, manifests {} KiB", objects.len(), maps >> 20, count * 200 / 1024);
    println!("  chunks: {} GiB instead of {}", (2 * GIB + count * (20 << 20)) / GIB, count * 2);
    println!(
        "  gc: {}, and {lists} pages of lists; {:.1} s of processor",
        between(asked, before),
        processor() - begun
    );
    println!(
        "  at {ROUND} ms, 16 side by side: {} s",
        ((asked.reads - before.reads) / 16 + lists) * ROUND / 1000
    );
    Ok(())
}

/// One volume of that many TiB, all of it written.
fn volume(tib: u64) -> Result<()> {
    let leaves = tib * 1024;
    let one = Map::Leaf(leaf(7, 0, 7)).encode();
    let packed_leaf = packed::pack(&one).len() as u64;
    let index = Map::Index((0..leaves).map(|number| hash(&number.to_le_bytes())).collect()).encode();
    println!("a volume of {tib} TiB, all of it written:");
    println!(
        "  {leaves} leaves of {} KiB ({} KiB packed): {} GiB of maps",
        one.len() >> 10,
        packed_leaf >> 10,
        leaves * packed_leaf / GIB
    );
    println!("  index {} KiB packed, read at each opening", packed::pack(&index).len() >> 10);
    println!("  in memory: index {} KiB, at most 8 leaves of {} KiB", index.len() >> 10, one.len() >> 10);
    println!("  gc: {leaves} reads, 8 side by side: {} s", leaves / 8 * ROUND / 1000);
    // What is really asked for, with all of it empty but a little.
    let (store, _) = store();
    drop(Volume::create(&store, "large", tib << 40, "scale")?);
    let before = store.counts();
    fork(&store, "large", "fork")?;
    println!("  fork: {}", between(store.counts(), before));
    let before = store.counts();
    fork(&store, "large", "large@snapshot")?;
    println!("  snapshot: {}", between(store.counts(), before));
    let before = store.counts();
    let open = Volume::open(&store, "fork", "scale", false)?;
    println!("  opening the fork for writing: {}", between(store.counts(), before));
    let before = store.counts();
    let failed = |why: std::io::Error| platfs_store::Error::Invalid(why.to_string());
    open.write_at(tib << 39, &[1; 4096]).map_err(failed)?;
    open.flush().map_err(failed)?;
    println!("  a write and its flush: {}", between(store.counts(), before));
    let before = store.counts();
    open.close()?;
    println!("  closing it: {}", between(store.counts(), before));
    Ok(())
}

/// A list where that many forks were made and removed, before and after a clean-up.
fn removed(count: u64) -> Result<()> {
    let (store, _) = store();
    drop(Volume::create(&store, "base", GIB, "scale")?);
    for number in 0..count {
        let name = format!("fork-{number}");
        fork(&store, "base", &name)?;
        remove(&store, &name)?;
    }
    println!("{count} forks that were made and removed:");
    for when in ["before", "after"] {
        let before = store.counts();
        volumes(&store, false)?;
        println!("  a list {when} a clean-up: {}", between(store.counts(), before));
        clean(&store, Duration::from_secs(86_400), false)?;
    }
    Ok(())
}

/// A volume that is open while it is synced that often, a block each time: objects that it refers to.
fn synced(count: u64) -> Result<()> {
    let (store, memory) = store();
    let open = Volume::create(&store, "open", GIB, "scale")?;
    let failed = |why: std::io::Error| platfs_store::Error::Invalid(why.to_string());
    for number in 0..count {
        open.write_at(number * 4096, &[1; 4096]).map_err(failed)?;
        open.flush().map_err(failed)?;
    }
    for _ in 0..2 {
        clean(&store, Duration::ZERO, false)?;
        memory.pass(Duration::from_secs(2));
    }
    let objects = memory.contents().into_keys().filter(|key| key.starts_with("vol/")).count() - 1;
    println!("a volume that is synced {count} times, a block each: {objects} objects after two clean-ups");
    Ok(())
}

/// Prints the limits of one writer by its objects and its manifest.
fn writer() {
    let each = 1000 / ROUND;
    println!("one writer, each request {} ms:", ROUND);
    println!("  {each} flushes in a second, or {} MiB/s where each object is full", each * 8);
    println!("  one replacement of the manifest for 128 objects: one in {} s at most", 128 / each);
    println!("  writers of volumes of their own that a prefix carries: {}", WRITES_A_SECOND / each);
}

fn main() -> Result<()> {
    fleet(10_000);
    images(1_000)?;
    volume(100)?;
    removed(1_000)?;
    synced(10_000)?;
    writer();
    Ok(())
}
