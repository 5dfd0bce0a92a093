use super::*;
use crate::MemoryDevice;

const DISK: u64 = 64 << 20;

fn put_mbr(disk: &MemoryDevice, at: u64, entries: &[(u8, u32, u32)]) {
    let mut record = vec![0_u8; 512];
    for (index, (kind, start, count)) in entries.iter().enumerate() {
        let entry = &mut record[446 + 16 * index..462 + 16 * index];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&count.to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xAA]);
    disk.write_at(at * 512, &record).unwrap();
}

fn put_gpt(disk: &MemoryDevice, sector: u64, header_at: u64, table_at: u64, parts: &[(u64, u64)]) {
    let mut table = vec![0_u8; 128 * 128];
    for (index, (first, last)) in parts.iter().enumerate() {
        let entry = &mut table[128 * index..128 * (index + 1)];
        entry[0] = 1;
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
    }
    disk.write_at(table_at * sector, &table).unwrap();
    let mut header = vec![0_u8; 92];
    header[..8].copy_from_slice(b"EFI PART");
    header[12..16].copy_from_slice(&92_u32.to_le_bytes());
    header[72..80].copy_from_slice(&table_at.to_le_bytes());
    header[80..84].copy_from_slice(&128_u32.to_le_bytes());
    header[84..88].copy_from_slice(&128_u32.to_le_bytes());
    header[88..92].copy_from_slice(&crc_of(&table).to_le_bytes());
    let crc = crc_of(&header);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    disk.write_at(header_at, &header).unwrap();
}

fn numbers(disk: &MemoryDevice) -> Vec<(u32, u64, u64)> {
    partitions(disk).unwrap().iter().map(|p| (p.number, p.start, p.size)).collect()
}

#[test]
fn logical_partitions_count_from_five_and_are_placed_relative_to_their_record() {
    let disk = MemoryDevice::new(DISK);
    put_mbr(&disk, 0, &[(0x83, 2048, 100), (0, 0, 0), (0x0F, 8192, 20000), (0x83, 40000, 7)]);
    put_mbr(&disk, 8192, &[(0x83, 64, 10), (0x05, 1000, 500)]);
    put_mbr(&disk, 9192, &[(0x82, 64, 20)]);
    let at = |sector: u64| sector * 512;
    assert_eq!(
        numbers(&disk),
        [(1, at(2048), 100 * 512), (4, at(40000), 7 * 512), (5, at(8256), 10 * 512), (6, at(9256), 20 * 512)]
    );
}

#[test]
fn records_behind_the_end_of_a_disk_hide_no_partition() {
    let disk = MemoryDevice::new(DISK);
    let far = u32::try_from(DISK / 512).unwrap();
    put_mbr(&disk, 0, &[(0x83, 2048, 100), (0x0F, 8192, 2 * far)]);
    put_mbr(&disk, 8192, &[(0x83, 64, 10), (0x05, far - 8192, 500)]);
    let at = |sector: u32| u64::from(sector) * 512;
    let first = [(1, at(2048), 100 * 512), (5, at(8256), 10 * 512)];
    assert_eq!(numbers(&disk), [&first[..], &[(6, DISK, 500 * 512)]].concat());
    let found = partitions(&disk).unwrap();
    assert!(found[1].whole_on(&disk).is_ok());
    assert!(found[2].size_on(&disk).unwrap_err().to_string().contains("partition 6"));
    // One that is there, and is none, is damage.
    put_mbr(&disk, 8192, &[(0x83, 64, 10), (0x05, far - 8193, 500)]);
    assert!(partitions(&disk).unwrap_err().to_string().contains("no extended boot record"));
}

#[test]
fn a_chain_that_comes_back_is_broken_not_endless() {
    let disk = MemoryDevice::new(DISK);
    put_mbr(&disk, 0, &[(0x05, 100, 1000)]);
    put_mbr(&disk, 100, &[(0x83, 1, 1), (0x05, 50, 10)]);
    put_mbr(&disk, 150, &[(0x83, 1, 1), (0x05, 0, 10)]);
    let error = partitions(&disk).unwrap_err().to_string();
    assert!(error.contains("lead back to sector 100"), "{error}");
}

#[test]
fn gpt_is_read_in_both_sector_sizes_and_from_the_backup() {
    for sector in [512, 4096] {
        let disk = MemoryDevice::new(DISK);
        put_mbr(&disk, 0, &[(0xEE, 1, u32::MAX)]);
        put_gpt(&disk, sector, sector, 2, &[(256, 511), (0, 0), (1024, 1024)]);
        // The second entry is in use by its type, and one sector long at the disk's start.
        assert!(partitions(&disk).unwrap_err().to_string().contains("partition 2"));
        put_gpt(&disk, sector, sector, 2, &[(256, 511), (1024, 1024)]);
        let expected = [(1, 256 * sector, 256 * sector), (2, 1024 * sector, sector)];
        assert_eq!(numbers(&disk), expected);
        put_gpt(&disk, sector, DISK - sector, 100, &[(256, 511), (1024, 1024)]);
        disk.write_at(sector + 40, &[1]).unwrap();
        assert_eq!(numbers(&disk), expected, "the primary header is damaged, the backup is not");
        disk.write_at(DISK - sector + 40, &[1]).unwrap();
        assert!(partitions(&disk).unwrap_err().to_string().contains("checksums"));
    }
}

#[test]
fn a_partition_that_leaves_the_disk_hides_no_other() {
    let disk = MemoryDevice::new(DISK);
    put_mbr(&disk, 0, &[(0x83, 2048, 100), (0x83, 4096, u32::MAX), (0x83, 1 << 20, 8)]);
    let found = partitions(&disk).unwrap();
    assert!(found[0].whole_on(&disk).is_ok());
    let said = found[1].whole_on(&disk).unwrap_err().to_string();
    assert!(said.contains("partition 2") && said.contains("leaves the disk"), "{said}");
    assert_eq!(found[1].size_on(&disk).unwrap(), DISK - 4096 * 512);
    assert!(found[2].size_on(&disk).unwrap_err().to_string().contains("partition 3"));
    for number in [2, 3] {
        assert!(grow(&disk, number).is_err() && shrink(&disk, number, 512).is_err(), "{number}");
    }
}

#[test]
fn partitions_that_are_no_place_are_refused() {
    let disk = MemoryDevice::new(DISK);
    put_mbr(&disk, 0, &[(0xEE, 1, u32::MAX)]);
    put_gpt(&disk, 512, 512, 2, &[(u64::MAX, u64::MAX)]);
    assert!(partitions(&disk).is_err());
    put_gpt(&disk, 512, 512, 2, &[(5, 4)]);
    assert!(partitions(&disk).unwrap_err().to_string().contains("ends before it begins"));
}

#[test]
fn a_disk_without_a_table_has_none() {
    assert!(matches!(partitions(&MemoryDevice::new(DISK)), Err(TableError::NoTable)));
    assert!(matches!(partitions(&MemoryDevice::new(10)), Err(TableError::NoTable)));
    // The boot sector of a file system has code where the table would be.
    let disk = MemoryDevice::new(DISK);
    put_mbr(&disk, 0, &[(0x83, 2048, 100)]);
    disk.write_at(446, &[0x33]).unwrap();
    assert!(matches!(partitions(&disk), Err(TableError::NoTable)));
}

proptest::proptest! {
    #[test]
    fn random_tables_never_panic(seed in proptest::collection::vec(0_u8..255, 512), gpt in 0_usize..3) {
        let disk = MemoryDevice::new(1 << 20);
        for sector in 0..64 {
            let mut bytes = seed.clone();
            bytes[510..].copy_from_slice(&[0x55, 0xAA]);
            for index in 0..4 {
                bytes[446 + 16 * index] &= 0x80;
                bytes[446 + 16 * index + 4] = [0x05, 0x83, 0xEE, 0][(index + gpt) % 4];
                // Small numbers, so that chains stay on the disk.
                for at in [9, 10, 11, 13, 14, 15] {
                    bytes[446 + 16 * index + at] = 0;
                }
            }
            disk.write_at(sector * 512, &bytes).unwrap();
        }
        let _ = partitions(&disk);
    }
}

#[test]
fn a_partition_grows_up_to_the_next_and_the_last_up_to_the_end() {
    for sector in [512, 4096] {
        let disk = MemoryDevice::new(DISK);
        put_mbr(&disk, 0, &[(0xEE, 1, 100)]);
        let parts = [(512, 1023), (4096, 5000)];
        put_gpt(&disk, sector, sector, 2, &parts);
        // First usable sector, and the header's own.
        let mut head = vec![0; 92];
        disk.read_at(sector, &mut head).unwrap();
        head[24..32].copy_from_slice(&1_u64.to_le_bytes());
        head[40..48].copy_from_slice(&256_u64.to_le_bytes());
        head[16..20].fill(0);
        let crc = crc_of(&head);
        head[16..20].copy_from_slice(&crc.to_le_bytes());
        disk.write_at(sector, &head).unwrap();
        for (number, end) in [(1, 4096 * sector), (2, (DISK - 5 * 4096 - 1) >> 20 << 20)] {
            let growth = grow(&disk, number).unwrap();
            let before = numbers(&disk);
            // Cut off behind each write, one of both tables is right.
            for count in 0..=growth.writes.len() {
                let cut = MemoryDevice::new(DISK);
                let mut all = vec![0; 1 << 20];
                for at in (0..DISK).step_by(1 << 20) {
                    disk.read_at(at, &mut all).unwrap();
                    cut.write_at(at, &all).unwrap();
                }
                for (index, (offset, bytes)) in growth.writes.iter().take(count + 1).enumerate() {
                    let half = if index == count { bytes.len() / 2 } else { bytes.len() };
                    cut.write_at(*offset, &bytes[..half]).unwrap();
                }
                let found = numbers(&cut);
                let sizes = [before[number as usize - 1].2, growth.partition.size];
                assert!(sizes.contains(&found[number as usize - 1].2), "{sector} {number} {count}");
            }
            growth.write(&disk).unwrap();
            let (_, start, size) = numbers(&disk)[number as usize - 1];
            assert_eq!(start + size, end, "{sector} {number}");
            assert!(grow(&disk, number).unwrap().partition.size == size, "nothing is left to take");
        }
        disk.write_at(sector + 40, &[77]).unwrap();
        assert_eq!(numbers(&disk).len(), 2, "the backup alone is enough");
    }
    let disk = MemoryDevice::new(DISK);
    put_mbr(&disk, 0, &[(0x83, 2048, 100), (0x83, 40000, 7)]);
    for (number, sectors) in [(1, 40000 / 2048 * 2048 - 2048), (2, DISK / 512 - 40000)] {
        let growth = grow(&disk, number).unwrap();
        assert_eq!(growth.partition.size, sectors * 512);
        growth.write(&disk).unwrap();
        assert_eq!(numbers(&disk)[number as usize - 1].2, sectors * 512);
    }
    assert!(grow(&disk, 3).is_err());
}
