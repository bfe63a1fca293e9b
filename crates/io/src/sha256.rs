//! sha256 of all stored, streamed and restored bytes.
//!
//! This file decides the implementation: that of aws-lc-rs, which has vector code for processors without SHA instructions
//! (Intel before Ice Lake; measured on one: 262 MiB/s, the `sha2` crate's portable code 145) and is in the binary for TLS
//! anyway. With SHA instructions both are equally fast. Tests compare with `sha2`.

use std::fmt;

use aws_lc_rs::digest::{Context, Digest, SHA256, digest};

/// A hash in progress.
#[derive(Clone)]
pub struct Sha256(Context);

impl Sha256 {
    /// Returns the hash of nothing yet.
    pub fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes.as_ref());
    }

    /// Returns the hash of all bytes.
    pub fn finalize(self) -> [u8; 32] {
        array(&self.0.finish())
    }

    /// Hashes all bytes at once.
    pub fn digest(bytes: impl AsRef<[u8]>) -> [u8; 32] {
        array(&digest(&SHA256, bytes.as_ref()))
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sha256").finish_non_exhaustive()
    }
}

/// SHA-256 has 32 bytes.
fn array(digest: &Digest) -> [u8; 32] {
    let mut array = [0; 32];
    array.copy_from_slice(digest.as_ref());
    array
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::Digest as _;

    use super::*;

    proptest! {
        /// Independent of the pieces, and equal to another implementation.
        #[test]
        fn it_is_sha256(bytes in prop::collection::vec(any::<u8>(), 0..5_000), cut in 0_usize..5_000) {
            let wanted: [u8; 32] = sha2::Sha256::digest(&bytes).into();
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            let mut hash = Sha256::new();
            hash.update(head);
            hash.update(tail);
            prop_assert_eq!(hash.finalize(), wanted);
            prop_assert_eq!(Sha256::digest(&bytes), wanted);
        }
    }
}
