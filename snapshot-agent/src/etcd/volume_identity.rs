//! The file in a data directory that says whose data this is.
//!
//! Written before etcd's first start or together with a restored directory, read by the gate at every start. It
//! decides nothing: `verbs/gate.rs` does. Fields of later versions are kept, because an older gate may count a start.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::contract::{CameAlong, IdentityFlags};
use crate::error::{Error, Result, may_pass};
use crate::util::files;

/// The file's name inside the data directory. etcd warns about a file it does not know there and goes on.
pub const IDENTITY_FILE: &str = "holdfast-identity.json";

/// The format this version writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Whose data a data directory holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// etcd's cluster token: one incarnation of one cluster.
    pub cluster_token: String,
    /// Name of the member.
    pub member_name: String,
    /// UID of the `EtcdMember`.
    pub member_uid: String,
    /// UID of the claim behind the volume.
    pub claim_uid: String,
    /// The restore that filled this directory, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
    /// etcd cluster ID (hex), once a WAL has named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd member ID (hex), once a WAL has named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// How often the gate has let etcd start here: containers, not Pods.
    pub start_count: u64,
    /// The highest number of a Pod of this member that has run here. The operator knows which Pod has served last: a
    /// smaller number here means an older copy (I27).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pod_start: u64,
    /// Version of the agent that wrote this file first.
    pub created_by: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A part of an [`Identity`] in which it may differ from the one wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The cluster token.
    Cluster,
    /// The member's name or UID.
    Member,
    /// The claim's UID.
    Claim,
    /// The UID of the restore that filled the directory.
    Restore,
}

/// What a directory was restored from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// UID of the restore attempt.
    pub restore_uid: String,
    /// URI of the data object.
    pub uri: String,
    /// Bytes of the database.
    pub db_bytes: u64,
    /// sha256 (hex) of the database.
    pub sha256: String,
    /// When the snapshot was taken (RFC 3339).
    pub taken_at: String,
    /// `namespace/name` of the cluster it was taken from.
    pub from_cluster: String,
    /// Whether no quorum answered when it was saved: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// The snapshot's revision; absent where its contents were not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// How far the revision was moved on.
    #[serde(default)]
    pub revision_bump: u64,
    /// What it holds beside keys; absent where its contents were not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_along: Option<CameAlong>,
    /// What of the contents was not compared with what was recorded when it was saved, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Why a file of this name does not say whose the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The operating system would not read it just now: of its content nothing is known.
    Io(io::ErrorKind, String),
    /// It was read, and says nothing.
    Nonsense(String),
}

impl Identity {
    /// The first part that is not the one wanted, and a message that names both values.
    pub(crate) fn difference(&self, wanted: &IdentityFlags, restore_uid: Option<&str>) -> Option<(Part, String)> {
        let IdentityFlags { cluster_token, member_name, member_uid, claim_uid } = wanted;
        let restored = self.restore_uid().unwrap_or("none");
        let pairs = [
            (Part::Cluster, "cluster token", self.cluster_token.as_str(), cluster_token.as_str()),
            (Part::Member, "member", self.member_name.as_str(), member_name.as_str()),
            (Part::Member, "member UID", self.member_uid.as_str(), member_uid.as_str()),
            (Part::Claim, "claim UID", self.claim_uid.as_str(), claim_uid.as_str()),
            (Part::Restore, "restore UID", restored, restore_uid.unwrap_or(restored)),
        ];
        pairs
            .into_iter()
            .find(|(_, _, found, wanted)| found != wanted)
            .map(|(part, what, found, wanted)| (part, format!("its {what} is {found}, not {wanted}")))
    }

    /// The identity of a directory that nothing has started on yet.
    pub fn new(flags: &IdentityFlags) -> Self {
        let IdentityFlags { cluster_token, member_name, member_uid, claim_uid } = flags.clone();
        Self {
            format_version: FORMAT_VERSION,
            cluster_token,
            member_name,
            member_uid,
            claim_uid,
            restored: None,
            cluster_id: None,
            member_id: None,
            start_count: 0,
            pod_start: 0,
            created_by: env!("CARGO_PKG_VERSION").to_owned(),
            other: Map::new(),
        }
    }

    /// Reads the file in this data directory. `Ok(None)`: there is none.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, Unread> {
        let json = match fs::read(data_dir.join(IDENTITY_FILE)) {
            Ok(json) => json,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if may_pass(error.kind()) => return Err(Unread::Io(error.kind(), error.to_string())),
            Err(error) => return Err(Unread::Nonsense(format!("{IDENTITY_FILE} cannot be read: {error}"))),
        };
        let identity: Self = serde_json::from_slice(&json)
            .map_err(|error| Unread::Nonsense(format!("{IDENTITY_FILE} is not valid: {error}")))?;
        if identity.format_version == 0 || identity.format_version > FORMAT_VERSION {
            return Err(Unread::Nonsense(format!(
                "{IDENTITY_FILE} has format {}, this agent reads up to {FORMAT_VERSION}",
                identity.format_version
            )));
        }
        Ok(Some(identity))
    }

    /// Writes the file into this data directory; when this returns, it is there also after a power cut.
    pub fn write(&self, data_dir: &Path) -> Result<()> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::config(format!("the identity cannot be written: {error}")))?;
        json.push(b'\n');
        files::put(&data_dir.join(IDENTITY_FILE), 0o600, |file| file.write_all(&json))
    }

    /// UID of the restore that filled this directory, if one did.
    pub fn restore_uid(&self) -> Option<&str> {
        self.restored.as_ref().map(|restored| restored.restore_uid.as_str())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> IdentityFlags {
        IdentityFlags {
            cluster_token: "t".to_owned(),
            member_name: "m".to_owned(),
            member_uid: "mu".to_owned(),
            claim_uid: "cu".to_owned(),
        }
    }

    #[test]
    fn what_was_written_is_read_and_unknown_fields_survive() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Identity::read(folder.path()), Ok(None));
        let mut identity = Identity::new(&flags());
        identity.other.insert("later".to_owned(), Value::Bool(true));
        identity.write(folder.path()).unwrap();
        let mut again = Identity::read(folder.path()).unwrap().unwrap();
        assert_eq!(again, identity);
        again.start_count += 1;
        again.write(folder.path()).unwrap();
        assert_eq!(Identity::read(folder.path()).unwrap().unwrap().other["later"], Value::Bool(true));
    }

    #[test]
    fn a_file_from_before_pods_were_counted_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut identity = Identity { start_count: 3, pod_start: 7, ..Identity::new(&flags()) };
        identity.write(folder.path()).unwrap();
        assert_eq!(Identity::read(folder.path()).unwrap().unwrap().pod_start, 7);
        let mut json: Value = serde_json::from_slice(&fs::read(folder.path().join(IDENTITY_FILE)).unwrap()).unwrap();
        assert_eq!(json.as_object_mut().unwrap().remove("podStart"), Some(Value::from(7)));
        fs::write(folder.path().join(IDENTITY_FILE), json.to_string()).unwrap();
        identity.pod_start = 0;
        assert_eq!(Identity::read(folder.path()), Ok(Some(identity)));
    }

    #[test]
    fn a_broken_file_is_not_an_absent_one() {
        let folder = tempfile::tempdir().unwrap();
        for content in ["", "{", "{}", r#"{"formatVersion":1}"#] {
            fs::write(folder.path().join(IDENTITY_FILE), content).unwrap();
            assert!(matches!(Identity::read(folder.path()), Err(Unread::Nonsense(_))), "{content:?}");
        }
        let newer = serde_json::to_string(&Identity { format_version: 2, ..Identity::new(&flags()) }).unwrap();
        fs::write(folder.path().join(IDENTITY_FILE), newer).unwrap();
        assert!(matches!(Identity::read(folder.path()), Err(Unread::Nonsense(why)) if why.contains("format 2")));
        // What the disk does not give says nothing of what is on it.
        fs::remove_file(folder.path().join(IDENTITY_FILE)).unwrap();
        std::os::unix::fs::symlink(IDENTITY_FILE, folder.path().join(IDENTITY_FILE)).unwrap();
        assert!(matches!(Identity::read(folder.path()), Err(Unread::Io(..))));
    }
}
