//! Streams etcd snapshots to stores and back, verified. Knows etcd's snapshot stream and object stores; of Kubernetes only
//! the kube-apiserver that a drill starts (`rebuild/src/verify/kubernetes.rs`).
//!
//! Objects of one snapshot in a store:
//!
//! ```text
//! <prefix>/<namespace>/<cluster>/<lineage>/<time>-<owner8>-<pod8>/
//!     snapshot.db[.zst|.gz][.age]   the bytes of etcd's snapshot stream, its 32-byte sha256 at the end included
//!     manifest.json                 written last: its presence means complete
//!     proofs/<time>-<level>.json    the result of each later verification; the manifest never changes
//!     holds/                        with any object in it, no prune removes the snapshot
//! ```
//!
//! `agent log` writes segments of etcd's revisions, gaps and checks to `<lineage>/log/` (`crates/layout/src/log.rs`).
//!
//! A prune writes `<lineage>/prunes/<time>-<pod8>.json`, which names the snapshots, before it removes anything. During an
//! upload to a bucket, `<lineage>/uploads/<time>-<owner8>-<pod8>.json` names the upload and the time at which it ends.
//!
//! `zstd -d` or `gzip -d` on the data, after `age -d` where the data is encrypted, gives a file that `etcdutl snapshot restore`
//! takes. A save knows only public keys and cannot read its own backups.
//!
//! Promises:
//!
//! * The agent writes a manifest only after etcd's own hash matched the data, and only if the pages, the members (HashKV) and
//!   the store (length and bytes) do not contradict. The manifest names each check that could not be made. A run that ends
//!   otherwise leaves no manifest and aborts its upload.
//! * A restored data directory appears on the volume by one rename, after the stored object, the database and etcd's own hash
//!   have been checked. etcd cannot start an unfinished restore, and the agent touches no files of other owners.
//! * Memory is bounded, and grows by 5 MiB per gigabyte of usual values (budget in `verbs-live/src/save/pipe.rs`, measured by a test).
//! * Every failure has a class, which is the exit code ([`holdfast_contract::ExitClass`]), and a message without secrets.
//!
//! The crates, from the bottom; each depends only on crates above its own line (Cargo, and `tests/suite/layering.rs`):
//!
//! ```text
//! crates/contract      requests, reports, exit codes: with the operator
//! crates/layout        keys, manifest, retention: with the operator
//! crates/io            files, memory, time, processes; names to addresses, connections, trusted CAs
//! crates/segment       a piece of the log: a run of revisions
//! crates/bbolt         the proof of a database: pages, records, HashKV; the graft and the merge, which add pages
//! crates/store         S3, Azure, Google, folders
//! gate/                what each start of etcd trusts: the gate, the identity of a volume, etcd's log on it
//! format/              trailer, compression, encryption
//! catalog/             the snapshots in a store
//! etcd/                members, etcdutl, files on a volume
//! verbs-common/        texts that verbs share, and the answer about a run
//! verbs-store/         verbs on a store alone
//! verbs-live/          verbs that read a running etcd
//! rebuild/             restore, verify, contents, survey
//! ```
//!
//! This crate only gathers them; `tests/real/` runs them against real servers.

pub use holdfast_catalog as catalog;
pub use holdfast_etcd as etcd;
pub use holdfast_format as format;
pub use holdfast_gate as gate;

/// The verbs of `holdfast agent`.
pub mod verbs {
    pub use holdfast_gate::{gate, install};
    pub use holdfast_rebuild::{contents, restore, survey, verify};
    pub use holdfast_verbs_live::{compare, defrag, log, save, undelete};
    pub use holdfast_verbs_store::{copy, inspect, latest, list, probe, prune, recall, remove, report};
}
