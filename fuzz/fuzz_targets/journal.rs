//! Blocks of the journal, and replay of a log, and of fast commits behind it, whose blocks are the input.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondisk::journal::RawJournalSuperblock;
use ondisk::journal::fast_commit::{Area, Scan, tags};
use ondisk::journal::log::{Header, LogFormat};
use platfs::device::{Device, MemoryDevice};
use platfs::mkfs::{FsType, Options, Plan};
use platfs::ondisk::features::Incompat;
use platfs::{OpenOptions, State, Volume};
use std::sync::{Arc, OnceLock};
use zerocopy::IntoBytes;

const BLOCK: usize = 1024;

/// An empty volume whose journal is to be replayed, and where it begins. Without checksums, so that what
/// replay does to it is looked at.
fn base() -> &'static (Vec<u8>, u64) {
    static BASE: OnceLock<(Vec<u8>, u64)> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = Arc::new(MemoryDevice::new(8 << 20));
        let mut options = Options::new(FsType::Ext4);
        options.features = platfs::mkfs::parse_features("^metadata_csum,uninit_bg").unwrap();
        options.block_size = Some(BLOCK as u32);
        options.journal.size = Some(2 << 20);
        Plan::new(&options, device.size()).unwrap().write(&*device).unwrap();
        let volume = Volume::open(device.clone(), &OpenOptions::new()).unwrap();
        let journal = platfs::InodeNumber::new(volume.superblock().s_journal_inum.get()).unwrap();
        let start = match volume.map(journal).unwrap().next().unwrap().unwrap().state {
            State::Mapped(block) => block.0 * BLOCK as u64,
            other => panic!("{other:?}"),
        };
        let mut raw = volume.superblock();
        let mut features = raw.features();
        features.incompat |= Incompat::RECOVER;
        raw.set_features(features);
        device.write_at(1024, raw.as_bytes()).unwrap();
        let mut bytes = vec![0; 8 << 20];
        device.read_at(0, &mut bytes).unwrap();
        (bytes, start)
    })
}

/// Each block of the log begins with the next bytes of the input; the header is made right, or nothing
/// would be looked at behind it.
fn log(bytes: &[u8], device: &MemoryDevice, start: u64) {
    let Some((features, rest)) = bytes.split_first() else { return };
    let mut superblock = vec![0; BLOCK];
    device.read_at(start, &mut superblock).unwrap();
    let Ok(mut raw) = RawJournalSuperblock::parse(&superblock) else { return };
    raw.s_start.set(1);
    raw.s_feature_incompat.set(u32::from(*features) & 0x37);
    device.write_at(start, raw.as_bytes()).unwrap();
    for (index, chunk) in rest.chunks(40).enumerate().take(900) {
        let kind = 1 + u32::from(chunk[0] % 5);
        let sequence = 1 + u32::from(chunk[0] >> 4) / 8;
        let head: Vec<u8> =
            [0xC03B_3998, kind, sequence].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
        let at = start + (index as u64 + 1) * BLOCK as u64;
        device.write_at(at, &[&head, &chunk[1..]].concat()).unwrap();
    }
    let mut area = Area::new(1, BLOCK);
    rest.chunks(24).take(400).for_each(|chunk| area.put(1 + u16::from(chunk[0] % 7), &chunk[1..]));
    area.seal(1);
    for (block, bytes) in raw.fast_commit_area().zip(area.bytes().chunks(BLOCK)) {
        device.write_at(start + u64::from(block) * BLOCK as u64, bytes).unwrap();
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(raw) = RawJournalSuperblock::parse(bytes) {
        let format = LogFormat::new(&raw);
        let _ = (format.tags(bytes).count(), format.revoked(bytes).map(Iterator::count));
        let _ = (format.tail_is_right(bytes), format.commit_is_right(bytes, 0), Header::parse(bytes));
    }
    let _ = (Scan::after(1).block(bytes), tags(bytes).count());
    let (image, start) = base();
    let device = Arc::new(MemoryDevice::from_bytes(image));
    log(bytes, &device, *start);
    if let Ok(volume) = Volume::open(device, &OpenOptions::new()) {
        let _ = volume.resolve(b"/lost+found").map(|number| volume.metadata(number));
    }
});
