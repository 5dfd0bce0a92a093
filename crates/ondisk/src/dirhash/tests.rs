use super::*;

/// `11111111-2222-3333-4444-555555555555` as the four words of the superblock.
const SEED: [u32; 4] = [0x1111_1111, 0x3333_2222, 0x5555_4444, 0x5555_5555];

fn bytes_of(hex: &str) -> Vec<u8> {
    if hex == "-" {
        return Vec::new();
    }
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn every_variant_gives_the_recorded_answers() {
    let mut seen = 0;
    for line in include_str!("vectors.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split(' ');
        let name = bytes_of(fields.next().unwrap());
        for seed in [[0; 4], SEED] {
            for unsigned in [false, true] {
                for version in [HashVersion::Legacy, HashVersion::HalfMd4, HashVersion::Tea] {
                    let (major, minor) = fields.next().unwrap().split_once(':').unwrap();
                    let expected = DirHash {
                        major: u32::from_str_radix(major, 16).unwrap(),
                        minor: u32::from_str_radix(minor, 16).unwrap(),
                    };
                    let hasher = NameHasher::new(version, unsigned, seed);
                    assert_eq!(hasher.hash(&name), expected, "{version:?} {unsigned} {name:02x?}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 900, "only {seen} answers were recorded");
}

#[test]
fn versions_keep_their_numbers_and_others_are_refused() {
    for raw in 0..=2 {
        assert_eq!(HashVersion::from_raw(raw).map(HashVersion::raw), Some(raw));
    }
    // 3 to 5 are the unsigned variants in memory only; 6 is SipHash, which needs the key.
    for raw in 3..=255 {
        assert_eq!(HashVersion::from_raw(raw), None);
    }
}

#[test]
fn longer_than_any_name_does_no_harm() {
    for version in [HashVersion::Legacy, HashVersion::HalfMd4, HashVersion::Tea] {
        let long = vec![0xFF; 70_000];
        assert_eq!(NameHasher::new(version, false, SEED).hash(&long).major & 1, 0);
    }
}
