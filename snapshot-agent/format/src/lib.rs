//! The format of a stored snapshot: trailer, compression, encryption. Reads and writes bytes, and calls no store.

pub mod crypt;
pub mod pack;
pub mod packed;
pub mod snapshot_scan;
pub mod trailer;
pub mod unpack;
