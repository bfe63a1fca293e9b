//! Converts a proven database into the manifest's record of its contents.

use holdfast_bbolt::scan::Proven;
use holdfast_contract::hex_id;
use holdfast_layout::manifest::Contents;
use serde_json::Map;

/// Returns the manifest's record of a proven database.
pub fn recorded_contents(proven: &Proven) -> Contents {
    Contents {
        revision: proven.revision,
        compact_revision: proven.compact_revision,
        keys: proven.keys,
        revisions: proven.revisions,
        hash_kv: proven.hash_kv.ok().map(|found| found.hash),
        consistent_index: proven.consistent_index,
        members: proven.members.iter().map(|member| hex_id(member.id)).collect(),
        learners: proven.members.iter().filter(|member| member.learner).count() as u64,
        leases: proven.leases.len() as u64,
        alarms: proven.alarms.len() as u64,
        auth_enabled: proven.auth_enabled,
        users: proven.users,
        roles: proven.roles,
        other: Map::new(),
    }
}
