//! etcd's proof at the end of a snapshot: the last 32 bytes are the sha256 of all bytes before.
//!
//! This file decides whether a sequence of bytes is a whole snapshot. The callers decide its source and destination.

use holdfast_io::sha256::Sha256;

/// Length of the trailer.
pub const TRAILER: usize = 32;

/// etcd writes whole pages, and every page size is a multiple of this (etcdctl checks the same).
const PAGE_UNIT: u64 = 512;

/// Returns the bytes of the database in a file of this size, and whether a trailer follows: a copy of a member's own file has
/// none.
pub const fn database_of(bytes: u64) -> (u64, bool) {
    if bytes % PAGE_UNIT == TRAILER as u64 { (bytes - TRAILER as u64, true) } else { (bytes, false) }
}

/// Size and hash of a whole snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// Bytes of the database, without the trailer.
    pub db_bytes: u64,
    /// sha256 of the database, equal to the trailer.
    pub sha256: [u8; 32],
}

/// Reason for which the bytes are no whole snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrailerError {
    /// No bytes, or fewer than a trailer.
    #[error("the snapshot is empty ({0} bytes)")]
    Empty(u64),
    /// The size cannot be pages and a trailer: the end is missing.
    #[error("the snapshot was cut short: {0} bytes are not whole pages and a trailer")]
    Cut(u64),
    /// The size is possible, but the content differs from its hash.
    #[error("the snapshot's content does not match the sha256 at its end ({0} bytes)")]
    Mismatch(u64),
}

/// Passes a snapshot on except its last 32 bytes, for any pieces.
#[derive(Clone, Debug, Default)]
pub struct KeepBack {
    tail: Vec<u8>,
}

impl KeepBack {
    /// Takes the next bytes, and passes on those that are not among the last 32 so far.
    pub fn pass(&mut self, bytes: &[u8], mut on: impl FnMut(&[u8])) {
        if let Some((settled, tail)) = bytes.split_last_chunk::<TRAILER>() {
            on(&self.tail);
            on(settled);
            self.tail.clear();
            self.tail.extend_from_slice(tail);
            return;
        }
        self.tail.extend_from_slice(bytes);
        let settled = self.tail.len().saturating_sub(TRAILER);
        on(&self.tail[..settled]);
        self.tail.drain(..settled);
    }
}

/// Hashes a snapshot from a stream, without the trailer.
#[derive(Clone, Debug, Default)]
pub struct Hasher {
    hash: Sha256,
    trailer: KeepBack,
    total: u64,
}

impl Hasher {
    /// Takes the next bytes; the pieces' sizes do not matter.
    pub fn update(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let Self { hash, trailer, .. } = self;
        trailer.pass(bytes, |settled| hash.update(settled));
    }

    /// Returns the verdict after the last byte.
    pub fn finish(self) -> Result<Proven, TrailerError> {
        let trailer = TRAILER as u64;
        let Some(db_bytes) = self.total.checked_sub(trailer).filter(|bytes| *bytes > 0) else {
            return Err(TrailerError::Empty(self.total));
        };
        if !db_bytes.is_multiple_of(PAGE_UNIT) {
            return Err(TrailerError::Cut(self.total));
        }
        let sha256 = self.hash.finalize();
        if self.trailer.tail != sha256 {
            return Err(TrailerError::Mismatch(self.total));
        }
        Ok(Proven { db_bytes, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn snapshot(pages: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..pages * 512).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let hash = Sha256::digest(&bytes);
        bytes.extend_from_slice(&hash);
        bytes
    }

    fn verdict<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Proven, TrailerError> {
        let mut hasher = Hasher::default();
        for piece in pieces {
            hasher.update(piece);
        }
        hasher.finish()
    }

    #[test]
    fn nothing_is_no_snapshot() {
        assert_eq!(verdict([]), Err(TrailerError::Empty(0)));
        assert_eq!(verdict([&[0; 31][..]]), Err(TrailerError::Empty(31)));
        // The sha256 of zero bytes alone would match.
        assert_eq!(verdict([&Sha256::digest(b"")[..]]), Err(TrailerError::Empty(32)));
    }

    #[test]
    fn a_cut_at_a_page_is_seen() {
        let bytes = snapshot(4);
        assert_eq!(verdict([&bytes[..4 * 512]]), Err(TrailerError::Cut(2048)), "the trailer is missing");
        assert_eq!(verdict([&bytes[..3 * 512 + 32]]), Err(TrailerError::Mismatch(1568)));
    }

    proptest! {
        #[test]
        fn any_pieces_give_the_same(pages in 1usize..6, cuts in proptest::collection::vec(0usize..3104, 0..20)) {
            let bytes = snapshot(pages);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let proven = verdict(cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]));
            prop_assert_eq!(proven.as_ref().map(|p| p.db_bytes), Ok(pages as u64 * 512));
            prop_assert_eq!(proven, verdict([&bytes[..]]));
        }

        #[test]
        fn any_flipped_bit_is_seen(pages in 1usize..4, at: prop::sample::Index, bit in 0u32..8) {
            let mut bytes = snapshot(pages);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(verdict([&bytes[..]]), Err(TrailerError::Mismatch(bytes.len() as u64)));
        }

        #[test]
        fn any_cut_is_seen(pages in 1usize..4, to: prop::sample::Index) {
            let bytes = snapshot(pages);
            prop_assert!(verdict([&bytes[..to.index(bytes.len())]]).is_err());
        }
    }
}
