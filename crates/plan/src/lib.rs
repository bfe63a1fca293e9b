//! The decisions of the operator: plans, and the rules that each plan keeps. This crate only gathers them.

pub use holdfast_backup::{schedule, snapshot, store};
pub use holdfast_base::*;
pub use holdfast_cluster::{cluster, member, returns};
pub use holdfast_safety as safety;
pub use holdfast_users as user;
