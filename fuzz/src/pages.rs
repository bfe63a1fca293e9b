//! Changes to a database as one of pages: what a change of single bytes hardly ever makes of a sound one.
//!
//! It decides nothing about what comes out: sound or not is the oracle's business.

/// Where the page size stands in the first meta page.
const PAGE_SIZE: usize = 24;
/// A page's header: ID, flags, count, overflow.
const HEADER: usize = 16;

/// A small generator: the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % below.max(1)
    }
}

/// Makes one change to a database of no more than `longest` bytes, which it does not pass. Too short a one stays as it is.
pub fn change(database: &mut Vec<u8>, longest: usize, seed: u32) {
    let mut dice = Dice(u64::from(seed) << 20 | 0x9e37);
    dice.below(1);
    let size =
        database.get(PAGE_SIZE..).and_then(|bytes| bytes.first_chunk()).map_or(0, |size| u32::from_le_bytes(*size));
    let size = size as usize;
    if size < 1 << 10 || database.len() / size < 3 {
        return;
    }
    let pages = database.len() / size;
    let (from, to) = (dice.below(pages), 2 + dice.below(pages - 2));
    match dice.below(5) {
        // Something that may be a pointer leads to another page.
        0 | 1 => {
            let is_pointer = |at: &usize| number(database, *at).is_some_and(|id| (2..pages as u64).contains(&id));
            let pointers: Vec<usize> = (2 * size..database.len()).filter(is_pointer).collect();
            if let Some(at) = pointers.get(dice.below(pointers.len())) {
                put(database, *at, to as u64);
            }
        }
        // A page is there again, in another's place or behind all, under the number that it has there.
        2 => {
            database.copy_within(from * size..(from + 1) * size, to * size);
            put(database, to * size, to as u64);
        }
        3 => {
            if (pages + 1) * size <= longest {
                database.truncate(pages * size);
                database.extend_from_within(from * size..(from + 1) * size);
                put(database, pages * size, pages as u64);
            }
        }
        // A header says something else.
        _ => {
            let small = [0, 1, 2, 4, 16, 63, pages];
            let value = small[dice.below(small.len())] as u16;
            let at = to * size + [8, 10, 12][dice.below(3)];
            database[at..at + 2].copy_from_slice(&value.to_le_bytes());
            debug_assert!(at + 2 <= to * size + HEADER);
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}
