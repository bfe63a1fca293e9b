//! Buffers that are used again.
//!
//! Every byte passes through several threads, and memory that one thread takes and another gives back is kept by the
//! allocator for a while: measured, 30 to 50 MiB of it in a save. So the steps hand on pieces of one size, and a piece
//! that nobody needs any more is the next one to be filled. Nothing here bounds how many there are: the queues do.

use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

/// Large enough that waking a thread for it costs nothing beside hashing it, small enough to have some dozens.
pub(crate) const PIECE: usize = 512 << 10;

/// Where free buffers are kept until the run ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A buffer of [`PIECE`] bytes, filled from its beginning.
pub(crate) struct Buffer {
    /// Always of full length, so that taking it again costs no zeroing.
    space: Vec<u8>,
    filled: usize,
    pool: Pool,
}

impl Pool {
    /// An empty buffer.
    pub(crate) fn take(&self) -> Buffer {
        let free = self.free.lock().ok().and_then(|mut free| free.pop());
        Buffer { space: free.unwrap_or_else(|| vec![0; PIECE]), filled: 0, pool: self.clone() }
    }
}

impl Buffer {
    /// Copies as much as there is room for, and says how much that was.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let length = room.len().min(bytes.len());
        if let (Some(room), Some(bytes)) = (room.get_mut(..length), bytes.get(..length)) {
            room.copy_from_slice(bytes);
        }
        self.filled += length;
        length
    }

    /// Copies from what is left to copy. A buffer that is full is given out, and an empty one stands in its place: call it
    /// again until none is.
    pub(crate) fn fill(&mut self, rest: &mut &[u8]) -> Option<Self> {
        *rest = rest.get(self.put(rest)..).unwrap_or_default();
        self.is_full().then(|| self.take())
    }

    /// Gives out what is filled, and is empty then.
    pub(crate) fn take(&mut self) -> Self {
        let empty = self.pool.take();
        std::mem::replace(self, empty)
    }

    /// What is not filled yet.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.space.get_mut(self.filled..).unwrap_or_default()
    }

    /// So many bytes of [`Buffer::room`] have been written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.filled = self.space.len().min(self.filled + bytes);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.filled == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filled == self.space.len()
    }

    /// The filled part, shared; the buffer is free again when the last share is gone.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.space.get(..self.filled).unwrap_or_default()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("filled", &self.filled).finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(mut free) = self.pool.free.lock() {
            free.push(std::mem::take(&mut self.space));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_fill_as_many_buffers_as_they_need() {
        let bytes: Vec<u8> = (0..3 * PIECE).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (mut buffer, mut pieces) = (Pool::default().take(), Vec::new());
        for mut rest in [&bytes[..10], &bytes[10..PIECE], &bytes[PIECE..3 * PIECE - 1], &[]] {
            while let Some(full) = buffer.fill(&mut rest) {
                assert!(full.is_full());
                pieces.extend_from_slice(full.as_ref());
            }
            assert!(rest.is_empty() && !buffer.is_full());
        }
        assert_eq!(pieces.len(), 2 * PIECE);
        pieces.extend_from_slice(buffer.take().as_ref());
        assert!(buffer.is_empty());
        assert_eq!(pieces, &bytes[..3 * PIECE - 1]);
    }

    #[test]
    fn a_buffer_comes_back_empty_when_its_last_share_is_gone() {
        let pool = Pool::default();
        let mut buffer = pool.take();
        assert_eq!(buffer.put(&vec![7; PIECE + 1]), PIECE);
        assert!(buffer.is_full());
        assert_eq!(buffer.put(&[7]), 0);
        let mut bytes = buffer.freeze();
        let share = bytes.split_to(10);
        drop(bytes);
        assert_eq!(pool.free.lock().unwrap().len(), 0);
        assert_eq!(share, vec![7; 10]);
        drop(share);
        assert_eq!(pool.free.lock().unwrap().len(), 1);
        let mut again = pool.take();
        assert!(again.is_empty() && again.as_ref().is_empty());
        again.room()[..2].copy_from_slice(b"ab");
        again.advance(2);
        assert_eq!(again.freeze(), "ab");
        assert_eq!(pool.free.lock().unwrap().len(), 1);
    }
}
