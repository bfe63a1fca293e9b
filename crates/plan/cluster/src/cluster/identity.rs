//! Whether the answering etcd has the cluster ID that the cluster formed with.
//!
//! Decides that a formed cluster changes nothing while another cluster ID answers (I2). Before the cluster has formed,
//! `bootstrap.rs` compares the IDs.

use holdfast_api::condition::Reason;
use holdfast_contract::hex_id;

use super::Observed;
use super::intervals::POLL;
use holdfast_base::Next;

/// Returns the stop while another etcd answers.
pub(super) fn another_etcd(seen: &Observed) -> Option<Next> {
    let (etcd, formed) = (seen.etcd.known()?, seen.latches().formed?);
    (hex_id(etcd.cluster_id) != formed.cluster_id).then(|| {
        let message = format!(
            "the members answer for cluster {:x}, but this cluster formed as {}. Holdfast changes nothing. Find out \
             which etcd answers",
            etcd.cluster_id, formed.cluster_id
        );
        Next::wait(Reason::SafetyStop, message, POLL)
    })
}
