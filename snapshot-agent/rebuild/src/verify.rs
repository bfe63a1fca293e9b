//! `agent verify`: checks whether a snapshot is complete and sound, and reports its contents.
//!
//! This file chooses one of four ways: the log of a cluster (`verbs/verify/log.rs`), a file on this disk or in a store (`verbs/verify/file.rs`), a stored snapshot read once
//! (`verbs/verify/stored.rs`), or a stored snapshot that is also restored and started (`verbs/verify/drill.rs`). The verb never
//! changes a snapshot. It keeps a proof beside a stored snapshot (`catalog/proof.rs`).

mod compare;
mod drill;
mod file;
mod kubernetes;
mod log;
mod second_reading;
mod stored;

use futures::future::BoxFuture;
use serde::Serialize;

use holdfast_catalog::foreign::{self, Named};

pub use file::FileVerified;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{DrilledReport, FailedReport, KubernetesReport, ProofLevel, VerifyRequest};
use holdfast_io::interrupt::Interrupt;
use holdfast_store::Store;
pub use log::LogVerified;
pub use stored::StoredVerified;

/// Result of a verification.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Verified {
    /// Result for a file.
    File(FileVerified),
    /// Result for a stored snapshot.
    Stored(Box<StoredVerified>),
    /// Result for the logs of a lineage.
    Log(Vec<LogVerified>),
}

impl Verified {
    /// Formats the result for a terminal.
    pub fn lines(&self) -> String {
        match self {
            Self::File(found) => found.lines(),
            Self::Stored(found) => found.lines(),
            Self::Log(found) => found.iter().map(LogVerified::lines).collect(),
        }
    }
}

/// Returns the report of a drill of the snapshot with this key.
pub fn drilled(key: &str, ended: &Result<Verified>) -> DrilledReport {
    let report = DrilledReport { key: key.to_owned(), ..DrilledReport::default() };
    match ended {
        Ok(Verified::Stored(found)) => DrilledReport {
            revision: found.proof.revision,
            keys: found.proof.keys,
            hash_kv: found.proof.hash_kv,
            etcd_version: found.proof.etcd_version.clone(),
            restore_seconds: found.proof.restore_seconds,
            serve_seconds: found.proof.serve_seconds,
            kubernetes: found.proof.kubernetes.clone().map(KubernetesReport::bounded),
            auth_enabled: found.proof.auth_enabled,
            proof_not_kept: found.proof_not_kept.clone(),
            failed: found.failed.as_ref().map(failed),
            ..report
        },
        Ok(Verified::File(_) | Verified::Log(_)) => report,
        Err(error) => DrilledReport { failed: Some(failed(error)), ..report },
    }
}

fn failed(error: &Error) -> FailedReport {
    FailedReport { class: error.class(), origin: error.origin(), message: error.message().to_owned() }
}

/// Returns the error for a request that names no snapshot.
fn unnamed() -> Error {
    Error::config("name a FILE, or --store with --key or --latest")
}

/// Verifies one snapshot.
pub fn run(request: VerifyRequest) -> BoxFuture<'static, Result<Verified>> {
    Box::pin(async move {
        if request.log {
            return log::run(&request).await.map(Verified::Log);
        }
        let snapshot = request.snapshot.clone();
        if request.kubernetes.is_some() && request.level != ProofLevel::Drill {
            return Err(Error::config("--kubernetes needs a restored etcd: add --level=drill"));
        }
        match (snapshot.file, snapshot.store, snapshot.key) {
            (Some(file), None, None) => {
                // On a signal the process must first remove the unpacked files.
                let mut interrupt = Interrupt::by_signal()?;
                let found = interrupt.unless(file::run(&file, &snapshot.identities, &request.scratch)).await;
                found.map(Verified::File)
            }
            (None, Some(flags), Some(key)) => {
                let mut interrupt = Interrupt::after(request.deadline_seconds.into())?;
                let store = Store::open(&flags)?;
                match interrupt.unless(foreign::find(&store, &key)).await? {
                    Named::Folder(folder) => {
                        let found = stored::run(&request, &store, &folder, interrupt).await;
                        found.map(Box::new).map(Verified::Stored)
                    }
                    Named::File(key, _) if request.level == ProofLevel::Drill => Err(Error::config(format!(
                        "{} is a file without a manifest, and a drill compares the restored data with a manifest. Name the \
                     folder of a snapshot, or verify the file without --level drill",
                        store.uri(&key)
                    ))),
                    Named::File(key, stat) => {
                        file::run_stored(&request, &store, (&key, &stat), interrupt).await.map(Verified::File)
                    }
                }
            }
            _ => Err(unnamed()),
        }
    })
}

#[cfg(test)]
mod tests {
    use holdfast_contract::{ExitClass, SnapshotFlags, StoreFlags};

    use super::*;

    #[tokio::test]
    async fn a_store_without_a_key_names_what_is_missing() {
        let snapshot = SnapshotFlags { store: Some(StoreFlags::default()), ..SnapshotFlags::default() };
        let error = run(VerifyRequest { snapshot, ..VerifyRequest::default() }).await.unwrap_err();
        assert!(error.class() == ExitClass::Config && error.message().contains("--key"), "{error}");
    }

    #[tokio::test]
    async fn a_drill_of_a_file_without_a_manifest_is_refused() {
        let mount = tempfile::tempdir().unwrap();
        std::fs::write(mount.path().join("x.db"), "not read").unwrap();
        let store = StoreFlags { url: format!("file://{}", mount.path().display()), ..StoreFlags::default() };
        let snapshot = SnapshotFlags { store: Some(store), key: Some("x.db".to_owned()), ..SnapshotFlags::default() };
        let asked =
            VerifyRequest { snapshot, level: ProofLevel::Drill, deadline_seconds: 20, ..VerifyRequest::default() };
        let error = run(asked).await.unwrap_err();
        assert!(error.class() == ExitClass::Config && error.message().contains("without --level drill"), "{error}");
    }
}
