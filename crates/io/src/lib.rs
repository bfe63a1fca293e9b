//! Files, memory, time, processes, and connections ([`net`]). Knows the machine, and no snapshot.

pub mod clock;
pub mod crypto;
pub mod files;
pub mod interrupt;
pub mod memory;
pub mod net;
pub mod pool;
pub mod private;
pub mod process;
pub mod progress;
pub mod scratch;
pub mod sha256;
pub mod spool;
pub mod table;
pub mod writeback;
