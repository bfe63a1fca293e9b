//! Proves the contents of a snapshot from its stream: one pass over the database's bytes, in bounded memory.
//!
//! The scan decides whether the bytes are a whole bbolt database with a sound tree, and returns its facts: revision, key count,
//! members, leases, and etcd's own HashKV for comparison with a live member. The callers decide the source of the bytes, check
//! the sha256 at their end, and ask the member.
//!
//! A bbolt file is a tree of pages in any order: the tree's shape is known only after its last page. So the scan reduces every
//! page that may belong to the tree to a summary (`summary.rs`), and walks the tree over the summaries after the last page
//! (`tree.rs`). A page's header counts only when the tree reaches the page: freed pages keep old headers, and a user's value
//! can look like a page.
//!
//! ```text
//! push ─► stream.rs ─► page.rs ─► summary.rs ─┐
//!                                             ├─► tree.rs ─► contents.rs ─► Proven
//! a local file ─► reader.rs ─► page.rs ───────┘        └───► hashkv.rs ────┘
//! ```
//!
//! Proven: every byte of every record of the bucket `key` that HashKV covers, once the member's HashKV is equal; the shape of
//! the tree and the order of its keys in all buckets. Not proven: free pages, the unused end of pages, which of two valid meta
//! pages was meant, names and values in other buckets as far as etcd could read them, a bucket's sequence number (etcd does not
//! use it), records that HashKV omits, and a count that has become 0 in a bucket other than `key` of one page. The sha256 of
//! the whole covers all of these.

mod budget;
mod contents;
mod hashkv;
pub(crate) mod page;
mod proof;
mod prove;
mod reader;
pub(crate) mod records;
mod stream;
mod summary;
mod tree;
pub(crate) mod wire;

pub use proof::{Alarm, HashKv, Lease, MOST_NAMED, Member, NoHashKv, Proven, ScanError};
pub use prove::NEVER;
pub use reader::{Names, ReadAt, Reader, Record};
pub use stream::{Options, Scan};
