//! Memory for the entries of a growing segment.
//!
//! This file decides what a writer needs of that memory. The agent keeps long entries in a file; here is the plain one.

use std::io::{self, Write};

/// A growing run of bytes. A failure shows when the bytes are written out.
pub trait Body: Sized {
    /// Returns an empty run of the same kind.
    #[must_use]
    fn empty(&self) -> Self;

    /// Adds bytes at the end.
    fn add_bytes(&mut self, bytes: &[u8]);

    /// Moves all bytes of the other run to the end.
    fn take_in(&mut self, other: Self);

    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes all bytes.
    fn write_to(self, out: &mut impl Write) -> io::Result<()>;
}

impl Body for Vec<u8> {
    fn empty(&self) -> Self {
        Self::new()
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn take_in(&mut self, mut other: Self) {
        self.append(&mut other);
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn write_to(self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self)
    }
}
