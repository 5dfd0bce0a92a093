//! CRC-32 as the first version of journal checksums uses it: the polynomial of Ethernet, most significant
//! bit first, neither reflected nor inverted.

const POLYNOMIAL: u32 = 0x04C1_1DB7;

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index: u32 = 0;
    while index < 256 {
        let mut value = index << 24;
        let mut bit = 0;
        while bit < 8 {
            value = if value >> 31 == 1 { value << 1 ^ POLYNOMIAL } else { value << 1 };
            bit += 1;
        }
        table[index as usize] = value;
        index += 1;
    }
    table
}

static TABLE: [u32; 256] = table();

/// Goes on with a checksum over more bytes.
#[expect(clippy::indexing_slicing, reason = "an index of eight bits into 256 entries")]
pub(super) fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| crc << 8 ^ TABLE[usize::from(crc.to_be_bytes()[0] ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        // CRC-32/MPEG-2: the same parameters with the seed of all ones.
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_E6E7);
    }
}
