//! Layer 1: files, memory, time, processes. Knows the machine, not snapshots.

pub(crate) mod clock;
pub mod crypto;
pub(crate) mod files;
pub(crate) mod interrupt;
pub(crate) mod memory;
pub(crate) mod pool;
pub mod private;
pub(crate) mod process;
pub mod progress;
pub(crate) mod scratch;
pub mod sha256;
pub(crate) mod spool;
pub(crate) mod table;
pub(crate) mod writeback;
