//! Versions of etcd, as far as storage formats depend on them: `major.minor`.
//!
//! This file decides whether one etcd version can read another's data.

use std::fmt;

use holdfast_bbolt::scan::Proven;
use holdfast_contract::error::{Error, Result};
use holdfast_layout::manifest::Manifest;

/// Checks that the target version is that of the data, or later.
pub fn check_version(manifest: &Manifest, target: Minor) -> Result<()> {
    target.takes(manifest.storage_version.as_ref().unwrap_or(&manifest.etcd_version))
}

/// `major.minor`, on which storage formats depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor(u32, u32);

impl Minor {
    /// Reads a version, as etcd writes it.
    pub fn parse(version: &str) -> Option<Self> {
        let mut parts = version.trim().trim_start_matches('v').split('.');
        Some(Self(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// Whether etcd of this version has the flag `--max-learners`. Earlier ones accept one learner.
    pub fn many_learners(self) -> bool {
        self >= Self(3, 6)
    }

    /// Checks that this version reads data of that storage version.
    fn takes(self, storage: &str) -> Result<()> {
        match Self::parse(storage) {
            Some(minor) if minor <= self => Ok(()),
            Some(_) => Err(Error::config(format!(
                "the snapshot has storage version {storage}, etcdutl is {self}: restore into that version or later"
            ))),
            None => Err(Error::corrupt(format!("the snapshot's storage version {storage:?} is no version"))),
        }
    }

    /// Does the same by the bytes, whatever the manifest records: no hash covers the manifest. etcd before 3.6 writes no
    /// storage version.
    pub fn takes_database(self, found: &Proven) -> Result<()> {
        found.storage_version.as_deref().map_or(Ok(()), |storage| self.takes(storage))?;
        // etcd of a lower minor exits at its start (server/etcdserver/version: MustDetectDowngrade), whatever the storage
        // version is.
        match found.cluster_version.as_deref().map(|version| (version, Self::parse(version))) {
            Some((version, Some(minor))) if minor > self => Err(Error::config(format!(
                "the snapshot is of a cluster of version {version}, etcdutl is {self}: restore into that version or \
                 later"
            ))),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn a_cluster_of_a_later_version_is_refused_by_its_bytes() {
        let says = |storage: Option<&str>, cluster: Option<&str>| Proven {
            storage_version: storage.map(str::to_owned),
            cluster_version: cluster.map(str::to_owned),
            ..Proven::empty()
        };
        let target = Minor::parse("3.5.26").unwrap();
        for (storage, cluster) in [(None, None), (None, Some("3.5.0")), (Some("3.5.0"), Some("3.4.0"))] {
            target.takes_database(&says(storage, cluster)).unwrap();
        }
        // The storage version is not written yet, or was removed by `etcdutl migrate`.
        for (storage, cluster) in [(None, Some("3.6.0")), (Some("3.5.0"), Some("3.6.0")), (Some("3.6.0"), None)] {
            let refused = target.takes_database(&says(storage, cluster)).unwrap_err();
            assert_eq!(refused.class(), ExitClass::Config, "{refused}");
        }
    }

    #[test]
    fn versions_compare_by_minor() {
        assert!(Minor::parse("3.6.16") == Minor::parse("3.6.0\n") && Minor::parse("3.10.0") > Minor::parse("v3.9.1"));
        assert_eq!(Minor::parse("new"), None);
        assert_eq!(Minor::parse("3"), None);
        assert_eq!(Minor::parse(" 3.10.1").unwrap().to_string(), "3.10");
    }
}
