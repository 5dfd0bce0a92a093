use zerocopy::FromZeros;

use super::*;
use crate::device::MemoryDevice;

fn cache(device: &Arc<MemoryDevice>) -> Cache {
    let superblock = ondisk::superblock::RawSuperblock::new_zeroed();
    Cache::new(device.clone(), BlockSize::from_bytes(4096).unwrap(), Sealer::from_superblock(&superblock))
}

fn filled(byte: u8) -> Arc<[u8]> {
    vec![byte; 4096].into()
}

fn held(cache: &Cache) -> usize {
    cache.shards().map(|shard| shard.len()).sum()
}

#[test]
fn the_bound_drops_cold_blocks_and_keeps_those_in_use_and_those_changed() {
    let device = Arc::new(MemoryDevice::new(1 << 30));
    let cache = cache(&device);
    let bound = (cache.capacity * SHARDS) as u64;
    cache.publish([(Block(7), Role::Plain, filled(7), None)]);
    for block in 100..100 + 4 * bound {
        cache.read(Block(block), Role::Plain).unwrap();
        cache.read(Block(50), Role::Plain).unwrap();
        assert!(held(&cache) as u64 <= bound + 1);
    }
    assert!(held(&cache) as u64 > bound / 2, "not everything goes at once");
    assert!(matches!(cache.find(Block(50), Role::Plain), CacheLookup::Held(_)));
    assert_eq!(cache.read(Block(7), Role::Plain).unwrap()[0], 7);
    let mut on_disk = [1; 4096];
    device.read_at(7 * 4096, &mut on_disk).unwrap();
    assert_eq!(on_disk[0], 0, "nothing is written by itself");
}

#[test]
fn the_bound_can_be_said() {
    let cache = cache(&Arc::new(MemoryDevice::new(1 << 24))).bounded(64 * 4096);
    (0..1000).for_each(|block| drop(cache.read(Block(block), Role::Plain).unwrap()));
    assert!((32..=64).contains(&held(&cache)), "{}", held(&cache));
    assert_eq!(cache.bounded(0).capacity(), SHARDS);
}

#[test]
fn what_changes_while_it_is_written_is_written_again() {
    let device = Arc::new(MemoryDevice::new(1 << 20));
    let cache = cache(&device);
    let on_disk = |block: u64| {
        let mut bytes = [0; 4096];
        device.read_at(block * 4096, &mut bytes).unwrap();
        bytes[9]
    };
    cache.publish([(Block(1), Role::Plain, filled(1), None), (Block(2), Role::Plain, filled(2), None)]);
    let first = cache.collect();
    cache.publish([(Block(2), Role::Plain, filled(3), None)]);
    cache.forget(BlockRun { start: Block(1), count: 1 }, |_, _, _| {});
    cache.write_out(&first).unwrap();
    assert_eq!((on_disk(1), on_disk(2)), (1, 2));
    let second = cache.collect();
    assert_eq!(second.blocks().len(), 1);
    cache.write_out(&second).unwrap();
    assert_eq!(on_disk(2), 3);
    assert!(cache.collect().blocks().is_empty() && !cache.is_crowded());
}

/// A device that lets another thread in while it reads.
struct Meanwhile {
    memory: Arc<MemoryDevice>,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Device for Meanwhile {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.memory.read_at(offset, buffer)?;
        let act = self.act.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.memory.write_at(offset, data)
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_read_before_a_change_is_not_kept_after_it() {
    let device = Arc::new(Meanwhile { memory: Arc::new(MemoryDevice::new(1 << 30)), act: Mutex::default() });
    let superblock = ondisk::superblock::RawSuperblock::new_zeroed();
    let sealer = Sealer::from_superblock(&superblock);
    let cache = Arc::new(Cache::new(device.clone(), BlockSize::from_bytes(4096).unwrap(), sealer));
    let other = Arc::clone(&cache);
    *device.act.lock().unwrap() = Some(Box::new(move || {
        other.publish([(Block(16), Role::Plain, filled(5), None)]);
        other.write_back().unwrap();
        for block in 2..4 + 3 * other.capacity as u64 {
            other.read(Block(block * SHARDS as u64), Role::Plain).unwrap();
        }
        assert!(matches!(other.find(Block(16), Role::Plain), CacheLookup::Missing(_)), "it was dropped");
    }));
    assert_eq!(cache.read(Block(16), Role::Plain).unwrap()[0], 5);
    assert_eq!(cache.read(Block(16), Role::Plain).unwrap()[0], 5);
}
