//! The smallest sizes, next to those of resize2fs -M.

use super::*;

/// Options of mke2fs by seed.
const TYPES: [&[&str]; 5] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext3"],
    &["-t", "ext2", "-b", "2048"],
    &["-t", "ext4", "-O", "^flex_bg,^resize_inode"],
];

/// Files of a seed: some directories, many small files, some large ones, a part removed again.
fn fill(root: &Path, seed: u64, bytes: u64) {
    let mut random = Random(seed);
    let mut left = bytes / 100 * (15 + random.below(45));
    for round in 0.. {
        let directory = root.join(format!("directory {}", random.below(12)));
        std::fs::create_dir_all(&directory).unwrap();
        let len = if random.one_in(6) { random.below(bytes / 40) } else { random.below(40_000) };
        if len > left || std::fs::write(directory.join(format!("file {round}")), random.bytes(len)).is_err() {
            break;
        }
        left -= len;
        if random.one_in(4) {
            let _ = std::fs::remove_file(directory.join(format!("file {}", random.below(round + 1))));
        }
    }
}

fn blocks_of(image: &Path) -> u64 {
    let raw = platfs_device::read_superblock(&*open(image)).unwrap();
    let geometry = ondisk::geometry::Geometry::from_superblock(&raw).unwrap();
    geometry.blocks << geometry.block_size.log2()
}

#[test]
#[ignore = "20 volumes, minutes; cargo test -p platfs-reshape --lib the_least_sizes -- --ignored --nocapture"]
fn the_least_sizes_of_twenty_volumes_are_below_those_of_resize2fs() {
    if !tool::have_tools("resize", &["mke2fs", "e2fsck", "resize2fs"]) || !have_loop_mount("resize") {
        return;
    }
    let scratch = Scratch::new("resize-least");
    let mut ratios = Vec::new();
    for seed in 1..=20_u64 {
        let mut random = Random(seed * 7919);
        let options = TYPES[usize::try_from(seed).unwrap() % TYPES.len()];
        let size = (48 + random.below(400)) * MIB;
        let image = scratch.join("image");
        File::create(&image).unwrap().set_len(size).unwrap();
        tool::run(tool::command("mke2fs").args(["-q", "-F"]).args(options).arg(&image));
        fill(Mounted::read_write(&image).unwrap().path(), seed, size);
        let theirs = copy(&image, &scratch.join("theirs"));
        tool::command("e2fsck").arg("-fy").arg(&theirs).output().unwrap();
        tool::run(tool::command("resize2fs").arg("-M").arg(&theirs));
        let theirs = blocks_of(&theirs);
        let plan = Plan::smallest(open(&image)).unwrap();
        let ours = plan.size_bytes();
        carry_out(&image, plan).unwrap();
        fsck::assert_clean(&image);
        let ratio = ours as f64 / theirs as f64;
        eprintln!("{seed}: {options:?} {} MiB: {ours} and {theirs} bytes, {ratio:.4}", size >> 20);
        ratios.push(ratio);
        std::fs::remove_file(&image).unwrap();
    }
    ratios.sort_by(f64::total_cmp);
    eprintln!("{:.4} to {:.4}, median {:.4}", ratios[0], ratios[19], f64::midpoint(ratios[9], ratios[10]));
    assert!(ratios[19] <= 1.0);
}
