//! Reads bbolt files, the databases of etcd, in bounded memory. Knows no etcd server and no store, and does no I/O of its own.
//!
//! * [`scan`] proves the contents of a database from a stream of its bytes or from a file.
//! * [`graft`] gives a database another membership by adding pages.
//! * [`merge`] takes a database to a later revision by adding the records of a log.

#[cfg(test)]
#[path = "../../../snapshot-agent/tests/real/scan/support/bolt.rs"]
mod bolt;
pub mod graft;
pub mod merge;
pub mod scan;
