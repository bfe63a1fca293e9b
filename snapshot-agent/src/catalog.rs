//! Layer 5: the snapshots in a store, their owners, their records, and the check that the store returns them.

pub(crate) mod announced;
pub(crate) mod attempts;
pub(crate) mod begun;
pub(crate) mod digest;
pub(crate) mod foreign;
pub(crate) mod inventory;
pub(crate) mod look;
pub mod proof;
pub(crate) mod publish;
pub(crate) mod read_back;
pub mod recall;
pub(crate) mod recorded;
pub(crate) mod removal;
pub(crate) mod second_look;
pub(crate) mod shelf;
pub(crate) mod store_id;
pub(crate) mod stored;
pub(crate) mod target;
