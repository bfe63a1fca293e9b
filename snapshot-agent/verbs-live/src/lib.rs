//! The verbs of `holdfast agent` that read a running etcd; `undelete` also writes it. No verb imports another one.

pub mod compare;
pub mod defrag;
pub mod log;
pub mod save;
pub mod undelete;
