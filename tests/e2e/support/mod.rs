//! What stories are told with.

pub mod env;
pub mod kube_helpers;
pub mod leftovers;
pub mod make;
pub mod probe;
pub mod steps;
pub mod world;
