//! Reusable buffers.
//!
//! Every byte passes several threads, and the allocator keeps memory for a while that one thread allocates and another frees:
//! measured, 30 to 50 MiB in a save. So the steps exchange pieces of one size, and a free piece is filled next. The queues
//! bound the number of pieces, not this file.

use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

/// Large enough that waking a thread is cheap compared with hashing the piece, small enough to hold some dozens.
pub const PIECE: usize = 512 << 10;

/// Keeps free buffers until the run ends.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A buffer of [`PIECE`] bytes, filled from its start.
pub struct Buffer {
    /// Always of full length, so that reuse needs no zeroing.
    space: Vec<u8>,
    filled: usize,
    pool: Pool,
}

impl Pool {
    /// Returns an empty buffer.
    pub fn take(&self) -> Buffer {
        let free = self.free.lock().ok().and_then(|mut free| free.pop());
        Buffer { space: free.unwrap_or_else(|| vec![0; PIECE]), filled: 0, pool: self.clone() }
    }
}

impl Buffer {
    /// Copies as much as fits, and returns the number of bytes.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let length = room.len().min(bytes.len());
        if let (Some(room), Some(bytes)) = (room.get_mut(..length), bytes.get(..length)) {
            room.copy_from_slice(bytes);
        }
        self.filled += length;
        length
    }

    /// Copies from `rest`. Returns the buffer if it is full, and leaves an empty one in its place: call it until it returns
    /// `None`.
    pub fn fill(&mut self, rest: &mut &[u8]) -> Option<Self> {
        *rest = rest.get(self.put(rest)..).unwrap_or_default();
        self.is_full().then(|| self.take())
    }

    /// Returns the filled buffer, and leaves an empty one in its place.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let empty = self.pool.take();
        std::mem::replace(self, empty)
    }

    /// Returns the unfilled part.
    pub fn room(&mut self) -> &mut [u8] {
        self.space.get_mut(self.filled..).unwrap_or_default()
    }

    /// Marks this many bytes of [`Buffer::room`] as filled.
    pub fn advance(&mut self, bytes: usize) {
        self.filled = self.space.len().min(self.filled + bytes);
    }

    /// Whether the piece holds no byte.
    pub const fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Whether no byte fits any more.
    pub fn is_full(&self) -> bool {
        self.filled == self.space.len()
    }

    /// Returns the filled part as shared bytes; the buffer is free again after the last share is dropped.
    pub fn freeze(self) -> Bytes {
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
