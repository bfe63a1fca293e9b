//! The snapshots in a store, their owners, their records, and the check that the store returns them.

pub mod announced;
pub mod attempts;
pub mod digest;
pub mod fallen;
pub mod foreign;
pub mod inventory;
pub mod log;
pub mod merged;
pub mod past;
pub mod proof;
pub mod publish;
pub mod read_back;
pub mod read_folder;
pub mod recall;
pub mod recorded;
pub mod removable_store;
pub mod removal;
pub mod removal_record;
pub mod reread;
pub mod store_id;
pub mod stored;
pub mod target;
