//! etcd's data beside the key space: members, progress, leases, alarms, users.
//!
//! A value that etcd itself could not read is an error: a member would not start on it.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::budget::{Meter, OverBudget};
use super::proof::{Alarm, Lease, MOST_NAMED, Member};
use super::records::Rev;
use super::wire;

/// Facts of all buckets except `key`.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) scheduled: Option<i64>,
    pub(super) finished: Option<i64>,
    pub(super) consistent_index: Option<u64>,
    pub(super) term: Option<u64>,
    pub(super) storage_version: Option<String>,
    pub(super) cluster_version: Option<String>,
    pub(super) members: Vec<Member>,
    pub(super) removed: Vec<u64>,
    pub(super) auth_enabled: bool,
    pub(super) users: u64,
    pub(super) first_users: BTreeSet<Vec<u8>>,
    pub(super) roles: u64,
    pub(super) leases: Vec<Lease>,
    pub(super) alarms: Vec<Alarm>,
}

/// Reason for which an entry of a bucket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Wrong(&'static str),
    OverBudget,
}

impl From<OverBudget> for Refused {
    fn from(_: OverBudget) -> Self {
        Self::OverBudget
    }
}

/// A member has some hundred bytes; long URLs make it larger, but not this large.
const MAX_MEMBER: usize = 64 << 10;
/// Bytes kept of a user's name: longer names are not distinguished by the rest.
const MAX_NAME: usize = 64;
/// Versions are short.
const MAX_VERSION: usize = 64;

/// A member's value in JSON.
#[derive(Deserialize)]
struct MemberJson {
    id: u64,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Option<Vec<String>>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "clientURLs")]
    client_urls: Option<Vec<String>>,
}

impl Contents {
    /// Takes an entry of a bucket other than `key`. Ignores unknown buckets and keys.
    pub(super) fn add(&mut self, bucket: &[u8], key: &[u8], value: &[u8], meter: &mut Meter) -> Result<(), Refused> {
        match bucket {
            b"meta" => self.meta(key, value).map_err(Refused::Wrong)?,
            b"cluster" if key == b"clusterVersion" => {
                self.cluster_version = Some(version(value).map_err(Refused::Wrong)?);
            }
            b"members" => {
                meter.take(value.len().saturating_mul(2).saturating_add(size_of::<Member>()))?;
                self.members.push(member(key, value).map_err(Refused::Wrong)?);
            }
            b"members_removed" => {
                meter.take(2 * size_of::<u64>())?;
                self.removed.push(member_id(key).map_err(Refused::Wrong)?);
            }
            b"auth" if key == b"authEnabled" => self.auth_enabled = value == [1],
            b"authUsers" => {
                named(key, value).map_err(Refused::Wrong)?;
                self.users += 1;
                self.first_users.insert(key[..key.len().min(MAX_NAME)].to_vec());
                if self.first_users.len() > MOST_NAMED {
                    self.first_users.pop_last();
                }
            }
            b"authRoles" => {
                named(key, value).map_err(Refused::Wrong)?;
                self.roles += 1;
            }
            b"lease" => {
                meter.take(2 * size_of::<Lease>())?;
                let unreadable = |_| Refused::Wrong("a lease cannot be read");
                let (id, ttl) = wire::lease(value).map_err(unreadable)?;
                if key != id.to_be_bytes() {
                    return Err(Refused::Wrong("a lease lies under another's ID"));
                }
                self.leases.push(Lease { id, ttl });
            }
            b"alarm" => {
                meter.take(2 * size_of::<Alarm>())?;
                let unreadable = |_| Refused::Wrong("an alarm cannot be read");
                let (member, kind) = wire::alarm(key).map_err(unreadable)?;
                self.alarms.push(Alarm { member, kind });
            }
            _ => {}
        }
        Ok(())
    }

    fn meta(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let number = || value.as_array::<8>().map(|bytes| u64::from_be_bytes(*bytes)).ok_or("a number is not 8 bytes");
        let revision = || Rev::parse(value).map(|rev| rev.main).ok_or("a compact revision cannot be read");
        match key {
            b"scheduledCompactRev" => self.scheduled = Some(revision()?),
            b"finishedCompactRev" => self.finished = Some(revision()?),
            b"consistent_index" => self.consistent_index = Some(number()?),
            b"term" => self.term = Some(number()?),
            b"storageVersion" => self.storage_version = Some(version(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Returns the file's compact revision, which a member takes for its own at its start.
    pub(super) fn compact_revision(&self) -> Option<i64> {
        self.scheduled.max(self.finished)
    }
}

fn version(value: &[u8]) -> Result<String, &'static str> {
    let version = str::from_utf8(value).ok().filter(|version| version.len() <= MAX_VERSION);
    version.map(str::to_owned).ok_or("a version cannot be read")
}

/// Checks that a user or a role is stored under its own name.
fn named(key: &[u8], value: &[u8]) -> Result<(), &'static str> {
    let name = wire::name(value).map_err(|_| "a user or a role cannot be read")?;
    if name == key { Ok(()) } else { Err("a user or a role lies under another's name") }
}

fn member_id(key: &[u8]) -> Result<u64, &'static str> {
    let id = str::from_utf8(key).ok().and_then(|id| u64::from_str_radix(id, 16).ok());
    id.ok_or("a member's ID is not hexadecimal")
}

fn member(key: &[u8], value: &[u8]) -> Result<Member, &'static str> {
    if value.len() > MAX_MEMBER {
        return Err("a member is too long");
    }
    let json: MemberJson = serde_json::from_slice(value).map_err(|_| "a member is not JSON as etcd writes it")?;
    if json.id != member_id(key)? {
        return Err("a member lies under another's ID");
    }
    Ok(Member {
        id: json.id,
        name: json.name,
        peer_urls: json.peer_urls.unwrap_or_default(),
        client_urls: json.client_urls.unwrap_or_default(),
        learner: json.is_learner,
    })
}
