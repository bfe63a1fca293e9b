//! Streams etcd snapshots to stores and back, verified. Knows etcd's snapshot stream and object stores, not Kubernetes.
//!
//! What it stores, for one snapshot:
//!
//! ```text
//! <prefix>/<namespace>/<cluster>/<lineage>/<time>-<owner8>-<pod8>/
//!     snapshot.db[.zst|.gz][.age]   the bytes of etcd's snapshot stream, its 32-byte sha256 at the end included
//!     manifest.json                 written last: its presence means complete
//!     proofs/<time>-<level>.json    what was found later, one for each verification; the manifest is never changed
//! ```
//!
//! While an upload to a bucket is under way, `<lineage>/uploads/<time>-<owner8>-<pod8>.json` says so and until when.
//!
//! `zstd -d` or `gzip -d` on the data, and `age -d` before where it is encrypted, gives a file that
//! `etcdutl snapshot restore` takes: nothing is locked in. A save knows public keys alone and cannot read its own backups.
//!
//! What it promises:
//!
//! * A manifest is only ever written for data whose hash, as etcd itself computed it, was found right, and which nothing
//!   contradicts: not its pages, not a member (HashKV), not the store that is asked for its length and its bytes. What could
//!   not be asked stands in it. A run that ends otherwise leaves no manifest and takes its upload back.
//! * A restored data directory appears on the volume at once, by one rename, after the stored object, the database and
//!   etcd's own hash have all been checked. Nothing half done can be started, and nothing that is not ours is touched.
//! * Memory is bounded, and grows by 5 MiB a gigabyte of usual values (`pipe.rs` has the budget, a test measures it).
//! * Every end has a class, which is the exit code ([`contract::ExitClass`]), and a sentence without secrets.
//!
//! The verbs are [`save::run`], [`rehearse::run`], [`inspect::run`], [`list::run`], [`latest::run`], [`restore::run`], [`verify::run`],
//! [`probe::run`], [`gate::run`] and [`install::run`]; [`report::finish`] ends a run.
//! The request and report types are in [`contract`], which, with [`layout`], is the part that a planner may use.

pub mod contents;
pub mod contract;
pub mod copy;
pub mod crypt;
pub mod error;
pub mod gate;
pub mod identity;
pub mod inspect;
pub mod install;
pub mod latest;
pub mod layout;
pub mod list;
pub mod manifest;
pub mod probe;
pub mod progress;
pub mod proof;
pub mod recall;
pub mod rehearse;
pub mod report;
pub mod restore;
pub mod save;
pub mod scan;
pub mod source;
mod spool;
pub mod store;
pub mod trailer;
pub mod verify;
pub mod wal;

mod agree;
mod besides;
mod clock;
mod data_dir;
mod files;
mod graft;
mod interrupt;
mod look;
mod mark;
mod memory;
mod pack;
mod pipe;
mod pool;
mod publish;
mod read_back;
mod reread;
mod scratch;
mod sha256;
mod stored;
mod unpack;
mod writeback;

pub use error::{Error, Result};
