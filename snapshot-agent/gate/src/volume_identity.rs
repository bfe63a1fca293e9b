//! The identity file in a data directory: names the owner of the data.
//!
//! The agent writes the file before etcd's first start or with a restored directory, and the gate reads it at every start. This
//! file decides nothing; `verbs/gate.rs` does. Fields of later versions are kept, because an older gate may count a start.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use holdfast_contract::error::{Error, Result, may_pass};
use holdfast_contract::{CameAlong, IdentityFlags, PointReport, SurvivorReport};
use holdfast_io::files;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The file's name inside the data directory. etcd warns about an unknown file there and continues.
pub const IDENTITY_FILE: &str = "holdfast-identity.json";

/// Version of the format that this version writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Owner of the data in a data directory.
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
    /// The restore that filled this directory, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
    /// etcd cluster ID (hex), once a log holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// etcd member ID (hex), once a log holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// Number of starts of etcd that the gate has allowed: containers, not Pods.
    pub start_count: u64,
    /// Highest number of this member's Pods that have run here. The operator knows the last Pod that served: a smaller number
    /// here means an older copy (I27).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pod_start: u64,
    /// Version of the agent that created this file.
    pub created_by: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A part of an [`Identity`] that may differ from the wanted identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The cluster token.
    Cluster,
    /// The member's name or UID.
    Member,
    /// The claim's UID.
    Claim,
    /// The UID of the restore that filled the directory.
    Restore,
}

/// Source of a restored directory.
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
    /// Time of the snapshot (RFC 3339).
    pub taken_at: String,
    /// `namespace/name` of the snapshot's cluster.
    pub from_cluster: String,
    /// Whether no quorum answered at the save: acknowledged writes may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_quorum: bool,
    /// The restored revision, before it is raised; absent if the contents were not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Number by which the restore raised the revision.
    #[serde(default)]
    pub revision_bump: u64,
    /// The point in time, if the restore continued the snapshot with a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Box<PointReport>>,
    /// The survivor, if its volume was the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivor: Option<Box<SurvivorReport>>,
    /// Contents beside keys; absent if the contents were not proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_along: Option<CameAlong>,
    /// Contents that were not compared with the manifest, with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Reason for which the identity file could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The operating system could not read the file: its content is unknown.
    Io(io::ErrorKind, String),
    /// The content is invalid.
    Nonsense(String),
}

impl Identity {
    /// Returns the first part that differs from the wanted identity, and a message with both values.
    pub fn difference(&self, wanted: &IdentityFlags, restore_uid: Option<&str>) -> Option<(Part, String)> {
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

    /// Returns the identity of a directory before etcd's first start.
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

    /// Reads the file in this data directory. `Ok(None)`: the file does not exist.
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

    /// Writes the file into this data directory; after this returns, the file survives a power failure.
    pub fn write(&self, data_dir: &Path) -> Result<()> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::config(format!("the identity cannot be written: {error}")))?;
        json.push(b'\n');
        files::put(&data_dir.join(IDENTITY_FILE), 0o600, |file| file.write_all(&json))
    }

    /// Returns the UID of the restore that filled this directory, if any.
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
        // A read error shows nothing about the content.
        fs::remove_file(folder.path().join(IDENTITY_FILE)).unwrap();
        std::os::unix::fs::symlink(IDENTITY_FILE, folder.path().join(IDENTITY_FILE)).unwrap();
        assert!(matches!(Identity::read(folder.path()), Err(Unread::Io(..))));
    }
}
