//! The slot of a key: a part of the keys that is on one member of the cluster at all times.

use crate::name::hashed_part;
use crate::transport::Slot;

/// The number of slots of every cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Returns the slot of a key.
pub(super) fn slot_of(key: &[u8]) -> Slot {
    Slot(crc16(hashed_part(key)) % SLOTS)
}

/// The CRC-16 of XMODEM: polynomial 0x1021, no reflection, starting with zero. A product of the polynomial and half a
/// byte has no carries, so it is what the half byte leaves.
fn crc16(bytes: &[u8]) -> u16 {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    halves.fold(0, |crc: u16, half| (crc << 4) ^ (0x1021 * ((crc >> 12) ^ u16::from(half))))
}

#[cfg(test)]
mod tests {
    use lockson_harness::RedisServer;

    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        let check = |key: &str, slot: u16| assert_eq!(slot_of(key.as_bytes()), Slot(slot), "{key}");
        check("", 0);
        check("123456789", 12_739);
        check("foo", 12_182);
        check("{foo}bar", 12_182);
        check("a{foo}{bar}", 12_182);
        check("foo{}{bar}", 8_363);
        check("foo{{bar}}zap", 4_015);
    }

    #[test]
    fn a_real_server_finds_the_same_slots() {
        let server = RedisServer::builder().config("cluster-enabled yes").start();
        let mut connection = server.connection();
        let mut random = 1_u64;
        for number in 0..2_000 {
            let mut key = vec![];
            for _ in 0..number % 12 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                key.push(b"{}ab\xff\x00:{}z"[(random >> 33) as usize % 10]);
            }
            let slot: u16 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(&key).query(&mut connection).unwrap();
            assert_eq!(slot_of(&key), Slot(slot), "{key:?}");
        }
    }
}
