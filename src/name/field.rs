//! The field of a value in the hash of a group lock: a hash of the value, in Base64.

use highway::{HighwayHash, Key, PortableHash};

/// The field of a value: HighwayHash-128 of its bytes, both words big endian, in Base64 without the final `==`.
pub(super) fn of_value(value: &[u8]) -> String {
    let words = PortableHash::new(Key(KEY)).hash128(value);
    let bits = (u128::from(words[0]) << 64) | u128::from(words[1]);
    // Base64 takes six bits for a letter; the last letter has the remaining two bits, and four zeros.
    let six_bits = |letter| (bits << (6 * letter)) >> (u128::BITS - 6);
    (0..LETTERS_OF_A_FIELD).map(|letter| char::from(ALPHABET[six_bits(letter) as usize])).collect()
}

/// The key of every Redisson client.
const KEY: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xf39c_c060_5ced_c834, 0x1082_276b_f3a2_7251, 0xf86c_6a11_d0c1_8e95];
const LETTERS_OF_A_FIELD: u32 = 22;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::of_value;

    #[test]
    fn fields_are_those_of_redisson() {
        let check = |value: &str, field| assert_eq!(of_value(value.as_bytes()), field, "{value:?}");
        check("", "t6rZwibGo2uy1OSmNVe8pg");
        check("student:001", "DqvoYruF5eyLDrILcprmBw");
        check("student:002", "Lcoy0ji/MncMvbqDj+KCvA");
        check("test1", "sMUTHC2Ql4EaCGlDp3W/MQ");
        check("test2", "436CZJNgLJy17cg3htdgnw");
        check("0123456789abcdef0123456789abcdef", "08hr0B8iaf3PoSsWAS8sWA");
        check("0123456789abcdef0123456789abcdefXYZ", "hqCW9AC7m5woB/807nnMQQ");
    }
}
