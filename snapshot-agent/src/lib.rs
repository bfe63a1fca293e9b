//! Streams etcd snapshots to stores and back, verified. Knows etcd's snapshot stream and object stores, not Kubernetes.
//!
//! What it stores, for one snapshot:
//!
//! ```text
//! <prefix>/<namespace>/<cluster>/<lineage>/<time>-<owner8>-<pod8>/
//!     snapshot.db[.zst|.gz][.age]   the bytes of etcd's snapshot stream, its 32-byte sha256 at the end included
//!     manifest.json                 written last: its presence means complete
//!     proofs/<time>-<level>.json    what was found later, one for each verification; the manifest is never changed
//!     holds/                        with any object in it, no prune removes the snapshot
//! ```
//!
//! Before a prune removes anything, `<lineage>/prunes/<time>-<pod8>.json` names it. While an upload to a bucket is under way, `<lineage>/uploads/<time>-<owner8>-<pod8>.json` says so and until when.
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
//! * Memory is bounded, and grows by 5 MiB a gigabyte of usual values (`verbs/save/pipe.rs` has the budget, a test measures it).
//! * Every end has a class, which is the exit code ([`contract::ExitClass`]), and a sentence without secrets.
//!
//! Layers, from the bottom; a module imports only from layers below its own (`tests/suite/layering.rs` holds it):
//!
//! ```text
//! 0  contract/ error.rs   requests, reports, exit codes: with format/layout.rs the part that a planner may use
//! 1  util/                files, memory, time, processes
//!    net/                 names to addresses, connections, whom TLS trusts
//! 2  format/              keys, manifest, trailer, compression, encryption
//! -  retention/           which snapshots a policy keeps; pure, above format/
//! 3  scan/                the proof: pages, records, HashKV; no I/O
//! 4  store/               S3, Azure, Google, folders
//! 5  catalog/             the snapshots in a store
//!    etcd/                members, etcdutl, files on a volume
//!    graft/               the restore engine that writes once
//! 6  verbs/               one folder for each verb of `holdfast agent`
//! ```

pub mod util;

pub mod catalog;
pub mod contract;
pub mod error;
pub mod etcd;
pub mod format;
mod graft;
pub mod net;
pub mod retention;
pub mod scan;
pub mod store;
pub mod verbs;

pub use error::{Error, Result};
