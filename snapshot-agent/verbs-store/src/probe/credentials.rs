//! The two sides of a store: credentials that write and remove, and credentials that read. Usually both are the same. If a
//! store has separate credentials, the probe tests both, because restores and inquiries depend on the reading side as saves
//! depend on the writing side.
//!
//! This file decides which credentials open each side.

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ProbeRequest, StoreFlags};
use holdfast_store::Store;
use holdfast_store::trial::{Locks, READERS};

use holdfast_catalog::store_id;

/// An opened store, by purpose.
pub(super) struct StoreCredentials {
    /// Writes and removes.
    pub(super) writes: Store,
    /// Reads; errors name the credentials.
    pub(super) reads: Store,
    /// Writes the store ID.
    pub(super) id_writes: Store,
    /// Reads the store ID.
    pub(super) id_reads: Store,
    /// Locks objects, if the request asks for locks.
    pub(super) locks: Option<Locks>,
}

impl StoreCredentials {
    /// Reads all credentials. Sends no request.
    pub(super) fn open(request: &ProbeRequest) -> Result<Self> {
        let ProbeRequest { store, read_credentials_dir, .. } = request;
        // The probe removes its objects, so they are not locked.
        let plain = holdfast_store::unlocked(store);
        let (writes, id_writes) = (Store::open(&plain)?, store_id::store(&plain)?);
        // Checks the flags as a save would.
        Store::open(store)?;
        let readers =
            read_credentials_dir.clone().map(|folder| StoreFlags { credentials_dir: Some(folder), ..plain.clone() });
        let (reads, id_reads) = match &readers {
            None => (writes.clone(), id_writes.clone()),
            Some(_) if matches!(writes, Store::Folder(_)) => {
                return Err(Error::config(format!(
                    "--read-credentials-dir does not fit --store={}. Omit the flag",
                    store.url
                )));
            }
            Some(flags) => readable(flags).map_err(|error| error.context(READERS))?,
        };
        let locks = Locks::from_flags(store, readers.as_ref())?;
        Ok(Self { writes, reads, id_writes, id_reads, locks })
    }
}

/// Opens a store, and the place of its ID, with the reading credentials.
fn readable(flags: &StoreFlags) -> Result<(Store, Store)> {
    Ok((Store::open(flags)?.with_named_credentials(READERS), store_id::store(flags)?.with_named_credentials(READERS)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn what_is_wrong_with_those_who_read_names_them() {
        let (writes, reads) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["accessKeyID", "secretAccessKey"] {
            fs::write(writes.path().join(name), "key").unwrap();
        }
        let bucket = StoreFlags {
            url: "s3://bkt".to_owned(),
            credentials_dir: Some(writes.path().to_owned()),
            ..StoreFlags::default()
        };
        let mut request = ProbeRequest { store: bucket, ..ProbeRequest::default() };
        let sides = StoreCredentials::open(&request).unwrap();
        assert!(!format!("{:?}", sides.reads).contains(READERS));

        request.read_credentials_dir = Some(reads.path().to_owned());
        let error = StoreCredentials::open(&request).err().expect("was taken");
        assert_eq!(error.class(), ExitClass::Config, "{error}");
        assert!(error.message().starts_with(READERS) && error.message().contains("accessKeyID"), "{error}");

        request.read_credentials_dir = Some(writes.path().to_owned());
        let sides = StoreCredentials::open(&request).unwrap();
        assert!(format!("{:?}", sides.reads).contains(READERS), "{:?}", sides.reads);
        assert!(!format!("{:?}", sides.writes).contains(READERS), "{:?}", sides.writes);

        let mount = tempfile::tempdir().unwrap();
        request.store.url = format!("file://{}", mount.path().display());
        let error = StoreCredentials::open(&request).err().expect("was taken");
        assert!(error.message().contains("--read-credentials-dir"), "{error}");
    }
}
