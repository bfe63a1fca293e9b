//! Verifies a stored snapshot: reads the snapshot once and proves it meanwhile, in memory that does not depend on its size.
//!
//! This file decides which facts are compared with the manifest, and when a proof is kept: also for a broken snapshot, but
//! never without a result. A second reading with its own time confirms each fault. A store that refuses the proof does not make
//! the snapshot worse.

use std::fmt::Write as _;
use std::time::Instant;

use holdfast_bbolt::scan::ScanError;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, KubernetesReport, ProofLevel, VerifyRequest};
use holdfast_io::clock;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::progress::STALL;
use holdfast_layout::Folder;
use holdfast_layout::manifest::Manifest;
use holdfast_store::Store;
use serde::Serialize;

use super::compare::compare;
use super::{drill, second_reading};
use holdfast_catalog::proof::{Proof, Step};
use holdfast_catalog::reread;
use holdfast_catalog::stored::{self, Stored};
use holdfast_format::crypt::Identities;
use holdfast_format::snapshot_scan::SnapshotScan;
use holdfast_verbs_common::unsound;

/// Result for a stored snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredVerified {
    /// URI of the data object.
    pub uri: String,
    /// The proof.
    #[serde(flatten)]
    pub proof: Proof,
    /// URI of the written proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof_uri: Option<String>,
    /// Reason for which a requested proof was not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof_not_kept: Option<String>,
    /// Why the drill failed although the bytes are proven: kube-apiserver cannot decode an object.
    #[serde(skip)]
    pub failed: Option<Error>,
}

impl StoredVerified {
    /// Formats the result for a terminal.
    pub(super) fn lines(&self) -> String {
        let proof = &self.proof;
        let mut lines = format!("{}\n", self.uri);
        for step in &proof.proven {
            let _ = writeln!(lines, "  proven    {}", step.says());
        }
        for left_out in &proof.left_out {
            let _ = writeln!(lines, "  left out  {left_out}");
        }
        if let Some(revision) = proof.revision {
            let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            let (keys, hash) = (or(proof.keys.map(|n| n.to_string())), or(proof.hash_kv.map(|n| n.to_string())));
            let compacted = proof.compact_revision.map(|at| format!(", compacted at {at}")).unwrap_or_default();
            let _ = writeln!(lines, "revision {revision}{compacted}, {keys} keys, HashKV {hash}");
        }
        if let Some(version) = &proof.etcd_version {
            let _ = writeln!(lines, "etcd {version} started on the restored data, and is stopped");
        }
        if let (Some(restore), Some(serve)) = (proof.restore_seconds, proof.serve_seconds) {
            let all = restore.saturating_add(serve);
            let _ = writeln!(lines, "restored in {restore} s, served after {serve} s more: {all} s together");
        }
        if let Some(KubernetesReport { version, ready_seconds, objects, resources, .. }) = &proof.kubernetes {
            let count = resources.len();
            let _ = writeln!(
                lines,
                "kube-apiserver {version} was ready after {ready_seconds} s more, and decoded {objects} objects of {count} resources"
            );
            for (resource, objects) in resources {
                let _ = writeln!(lines, "  {objects:>8}  {resource}");
            }
        }
        match (&self.proof_uri, &self.proof_not_kept) {
            (Some(uri), _) => drop(writeln!(lines, "proof {uri}")),
            (None, Some(why)) => drop(writeln!(lines, "the proof could not be kept: {why}")),
            (None, None) => {}
        }
        lines
    }
}

/// A gap that no check of the bytes can fill.
const ALONE: &str = "completeness: the snapshot was saved without a quorum and may lack acknowledged writes";

/// Keys for the snapshot.
enum Lock {
    /// The snapshot is not encrypted, or these identities fit.
    Open(Option<Identities>),
    /// The snapshot is encrypted for these recipients, and the request has no identity.
    Closed(String),
}

/// Verifies one stored snapshot.
pub(super) async fn run(
    request: &VerifyRequest,
    store: &Store,
    folder: &Folder,
    mut interrupt: Interrupt,
) -> Result<StoredVerified> {
    let since = Instant::now();
    let (manifest, json) = interrupt.unless(stored::manifest_in_its_place(store, folder)).await?;
    let lock = lock(&manifest, request)?;
    let mut drill = match (request.level, &lock) {
        (ProofLevel::Stored, _) => None,
        (ProofLevel::Drill, Lock::Open(_)) => Some(interrupt.unless(drill::Drill::prepare(request, &manifest)).await?),
        (ProofLevel::Drill, Lock::Closed(recipients)) => {
            return Err(Error::config(format!(
                "the snapshot is encrypted for {recipients}: a drill needs --identity with the file of one of these keys"
            )));
        }
    };
    let mut proof = Proof::begin(folder, request.level, &json, clock::now());
    if manifest.without_quorum {
        proof.left_out.push(ALONE.to_owned());
    }
    let uri = store.uri(&folder.data(manifest.format()));
    let ended = {
        let data = folder.data(manifest.format());
        let looked = interrupt.unless(Stored::check(store, folder, manifest)).await;
        match looked {
            Err(error) if error.class() == ExitClass::NotFound => {
                let error = Error::corrupt(error.message()).context("the manifest exists and its data does not");
                let confirmed = async {
                    let error = reread::of_length(store, &data, None, error).await;
                    Err(reread::of_manifest(store, folder, &json, error).await)
                };
                interrupt.unless(confirmed).await
            }
            Err(error) => Err(error),
            Ok(stored) => match interrupt.unless(prove(store, &stored, lock, drill.as_mut(), &mut proof)).await {
                Err(error) if error.class() == ExitClass::Corrupt => {
                    let seconds = second_reading::seconds(request.deadline_seconds, since);
                    let confirming = stored.confirm(store, error.clone(), STALL);
                    Err(second_reading::confirm(&mut interrupt, seconds, &error, confirming).await)
                }
                ended => ended,
            },
        }
    };
    // In every case the agent stops the etcd of the drill.
    if let Some(drill) = drill {
        drill.end().await;
    }
    match &ended {
        // The bytes are those of the cluster: a proof would bar a snapshot that restores.
        Err(error) if error.class() == ExitClass::Undecodable => {
            proof.ended_at = clock::now();
            let failed = Some(error.clone());
            return Ok(StoredVerified { uri, proof, proof_uri: None, proof_not_kept: None, failed });
        }
        Err(error) if error.class() != ExitClass::Corrupt => return Err(error.clone()),
        Err(error) => proof.failure = Some(error.message().to_owned()),
        Ok(()) => {}
    }
    proof.passed = ended.is_ok();
    proof.ended_at = clock::now();
    let kept = if request.no_proof { None } else { Some(interrupt.unless(proof.keep(store, folder)).await) };
    let (proof_uri, proof_not_kept) = match kept {
        None => (None, None),
        Some(Ok(key)) => (Some(store.uri(&key)), None),
        Some(Err(error)) => (None, Some(error.message().to_owned())),
    };
    if let Some(why) = &proof_not_kept {
        tracing::warn!(why, "the proof could not be kept");
    }
    ended?;
    Ok(StoredVerified { uri, proof, proof_uri, proof_not_kept, failed: None })
}

fn lock(manifest: &Manifest, request: &VerifyRequest) -> Result<Lock> {
    let Some(encryption) = &manifest.encryption else { return Ok(Lock::Open(None)) };
    let identities = &request.snapshot.identities;
    if identities.is_empty() {
        return Ok(Lock::Closed(encryption.recipients.join(", ")));
    }
    stored::identities(encryption, identities).map(Some).map(Lock::Open)
}

async fn prove(
    store: &Store,
    stored: &Stored,
    lock: Lock,
    drill: Option<&mut drill::Drill>,
    proof: &mut Proof,
) -> Result<()> {
    match (lock, drill) {
        (Lock::Closed(recipients), _) => {
            stored.digest_once(store, STALL).await?;
            proof.proven.push(Step::StoredSha256);
            proof
                .left_out
                .push(format!("content: the snapshot is encrypted for {recipients}, and no --identity was given"));
            Ok(())
        }
        (Lock::Open(identities), None) => read(store, stored, identities, proof).await,
        (Lock::Open(identities), Some(drill)) => drill.run(store, stored, identities, proof).await,
    }
}

/// Reads and proves the snapshot in one pass.
async fn read(store: &Store, stored: &Stored, identities: Option<Identities>, proof: &mut Proof) -> Result<()> {
    let scan = stored.unpack_once(store, identities, SnapshotScan::new(stored.scan_options()), STALL).await?;
    proof.proven.extend([Step::StoredSha256, Step::Trailer]);
    match scan.finish() {
        Ok(found) => compare(store, stored, &found, proof),
        Err(error @ ScanError::OverBudget { .. }) => {
            proof.left_out.push(format!(
                "structure and HashKV: {error}. A drill reads the database from a file and needs less memory"
            ));
            Ok(())
        }
        Err(error) => Err(unsound(&store.uri(&stored.data), &error)),
    }
}
