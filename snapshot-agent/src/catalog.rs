//! Layer 5: the snapshots in a store, their owners, their records, and the check that the store returns them.

pub(crate) mod announced;
pub(crate) mod attempts;
pub(crate) mod digest;
pub(crate) mod fallen;
pub(crate) mod foreign;
pub(crate) mod inventory;
pub mod log;
pub mod merged;
pub mod proof;
pub(crate) mod publish;
pub(crate) mod read_back;
pub(crate) mod read_folder;
pub mod recall;
pub(crate) mod recorded;
pub(crate) mod removable_store;
pub(crate) mod removal;
pub(crate) mod removal_record;
pub(crate) mod reread;
pub(crate) mod store_id;
pub(crate) mod stored;
pub(crate) mod target;
