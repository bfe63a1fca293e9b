//! Facts of one pass over an `EtcdRestore`: plain values, filled by `operator::observe::restore`.

use holdfast_api::EtcdRestore;

use super::cluster;

/// All values that the status of an `EtcdRestore` depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object.
    pub restore: EtcdRestore,
    /// Its cluster; `None` where the cluster does not exist, and after the return has ended.
    pub cluster: Option<cluster::Observed>,
}
