//! Memory: a meter with a limit (I24), and an arena that takes whole blocks from it.

/// The budget is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverBudget;

/// Counts the held bytes against a limit.
#[derive(Debug)]
pub(super) struct Meter {
    limit: usize,
    used: usize,
}

impl Meter {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: 0 }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let used = self.used.checked_add(bytes).filter(|used| *used <= self.limit).ok_or(OverBudget)?;
        self.used = used;
        Ok(())
    }

    pub(super) fn give(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }
}

/// A block is small compared with any usual budget, and large compared with a summary.
const BLOCK: usize = 64 << 10;
/// Places count words, so that 32 bits cover 16 GiB of summaries.
const WORD: usize = 4;

/// The place of an item in an [`Arena`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) u32);

/// Bytes that are added, read, and released together. It grows by blocks: no doubling, no copy, no peak.
#[derive(Debug, Default)]
pub(super) struct Arena {
    blocks: Vec<Vec<u8>>,
    held: usize,
}

impl Arena {
    /// Stores a copy of the bytes, head before body.
    pub(super) fn put(&mut self, head: &[u8], body: &[u8], meter: &mut Meter) -> Result<Place, OverBudget> {
        let length =
            head.len().checked_add(body.len()).and_then(|length| length.checked_add(WORD)).ok_or(OverBudget)?;
        let room = |block: &Vec<u8>| block.capacity() - block.len() >= length;
        if !self.blocks.last().is_some_and(room) {
            let size = length.max(BLOCK);
            meter.take(size)?;
            self.blocks.push(Vec::with_capacity(size));
            self.held = self.held.saturating_add(size);
        }
        let index = self.blocks.len() - 1;
        let block = self.blocks.last_mut().ok_or(OverBudget)?;
        block.resize(block.len().next_multiple_of(WORD), 0);
        // Only places below BLOCK: a larger block holds a single item, at its start.
        let place = index.checked_mul(BLOCK / WORD).and_then(|words| words.checked_add(block.len() / WORD));
        let place = place.and_then(|place| u32::try_from(place).ok()).ok_or(OverBudget)?;
        block.extend_from_slice(head);
        block.extend_from_slice(body);
        Ok(Place(place))
    }

    /// Returns the bytes from a place to the end of its block: an item must know its own end.
    pub(super) fn get(&self, place: Place) -> &[u8] {
        let place = usize::try_from(place.0).unwrap_or(usize::MAX);
        let (index, word) = (place / (BLOCK / WORD), place % (BLOCK / WORD));
        self.blocks.get(index).and_then(|block| block.get(word * WORD..)).unwrap_or_default()
    }

    /// Releases all items.
    pub(super) fn clear(&mut self, meter: &mut Meter) {
        meter.give(self.held);
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_found() {
        let (mut arena, mut meter) = (Arena::default(), Meter::new(10 << 20));
        let things: Vec<Vec<u8>> =
            (0..2000_usize).map(|i| vec![u8::try_from(i % 251).unwrap(); (i * 7919) % 997]).collect();
        let mut places: Vec<Place> = things.iter().map(|thing| arena.put(thing, b"", &mut meter).unwrap()).collect();
        let large = vec![7; 3 * BLOCK + 1];
        places.push(arena.put(&large[..9], &large[9..], &mut meter).unwrap());
        places.push(arena.put(b"", b"last", &mut meter).unwrap());
        for (thing, place) in things.iter().chain([&large, &b"last".to_vec()]).zip(places) {
            assert!(arena.get(place).starts_with(thing));
        }
        assert!(meter.used > 2000 * 400 + 3 * BLOCK);
        arena.clear(&mut meter);
        assert_eq!(meter.used, 0);
    }

    #[test]
    fn no_more_than_the_budget() {
        let (mut arena, mut meter) = (Arena::default(), Meter::new(BLOCK));
        assert!(arena.put(&vec![1; BLOCK - WORD], b"", &mut meter).is_ok());
        assert_eq!(arena.put(&[1; WORD], b"", &mut meter), Err(OverBudget));
        assert_eq!(meter.take(usize::MAX), Err(OverBudget));
    }
}
