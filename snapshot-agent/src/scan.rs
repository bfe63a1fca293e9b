//! Proves what is in a snapshot while it goes by: one pass over the database's bytes, in bounded memory.
//!
//! It decides whether the bytes are a whole bbolt database whose tree holds together, and says what is in it: revision,
//! key count, members, leases, and etcd's own HashKV, which a live member can be asked for and compared with. Where the
//! bytes come from, the sha256 at their end and the comparison with the member are not its business.
//!
//! A bbolt file is a tree of pages in no order: the tree's shape is known only when its last page has been seen. So
//! every page that may be part of the tree is reduced to a summary as it goes by (`summary.rs`), and after the last one
//! the tree is walked over the summaries (`tree.rs`). A page's header is not trusted before the tree reaches it: freed
//! pages keep old headers, and a user's value can look like a page.
//!
//! ```text
//! push ─► stream.rs ─► page.rs ─► summary.rs ─┐
//!                                             ├─► tree.rs ─► verbs/contents.rs ─► Proven
//! a local file ─► reader.rs ─► page.rs ───────┘        └───► hashkv.rs ──┘
//! ```
//!
//! What is proven: every byte of every record of the bucket `key` that HashKV covers, once the member's HashKV is equal;
//! the shape of the tree and the order of its keys in all buckets. What is not: free pages, the unused end of pages,
//! which of two valid meta pages was meant, names and values in other buckets as far as etcd could read them, a bucket's
//! sequence number (etcd has no use for it), records that HashKV leaves out, and a count that has become 0 in a bucket
//! other than `key` of one page. For all of those there is the sha256 of the whole.

mod budget;
mod contents;
mod hashkv;
pub(crate) mod page;
mod proof;
mod prove;
mod reader;
mod records;
mod snapshot;
mod stream;
mod summary;
mod tree;
mod wire;

pub use proof::{Alarm, HashKv, Lease, MOST_NAMED, Member, NoHashKv, Proven, ScanError};
pub(crate) use prove::NEVER;
pub use reader::{Names, ReadAt, Reader, Record};
pub(crate) use snapshot::SnapshotScan;
pub use stream::{Options, Scan};
