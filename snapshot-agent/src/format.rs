//! Layer 2: the format of a stored snapshot: keys, manifest, trailer, compression, encryption. Reads and writes bytes, and
//! calls no store.

pub mod crypt;
pub(crate) mod pack;
pub(crate) mod packed;
pub(crate) mod snapshot_scan;
pub mod trailer;
pub(crate) mod unpack;
