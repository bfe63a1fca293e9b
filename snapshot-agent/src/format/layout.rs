//! Where a snapshot lies in a store: `<namespace>/<cluster>/<lineage>/<time>-<owner8>-<pod8>/` below the prefix.
//!
//! Pure. It decides names and refuses what could lead elsewhere: every key is made of segments that hold no slash, no
//! `..`, nothing hidden and nothing that a shell, a URL or a file system reads in its own way. A volume uses the same
//! layout below its mount. The revision is not in the key: it is only known when the stream has ended.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::contract::{Compression, ProofLevel};

/// Name of the object that is written last; its presence means complete.
pub const MANIFEST: &str = "manifest.json";

/// Name of the data object, before the suffixes of its [`Format`].
const DATA: &str = "snapshot.db";

/// What follows the compression's suffix when the object is encrypted.
const ENCRYPTED: &str = ".age";

/// Folder of a lineage for what is under way; no attempt has such a name.
const INTENTS: &str = "uploads";
const INTENT: &str = ".json";

/// Folder of an attempt for what was found of it later.
const PROOFS: &str = "proofs";
const PROOF: &str = ".json";
const FAILED: &str = "-failed";

/// Folder of an attempt for those who hold it: with any object in it, nobody removes the attempt.
const HOLDS: &str = "holds";

/// Folder of a lineage for the announcements of removals; no attempt has such a name.
const PRUNES: &str = "prunes";
const RECORD: &str = ".json";

/// Name of the object at a store's root that says which store it is. It is no folder, and no namespace of Kubernetes has
/// a point in its name.
const STORE_MARK: &str = "holdfast-store.json";

/// How the folder of a probe begins.
const PROBE: &str = ".holdfast-probe-";

/// The longest name that common file systems take is 255 bytes, and our temporary names are longer by at most 50.
pub(crate) const MAX_SEGMENT: usize = 200;

/// S3 keys may have 1024 bytes; the rest is for the object's name below a folder.
const MAX_PATH: usize = 900;

/// What a prefix may have beside letters and digits: what S3 calls safe, and what people's prefixes have in other stores. The
/// custom resources have the same rule.
pub const PREFIX_CHARS: &str = "!_.*'()=+@~-";

/// A name that cannot be part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A part of a key is empty, too long, hidden, `..` or holds a character outside of the safe set.
    #[error(
        "{what} {value:?} cannot be part of a key: 1 to {MAX_SEGMENT} letters, digits or any of ._=+@~-, \
         beginning with a letter, digit or _"
    )]
    Segment {
        /// Which part.
        what: &'static str,
        /// What was given.
        value: String,
    },
    /// A part of a store's prefix has a character that prefixes do not have.
    #[error(
        "the part {0:?} of the prefix is not allowed: 1 to {MAX_SEGMENT} letters, digits or any of {PREFIX_CHARS}, and not '.' or '..'"
    )]
    Prefix(String),
    /// No object of a store can be named so.
    #[error(
        "the key {0:?} names no object: at most 1024 bytes, without control characters, without empty parts and without the \
         parts '.' and '..'"
    )]
    Object(String),
    /// The whole key is longer than stores take.
    #[error("the key is {0} characters long, more than {MAX_PATH}")]
    TooLong(usize),
    /// A UID without a letter or digit.
    #[error("{what} {value:?} is not a UID")]
    Uid {
        /// Which UID.
        what: &'static str,
        /// What was given.
        value: String,
    },
}

/// One attempt to save: what its folder is named after.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Namespace of the cluster.
    pub namespace: &'a str,
    /// Name of the cluster.
    pub cluster: &'a str,
    /// UID of the cluster; without one `cluster_id` takes its place.
    pub cluster_uid: Option<&'a str>,
    /// etcd cluster ID.
    pub cluster_id: u64,
    /// UID of the object that asked; by hand there is none.
    pub owner_uid: Option<&'a str>,
    /// UID of the Pod, or anything as unique.
    pub pod_uid: &'a str,
    /// When the attempt began.
    pub at: Timestamp,
}

/// What was done to the bytes of a data object; its name says so, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// First it was compressed.
    pub compression: Compression,
    /// Then it was encrypted.
    pub encrypted: bool,
}

impl Format {
    /// Every format that a data object can have.
    pub fn all() -> impl Iterator<Item = Self> {
        let both = |compression| [false, true].map(|encrypted| Self { compression, encrypted });
        [Compression::Zstd, Compression::Gzip, Compression::None].into_iter().flat_map(both)
    }

    /// The data object's name in its folder.
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

/// A relative path of one or more safe segments: a snapshot's folder, or the prefix of a store. Only [`Key::of_store`] is
/// in none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Folder(String);

/// The key of one object below a store's prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    folder: Folder,
    name: String,
}

impl Folder {
    /// Reads a path such as `prod/db/1a2b3c4d`. One slash at either end is forgiven, nothing else.
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

    /// Reads the prefix of a store, which a person chose: it may have more characters than a key. One slash at either end is
    /// forgiven.
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

    /// The folder of one attempt. Two Pods never get the same one (I7).
    pub fn of_attempt(attempt: &Attempt<'_>) -> Result<Self, LayoutError> {
        let lineage = match attempt.cluster_uid {
            Some(uid) => first8("cluster UID", uid)?,
            None => format!("etcd-{:016x}", attempt.cluster_id),
        };
        let owner = match attempt.owner_uid {
            Some(uid) => first8("owner UID", uid)?,
            None => BY_HAND.to_owned(),
        };
        let pod = first8("Pod UID", attempt.pod_uid)?;
        let namespace = segment("namespace", attempt.namespace)?;
        let cluster = segment("cluster", attempt.cluster)?;
        let time = attempt.at.strftime("%Y%m%dT%H%M%SZ");
        Self::parse("key", &format!("{namespace}/{cluster}/{lineage}/{time}-{owner}-{pod}"))
    }

    /// The folder that holds a cluster's snapshots: of one lineage, or, without a UID, of all of them.
    pub fn of_cluster(namespace: &str, cluster: &str, cluster_uid: Option<&str>) -> Result<Self, LayoutError> {
        let cluster = format!("{}/{}", segment("namespace", namespace)?, segment("cluster", cluster)?);
        match cluster_uid {
            Some(uid) => Self::parse("key", &format!("{cluster}/{}", first8("cluster UID", uid)?)),
            None => Self::parse("key", &cluster),
        }
    }

    /// Where a probe tries a store: hidden, so that no cluster's folder can have the name, and nobody else's.
    pub fn of_probe(random: &str) -> Result<Self, LayoutError> {
        Ok(Self(format!("{PROBE}{}", first8("random UID", random)?)))
    }

    /// The folder that all others are in. Nothing is stored right there under a name of a cluster's.
    pub const fn top() -> Self {
        Self(String::new())
    }

    /// A folder in this one.
    pub fn child(&self, name: &str) -> Result<Self, LayoutError> {
        let name = segment("key", name)?;
        let child = Self(if self.is_top() { name.to_owned() } else { format!("{}/{name}", self.0) });
        if child.0.len() > MAX_PATH { Err(LayoutError::TooLong(child.0.len())) } else { Ok(child) }
    }

    /// Whether it is the folder that all others are in.
    pub const fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a folder of ours may be called so.
    pub fn is_name(name: &str) -> bool {
        segment("key", name).is_ok()
    }

    /// The folder this one is in, if it has one.
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The manifest's key.
    pub fn manifest(&self) -> Key {
        Key { folder: self.clone(), name: MANIFEST.to_owned() }
    }

    /// The data object's key.
    pub fn data(&self, format: impl Into<Format>) -> Key {
        Key { folder: self.clone(), name: format.into().name() }
    }

    /// Where the intents of a lineage's uploads are, while these are under way.
    #[must_use]
    pub fn intents(&self) -> Self {
        Self(format!("{}/{INTENTS}", self.0))
    }

    /// The intent of this attempt's upload.
    pub fn intent(&self) -> Key {
        let (intents, attempt) = match self.0.rsplit_once('/') {
            Some((lineage, attempt)) => (Self(lineage.to_owned()).intents(), attempt),
            None => (Self(INTENTS.to_owned()), self.0.as_str()),
        };
        Key { folder: intents, name: format!("{attempt}{INTENT}") }
    }

    /// The attempt of this lineage that an intent's name stands for; `None`: it is no such name.
    pub fn of_intent(&self, name: &str) -> Option<Self> {
        self.whatever_of_intent(name).filter(|attempt| owner8_of(attempt.name()).is_some())
    }

    /// The same for attempts of any name.
    #[must_use]
    pub fn whatever_of_intent(&self, name: &str) -> Option<Self> {
        self.child(name.strip_suffix(INTENT)?).ok()
    }

    /// Where the proofs of this attempt are.
    #[must_use]
    pub fn proofs(&self) -> Self {
        Self(format!("{}/{PROOFS}", self.0))
    }

    /// Where those are who hold this attempt.
    #[must_use]
    pub fn holds(&self) -> Self {
        Self(format!("{}/{HOLDS}", self.0))
    }

    /// Where the announcements of a lineage's removals are.
    #[must_use]
    pub fn prunes(&self) -> Self {
        Self(format!("{}/{PRUNES}", self.0))
    }

    /// The announcement that this Pod makes in this lineage.
    pub fn prune_record(&self, at: Timestamp, pod_uid: &str) -> Result<Key, LayoutError> {
        let name = format!("{}-{}{RECORD}", at.strftime("%Y%m%dT%H%M%SZ"), first8("Pod UID", pod_uid)?);
        Ok(Key { folder: self.prunes(), name })
    }

    /// The record that the removal of this attempt has begun.
    pub fn begun(&self) -> Key {
        let (prunes, attempt) = match self.0.rsplit_once('/') {
            Some((lineage, attempt)) => (Self(lineage.to_owned()).prunes(), attempt),
            None => (Self(PRUNES.to_owned()), self.0.as_str()),
        };
        Key { folder: prunes, name: format!("{attempt}{RECORD}") }
    }

    /// The object of this name in this folder, if it can be one of ours.
    pub fn object(&self, name: &str) -> Result<Key, LayoutError> {
        Ok(Key { folder: self.clone(), name: segment("name", name)?.to_owned() })
    }

    /// Whether this is a folder of proofs.
    pub fn is_proofs(&self) -> bool {
        self.name() == PROOFS
    }

    /// Whether it is made when the first object in it is written: unlike an attempt's it is nobody's claim.
    pub fn is_made_on_demand(&self) -> bool {
        self.is_proofs() || self.name() == PRUNES
    }

    /// The proof of this attempt.
    pub fn proof(&self, proved: Proved) -> Key {
        Key { folder: self.proofs(), name: proved.name() }
    }

    /// The path, without a slash at either end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Key {
    /// The object at a store's root that says which store it is.
    pub fn of_store() -> Self {
        Self { folder: Folder::top(), name: STORE_MARK.to_owned() }
    }

    /// The key of somebody else's object, as a person names it: of any characters that a store takes and a path can have. One
    /// slash at either end is forgiven.
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

    /// Whether this is right below the store's prefix.
    pub const fn is_at_root(&self) -> bool {
        self.folder.is_top()
    }

    /// The folder this object is in.
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The object's name in its folder.
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

/// One verification of a stored snapshot, as its proof's name has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proved {
    /// When it was done.
    pub at: Timestamp,
    /// How far it went.
    pub level: ProofLevel,
    /// Whether nothing was found wrong.
    pub passed: bool,
}

impl Proved {
    /// The proof's name: to the microsecond, so that the next one has another.
    fn name(self) -> String {
        let failed = if self.passed { "" } else { FAILED };
        format!("{}-{}{failed}{PROOF}", self.at.strftime("%Y%m%dT%H%M%S%.6fZ"), self.level.as_str())
    }

    /// What a name says; `None`: it is no proof's.
    pub fn of_name(name: &str) -> Option<Self> {
        let (time, rest) = name.strip_suffix(PROOF)?.split_once('-')?;
        let level = rest.strip_suffix(FAILED);
        let passed = level.is_none();
        let level = ProofLevel::ALL.into_iter().find(|known| known.as_str() == level.unwrap_or(rest))?;
        let at = DateTime::strptime("%Y%m%dT%H%M%S%.fZ", time).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
        Some(Self { at, level, passed })
    }
}

/// Stands where the owner's UID would, for snapshots that no object asked for.
const BY_HAND: &str = "byhand";

/// The owner's part in the name of an attempt's folder; `None`: it is no such name.
pub fn owner8_of(name: &str) -> Option<&str> {
    let mut parts = name.split('-');
    let (time, owner, pod) = (parts.next()?, parts.next()?, parts.next()?);
    let ours = parts.next().is_none() && time.len() == "20261121T162233Z".len() && !pod.is_empty();
    ours.then_some(owner)
}

/// When the attempt began whose folder has this name; `None`: it is no such name.
pub fn attempt_time(name: &str) -> Option<Timestamp> {
    owner8_of(name)?;
    let time = DateTime::strptime("%Y%m%dT%H%M%SZ", name.split('-').next()?).ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// When an announcement was made that has this name; `None`: it is no such name. A removal that has begun has an attempt's.
pub fn record_time(name: &str) -> Option<Timestamp> {
    let (time, pod) = name.strip_suffix(RECORD)?.split_once('-')?;
    let time = DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok().filter(|_| !pod.is_empty() && !pod.contains('-'))?;
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Whose snapshot is in the folder of this key (`namespace/name`), and when the attempt began; `None`: it is no such folder.
pub fn whose(key: &str) -> Option<(String, Timestamp)> {
    let parts: Vec<_> = key.split('/').collect();
    let [namespace, cluster, _lineage, attempt] = parts[..] else { return None };
    // A file that is called like a folder is one.
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

/// The first eight letters and digits of a UID: short to read, and the full UID stands in the manifest.
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
