//! The objects of a store: their keys here, the [`manifest`] of a snapshot, and the judgement of [`retention`].
//!
//! Keys of a snapshot's objects: `<namespace>/<cluster>/<lineage>/<time>-<owner8>-<pod8>/` below the prefix.
//!
//! Pure. This file decides names, and refuses names that could lead elsewhere: a key consists of segments without slash,
//! without `..`, not hidden, and without characters that a shell, a URL or a file system interprets. A volume uses the same
//! layout below its mount. The revision is not in the key, because it is known only at the end of the stream.

mod log;
pub mod manifest;
pub mod retention;

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use holdfast_contract::{Compression, ProofLevel};

pub use log::{GapName, SegmentName, Tail, check_key, check_revision, is_closed_name, is_log_name, is_record_folder};

/// Name of the object that is written last; its presence means complete.
pub const MANIFEST: &str = "manifest.json";

/// Name of the data object, before the suffixes of its [`Format`].
const DATA: &str = "snapshot.db";

/// Suffix after the compression's, if the object is encrypted.
const ENCRYPTED: &str = ".age";

/// Folder of a lineage for running uploads; no attempt has such a name.
const INTENTS: &str = "uploads";
const INTENT: &str = ".json";

/// Folder of an attempt for the proofs of later verifications.
const PROOFS: &str = "proofs";
const PROOF: &str = ".json";
const FAILED: &str = "-failed";

/// Folder of an attempt for holds: with any object in it, the agent does not remove the attempt.
const HOLDS: &str = "holds";

/// Folder of a lineage for the announcements of removals; no attempt has such a name.
const PRUNES: &str = "prunes";
const RECORD: &str = ".json";

/// Name of the object at a store's root with the store's ID. It is no folder, and no namespace of Kubernetes has a dot in its
/// name.
const STORE_MARK: &str = "holdfast-store.json";

/// Prefix of a probe's folder.
const PROBE: &str = ".holdfast-probe-";

/// Common file systems take names of 255 bytes, and the agent's temporary names add at most 50.
pub const MAX_SEGMENT: usize = 200;

/// S3 keys may have 1024 bytes; the rest is for the object's name in its folder.
const MAX_PATH: usize = 900;

/// Characters of a prefix beside letters and digits: those that S3 calls safe, and those of usual prefixes in other stores. The
/// custom resources have the same rule.
pub const PREFIX_CHARS: &str = "!_.*'()=+@~-";

/// A name that cannot be part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A part of a key is empty, too long, hidden, `..` or holds a character outside the safe set.
    #[error(
        "{what} {value:?} cannot be part of a key: 1 to {MAX_SEGMENT} letters, digits or any of ._=+@~-, \
         beginning with a letter, digit or _"
    )]
    Segment {
        /// Name of the part.
        what: &'static str,
        /// The given value.
        value: String,
    },
    /// A part of a store's prefix has an invalid character.
    #[error(
        "the part {0:?} of the prefix is not allowed: 1 to {MAX_SEGMENT} letters, digits or any of {PREFIX_CHARS}, and not '.' or '..'"
    )]
    Prefix(String),
    /// The key cannot name an object of a store.
    #[error(
        "the key {0:?} names no object: at most 1024 bytes, without control characters, without empty parts and without the \
         parts '.' and '..'"
    )]
    Object(String),
    /// The whole key is longer than stores accept.
    #[error("the key is {0} characters long, more than {MAX_PATH}")]
    TooLong(usize),
    /// A UID without a letter or digit.
    #[error("{what} {value:?} is not a UID")]
    Uid {
        /// Name of the UID.
        what: &'static str,
        /// The given value.
        value: String,
    },
}

/// One attempt to save: the facts in its folder's name.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Namespace of the cluster.
    pub namespace: &'a str,
    /// Name of the cluster.
    pub cluster: &'a str,
    /// UID of the cluster; without it `cluster_id` takes its place.
    pub cluster_uid: Option<&'a str>,
    /// etcd cluster ID.
    pub cluster_id: u64,
    /// UID of the requesting object; absent for a save by hand.
    pub owner_uid: Option<&'a str>,
    /// UID of the Pod, or another unique text.
    pub pod_uid: &'a str,
    /// Start of the attempt.
    pub at: Timestamp,
}

/// Transformations of a data object's bytes, in this order; its name shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Compression, applied first.
    pub compression: Compression,
    /// Encryption, applied second.
    pub encrypted: bool,
}

impl Format {
    /// Returns every possible format of a data object.
    pub fn all() -> impl Iterator<Item = Self> {
        let both = |compression| [false, true].map(|encrypted| Self { compression, encrypted });
        [Compression::Zstd, Compression::Gzip, Compression::None].into_iter().flat_map(both)
    }

    /// Returns the data object's name in its folder.
    pub fn name(self) -> String {
        format!("{DATA}{}{}", self.compression.suffix(), if self.encrypted { ENCRYPTED } else { "" })
    }
}

impl From<Compression> for Format {
    /// Compressed, and not encrypted.
    fn from(compression: Compression) -> Self {
        Self { compression, encrypted: false }
    }
}

/// A relative path of one or more safe segments: a snapshot's folder, or the prefix of a store. Only [`Key::of_store`] is at
/// the top, outside a folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Folder(String);

/// The key of one object below a store's prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    folder: Folder,
    name: String,
}

impl Folder {
    /// Parses a path such as `prod/db/1a2b3c4d`. Ignores one slash at either end.
    pub fn parse(what: &'static str, path: &str) -> Result<Self, LayoutError> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        for part in path.split('/') {
            segment(what, part)?;
        }
        if path.len() > MAX_PATH {
            return Err(LayoutError::TooLong(path.len()));
        }
        Ok(Self(path.to_owned()))
    }

    /// Parses the prefix of a store, which a user chose: it may have more characters than a key. Ignores one slash at either
    /// end.
    pub fn of_prefix(path: &str) -> Result<Self, LayoutError> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let safe = |c: char| c.is_ascii_alphanumeric() || PREFIX_CHARS.contains(c);
        for part in path.split('/') {
            if !(1..=MAX_SEGMENT).contains(&part.len()) || matches!(part, "." | "..") || !part.chars().all(safe) {
                return Err(LayoutError::Prefix(part.chars().take(MAX_SEGMENT).collect()));
            }
        }
        if path.len() > MAX_PATH {
            return Err(LayoutError::TooLong(path.len()));
        }
        Ok(Self(path.to_owned()))
    }

    /// Returns the folder of one attempt. Two Pods never get the same folder (I7).
    pub fn of_attempt(attempt: &Attempt<'_>) -> Result<Self, LayoutError> {
        let owner = match attempt.owner_uid {
            Some(uid) => first8("owner UID", uid)?,
            None => BY_HAND.to_owned(),
        };
        let pod = first8("Pod UID", attempt.pod_uid)?;
        let Attempt { namespace, cluster, cluster_uid, cluster_id, .. } = *attempt;
        let lineage = Self::of_lineage(namespace, cluster, cluster_uid, cluster_id)?;
        let time = attempt.at.strftime("%Y%m%dT%H%M%SZ");
        Self::parse("key", &format!("{lineage}/{time}-{owner}-{pod}"))
    }

    /// Returns the folder of a cluster's snapshots: of one lineage, or, without a UID, of all.
    pub fn of_cluster(namespace: &str, cluster: &str, cluster_uid: Option<&str>) -> Result<Self, LayoutError> {
        let cluster = format!("{}/{}", segment("namespace", namespace)?, segment("cluster", cluster)?);
        match cluster_uid {
            Some(uid) => Self::parse("key", &format!("{cluster}/{}", first8("cluster UID", uid)?)),
            None => Self::parse("key", &cluster),
        }
    }

    /// Returns the folder of a probe: hidden, so that no cluster's folder has its name.
    pub fn of_probe(random: &str) -> Result<Self, LayoutError> {
        Ok(Self(format!("{PROBE}{}", first8("random UID", random)?)))
    }

    /// Returns the folder that contains all others. Only the store ID is stored directly in it.
    pub const fn top() -> Self {
        Self(String::new())
    }

    /// Returns a folder in this folder.
    pub fn child(&self, name: &str) -> Result<Self, LayoutError> {
        let name = segment("key", name)?;
        let child = Self(if self.is_top() { name.to_owned() } else { format!("{}/{name}", self.0) });
        if child.0.len() > MAX_PATH { Err(LayoutError::TooLong(child.0.len())) } else { Ok(child) }
    }

    /// Whether this is the folder that contains all others.
    pub const fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a folder of Holdfast may have this name.
    pub fn is_name(name: &str) -> bool {
        segment("key", name).is_ok()
    }

    /// Returns the folder above, if any.
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// Returns the last part of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the manifest's key.
    pub fn manifest(&self) -> Key {
        Key { folder: self.clone(), name: MANIFEST.to_owned() }
    }

    /// Returns the data object's key.
    pub fn data(&self, format: impl Into<Format>) -> Key {
        Key { folder: self.clone(), name: format.into().name() }
    }

    /// Returns the folder of a lineage's intents.
    #[must_use]
    pub fn intents(&self) -> Self {
        Self(format!("{}/{INTENTS}", self.0))
    }

    /// Returns the key of this attempt's intent.
    pub fn intent(&self) -> Key {
        let (intents, attempt) = match self.0.rsplit_once('/') {
            Some((lineage, attempt)) => (Self(lineage.to_owned()).intents(), attempt),
            None => (Self(INTENTS.to_owned()), self.0.as_str()),
        };
        Key { folder: intents, name: format!("{attempt}{INTENT}") }
    }

    /// Returns the attempt of an intent's name in this lineage; `None`: the name is not an intent's.
    pub fn of_intent(&self, name: &str) -> Option<Self> {
        self.whatever_of_intent(name).filter(|attempt| owner8_of(attempt.name()).is_some())
    }

    /// Does the same for attempts of any name.
    #[must_use]
    pub fn whatever_of_intent(&self, name: &str) -> Option<Self> {
        self.child(name.strip_suffix(INTENT)?).ok()
    }

    /// Returns the folder of this attempt's proofs.
    #[must_use]
    pub fn proofs(&self) -> Self {
        Self(format!("{}/{PROOFS}", self.0))
    }

    /// Returns the folder of this attempt's holds.
    #[must_use]
    pub fn holds(&self) -> Self {
        Self(format!("{}/{HOLDS}", self.0))
    }

    /// Returns the folder of the announcements of a lineage's removals.
    #[must_use]
    pub fn prunes(&self) -> Self {
        Self(format!("{}/{PRUNES}", self.0))
    }

    /// Returns the key of this Pod's announcement in this lineage.
    pub fn prune_record(&self, at: Timestamp, pod_uid: &str) -> Result<Key, LayoutError> {
        let name = format!("{}-{}{RECORD}", at.strftime("%Y%m%dT%H%M%SZ"), first8("Pod UID", pod_uid)?);
        Ok(Key { folder: self.prunes(), name })
    }

    /// Returns the key of the record that the removal of this attempt has started.
    pub fn removal_record(&self) -> Key {
        let (prunes, attempt) = match self.0.rsplit_once('/') {
            Some((lineage, attempt)) => (Self(lineage.to_owned()).prunes(), attempt),
            None => (Self(PRUNES.to_owned()), self.0.as_str()),
        };
        Key { folder: prunes, name: format!("{attempt}{RECORD}") }
    }

    /// Returns the object of this name in this folder, if the name is valid.
    pub fn object(&self, name: &str) -> Result<Key, LayoutError> {
        Ok(Key { folder: self.clone(), name: segment("name", name)?.to_owned() })
    }

    /// Whether this is a folder of proofs.
    pub fn is_proofs(&self) -> bool {
        self.name() == PROOFS
    }

    /// Whether the folder is created with its first object: unlike an attempt's folder, it claims nothing.
    pub fn is_made_on_demand(&self) -> bool {
        self.is_proofs() || self.name() == PRUNES
    }

    /// Returns the key of a proof of this attempt.
    pub fn proof(&self, proved: Proved) -> Key {
        Key { folder: self.proofs(), name: proved.name() }
    }

    /// Returns the path, without a slash at either end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Key {
    /// Returns the key of the store ID at a store's root.
    pub fn of_store() -> Self {
        Self { folder: Folder::top(), name: STORE_MARK.to_owned() }
    }

    /// Parses the key of another owner's object, as a user names it: any characters that a store accepts and a path can have.
    /// Ignores one slash at either end.
    pub fn of_object(key: &str) -> Result<Self, LayoutError> {
        /// S3's limit.
        const MOST: usize = 1024;
        let path = key.strip_prefix('/').unwrap_or(key);
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(|c: char| c.is_ascii_control());
        if path.len() > MOST || !path.split('/').all(is_part) {
            return Err(LayoutError::Object(path.chars().take(MAX_SEGMENT).collect()));
        }
        Ok(match path.rsplit_once('/') {
            Some((folder, name)) => Self { folder: Folder(folder.to_owned()), name: name.to_owned() },
            None => Self { folder: Folder::top(), name: path.to_owned() },
        })
    }

    /// Whether this is directly below the store's prefix.
    pub const fn is_at_root(&self) -> bool {
        self.folder.is_top()
    }

    /// Returns the folder of this object.
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the object's name in its folder.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_at_root() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.folder, self.name) }
    }
}

/// One verification of a stored snapshot, as its proof's name records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proved {
    /// Time of the verification.
    pub at: Timestamp,
    /// Level of the verification.
    pub level: ProofLevel,
    /// Whether the verification found no fault.
    pub passed: bool,
}

impl Proved {
    /// Returns the proof's name: to the microsecond, so that each proof has its own.
    fn name(self) -> String {
        let failed = if self.passed { "" } else { FAILED };
        format!("{}-{}{failed}{PROOF}", self.at.strftime("%Y%m%dT%H%M%S%.6fZ"), self.level.as_str())
    }

    /// Parses a proof's name; `None`: the name is not a proof's.
    pub fn of_name(name: &str) -> Option<Self> {
        let (time, rest) = name.strip_suffix(PROOF)?.split_once('-')?;
        let level = rest.strip_suffix(FAILED);
        let passed = level.is_none();
        let level = ProofLevel::ALL.into_iter().find(|known| known.as_str() == level.unwrap_or(rest))?;
        let at = DateTime::strptime("%Y%m%dT%H%M%S%.fZ", time).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
        Some(Self { at, level, passed })
    }
}

/// Replaces the owner's UID in snapshots without a requesting object.
const BY_HAND: &str = "byhand";

/// Returns the owner's part of an attempt's folder name; `None`: the name is not an attempt's.
pub fn owner8_of(name: &str) -> Option<&str> {
    let mut parts = name.split('-');
    let (time, owner, pod) = (parts.next()?, parts.next()?, parts.next()?);
    let is_attempt = parts.next().is_none() && time.len() == "20261121T162233Z".len() && !pod.is_empty();
    is_attempt.then_some(owner)
}

/// Returns the start of the attempt with this folder name; `None`: the name is not an attempt's.
pub fn attempt_time(name: &str) -> Option<Timestamp> {
    owner8_of(name)?;
    let time = DateTime::strptime("%Y%m%dT%H%M%SZ", name.split('-').next()?).ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Returns the time of the announcement with this name; `None`: the name is not an announcement's. The record of a started
/// removal has an attempt's name.
pub fn record_time(name: &str) -> Option<Timestamp> {
    let (time, pod) = name.strip_suffix(RECORD)?.split_once('-')?;
    let time = DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok().filter(|_| !pod.is_empty() && !pod.contains('-'))?;
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Returns the cluster (`namespace/name`) and the start of the attempt in this folder; `None`: the key is not an attempt's
/// folder.
pub fn attempt_of_key(key: &str) -> Option<(String, Timestamp)> {
    let parts: Vec<_> = key.split('/').collect();
    let [namespace, cluster, _lineage, attempt] = parts[..] else { return None };
    // A name with a dot is a file.
    let attempt = (!attempt.contains('.')).then_some(attempt)?;
    Some((format!("{namespace}/{cluster}"), attempt_time(attempt)?))
}

/// Checks one part of a key.
fn segment<'a>(what: &'static str, value: &'a str) -> Result<&'a str, LayoutError> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let safe = |c: char| word(c) || ".=+@~-".contains(c);
    if value.starts_with(word) && value.len() <= MAX_SEGMENT && value.chars().all(safe) {
        Ok(value)
    } else {
        let value = value.chars().take(MAX_SEGMENT).collect();
        Err(LayoutError::Segment { what, value })
    }
}

/// Returns the first eight letters and digits of a UID: short to read; the manifest holds the full UID.
pub fn first8(what: &'static str, uid: &str) -> Result<String, LayoutError> {
    let short: String =
        uid.chars().filter(char::is_ascii_alphanumeric).take(8).map(|c| c.to_ascii_lowercase()).collect();
    if short.is_empty() {
        return Err(LayoutError::Uid { what, value: uid.chars().take(MAX_SEGMENT).collect() });
    }
    Ok(short)
}

#[cfg(test)]
mod tests;
