//! Computes etcd's HashKV from the CRCs of its parts.
//!
//! The rule (etcd, `server/storage/mvcc/hash.go`, `unsafeHashByRev`, and `index.go`, `Keep`): CRC-32C over the name `key`
//! and then key and value of every record in order, up to revision R. Of the records at or below the compact revision C
//! only the newest of each key counts, and only if it is no tombstone; but if no key exists at R at all, all of them
//! count. A tombstone at C itself never counts. Here R is always the database's newest revision.

use super::budget::{Meter, Place};
use super::records::{FlaggedKey, Records, Run};
use super::wire::crc32c;

/// Returns the CRC-32C of two concatenated byte strings, from their CRCs and the second length.
///
/// A CRC is a polynomial over GF(2); each following bit multiplies it by x. (crc-fast can do this too, but squares matrices
/// each time: 4 to 100 microseconds instead of 50 nanoseconds.)
pub(super) fn crc32c_concat(first: u32, second: Run) -> u32 {
    let length = second.length;
    let [low, high, ..] = length.to_le_bytes();
    let mut crc = first;
    for (power, byte) in [(&BYTES, low), (&PAGES, high)] {
        if byte != 0 {
            crc = multiply(power.get(usize::from(byte)).copied().unwrap_or(ONE), crc);
        }
    }
    let mut rest = length >> 16;
    let mut power = DOUBLINGS.iter().skip(16);
    while rest != 0 {
        let power = power.next().copied().unwrap_or(ONE);
        if rest & 1 == 1 {
            crc = multiply(power, crc);
        }
        rest >>= 1;
    }
    crc ^ second.crc
}

/// The polynomial, and 1: bits are mirrored, so the highest bit is x to the 0.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;

const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLYNOMIAL & (a & 1).wrapping_neg())
}

/// Products of a number with all values of four bits.
const fn nibbles(a: u32) -> [u32; 16] {
    let b = times_x(a);
    let c = times_x(b);
    let d = times_x(c);
    let (ab, cd) = (a ^ b, c ^ d);
    [0, d, c, cd, b, b ^ d, b ^ c, b ^ cd, a, a ^ d, a ^ c, a ^ cd, ab, ab ^ d, ab ^ c, ab ^ cd]
}

/// Four bits times x to the 4, for the bits that leave at the low end.
const REDUCED: [u32; 16] = nibbles(POLYNOMIAL);

/// Multiplies four bits at a time, from the highest powers, which are the low bits.
const fn multiply(a: u32, b: u32) -> u32 {
    let products = nibbles(b);
    let (mut product, mut shift) = (0_u32, 0);
    while shift < 32 {
        // Masked, so that every index is in range.
        product = (product >> 4) ^ REDUCED[(product & 15) as usize] ^ products[(a >> shift & 15) as usize];
        shift += 4;
    }
    product
}

/// x to the number of bits of 1, 2, 4, 8, ... bytes.
const DOUBLINGS: [u32; 64] = {
    let (mut powers, mut at) = ([0; 64], 0);
    let mut power = ONE >> 8;
    while at < powers.len() {
        powers[at] = power;
        power = multiply(power, power);
        at += 1;
    }
    powers
};

/// x to the number of bits of 0, 1, 2, ... bytes; and of 0, 256, 512, ... bytes.
const BYTES: [u32; 256] = powers(DOUBLINGS[0]);
const PAGES: [u32; 256] = powers(DOUBLINGS[8]);

const fn powers(base: u32) -> [u32; 256] {
    let (mut powers, mut at) = ([ONE; 256], 1);
    while at < powers.len() {
        powers[at] = multiply(powers[at - 1], base);
        at += 1;
    }
    powers
}

/// Result over all records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Folded {
    /// Existing keys, without the empty key of a revision bump.
    pub(super) keys: u64,
    pub(super) hash: u32,
}

/// Folds the records of the leaves, in the tree's order. `None`: the budget is too small.
pub(super) fn fold(records: &Records, leaves: &[Place], count: u64, compact: i64, meter: &mut Meter) -> Option<Folded> {
    // Users cannot write an empty key. A revision bump is an empty value, so its key is empty.
    let bump = records.fingerprints.hash_key(b"");
    let mut seen = Seen::new(count, meter)?;
    let mut kept = Vec::new();
    meter.take(usize::try_from(count.div_ceil(8)).ok()?).ok()?;
    let (mut keys, mut bumps) = (0_u64, 0_u64);
    let mut exists = |key: FlaggedKey| {
        let exists = seen.is_first(key.fingerprint()) && !key.tombstone();
        if exists {
            *(if key.fingerprint() == bump { &mut bumps } else { &mut keys }) += 1;
        }
        exists
    };

    // Backwards: the first record of each key is its newest.
    let mut olds = Vec::new();
    for place in leaves.iter().rev() {
        let mut leaf = records.get(*place)?;
        olds.clear();
        olds.extend(std::iter::from_fn(|| leaf.old()));
        leaf.news().rev().for_each(|key| _ = exists(key));
        for old in olds.iter().rev() {
            push_bit(&mut kept, exists(old.key));
        }
    }

    // Forwards: the CRCs of the counted records.
    let nothing_exists = keys + bumps == 0;
    let mut hash = crc32c(b"key");
    for place in leaves {
        let mut leaf = records.get(*place)?;
        olds.clear();
        let mut all = true;
        while let Some(old) = leaf.old() {
            let keep = pop_bit(&mut kept) || old.main > compact;
            let counts = keep || nothing_exists && !(old.key.tombstone() && old.main == compact);
            all &= counts;
            if counts {
                olds.push(old);
            }
        }
        if all {
            hash = crc32c_concat(hash, leaf.old_run);
        } else {
            hash = olds.iter().fold(hash, |hash, old| crc32c_concat(hash, old.run));
        }
        hash = crc32c_concat(hash, leaf.new_run);
    }
    Some(Folded { keys, hash })
}

/// A stack of bits: bits pushed backwards are popped forwards.
fn push_bit(bits: &mut Vec<u64>, bit: bool) {
    match bits.last_mut() {
        // A leading one marks how far the word is filled.
        Some(word) if *word >> 63 == 0 => *word = *word << 1 | u64::from(bit),
        _ => bits.push(2 | u64::from(bit)),
    }
}

fn pop_bit(bits: &mut Vec<u64>) -> bool {
    let Some(word) = bits.last_mut() else {
        return false;
    };
    let bit = *word & 1 == 1;
    *word >>= 1;
    if *word <= 1 {
        bits.pop();
    }
    bit
}

/// A set of fingerprints with ten bytes each: half of a hash table that doubles.
struct Seen(Vec<u64>);

impl Seen {
    fn new(count: u64, meter: &mut Meter) -> Option<Self> {
        let slots = usize::try_from(count.checked_add(count / 4)?.checked_add(16)?).ok()?;
        meter.take(slots.checked_mul(8)?).ok()?;
        Some(Self(vec![0; slots]))
    }

    /// Adds a fingerprint, and returns whether it is new.
    fn is_first(&mut self, fingerprint: u64) -> bool {
        // Fingerprints have no flags, so this is never the 0 of an empty slot.
        let wanted = fingerprint | 1;
        let start = (u128::from(fingerprint) * self.0.len() as u128) >> 64;
        let (before, after) = self.0.split_at_mut(usize::try_from(start).unwrap_or(0));
        for slot in after.iter_mut().chain(before) {
            if *slot == wanted {
                return false;
            }
            if *slot == 0 {
                *slot = wanted;
                return true;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_polynomial_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn long_lengths_are_as_crc_fast_has_them() {
        let fast = |first: u32, second: u32, length: u64| {
            crc_fast::checksum_combine(crc_fast::CrcAlgorithm::Crc32Iscsi, first.into(), second.into(), length)
        };
        for length in [0, 1, 255, 256, 65_535, 65_536, 1 << 20, (1 << 33) + 12_345, u64::MAX >> 4] {
            assert_eq!(
                u64::from(crc32c_concat(0xdead_beef, Run { length, crc: 77 })),
                fast(0xdead_beef, 77, length),
                "{length}"
            );
        }
    }

    #[test]
    fn bits_come_back_from_the_end() {
        let pattern: Vec<bool> = (0..1000).map(|i| i * i % 7 < 3).collect();
        let mut bits = Vec::new();
        pattern.iter().rev().for_each(|bit| push_bit(&mut bits, *bit));
        assert!(bits.len() <= 1000 / 60);
        assert!(pattern.iter().all(|bit| pop_bit(&mut bits) == *bit));
        assert!(bits.is_empty());
    }

    #[test]
    fn a_set_that_is_full_still_answers() {
        let mut meter = Meter::new(1 << 10);
        let mut seen = Seen::new(8, &mut meter).unwrap();
        let values = (0..26_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !3);
        assert!(values.clone().all(|value| seen.is_first(value)));
        assert!(!values.clone().any(|value| seen.is_first(value)));
    }

    proptest! {
        #[test]
        fn parts_make_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..70_000), cut: prop::sample::Index) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(crc32c_concat(crc32c(first), Run { length: second.len() as u64, crc: crc32c(second) }), crc32c(&bytes));
        }
    }
}
