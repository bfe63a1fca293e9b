//! Runs the gate: observes the volume, calls `decide`, writes the identity, waits for earlier joiners, executes etcd.

use futures::future::BoxFuture;
use std::convert::Infallible;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, io};

use holdfast_contract::error::{Error, Result, io_error, may_pass};
use holdfast_contract::{AFTER_PATIENCE_SECONDS, DATA_DIR, ExitClass, GateRequest};
use holdfast_io::files;

use super::{Decision, Facts, decide};
use crate::data_dir::{DATABASE, WAL};
use crate::pod_annotations::Annotations;
use crate::volume_identity::{IDENTITY_FILE, Identity, Unread};
use crate::wal::{self, WalError};

/// Decides whether etcd may start on this volume. If so, the process becomes etcd and this function does not return.
pub fn run(request: GateRequest) -> BoxFuture<'static, Result<Infallible>> {
    Box::pin(async move {
        let (program, args) =
            request.exec.split_first().ok_or_else(|| Error::config("nothing to start: --exec is missing"))?;
        if let Some(flag) = args.iter().find(|arg| arg.trim_start_matches('-').starts_with("initial-cluster-state")) {
            return Err(Error::config(format!("the gate sets {flag} itself. Omit the flag")));
        }
        let data_dir = request.volume.join(DATA_DIR);
        let facts = observe(&request.volume, &data_dir)?;
        let (identity, state, first) = match decide(&facts, &request, &Annotations::read(&request.annotations)) {
            Decision::Start { identity, state, first } => (identity, state, first),
            Decision::Refuse(report) => return Err(Error::gate(report)),
        };
        match prepare(&request.volume, &data_dir, &identity) {
            // A full volume is no reason to refuse: etcd starts without new blocks and removes the leftovers of a defragmentation
            // (etcd: cleanupSnapdir). Only the count of starts would change.
            Err(full) if full.class() == ExitClass::Full && is_known(&facts, &identity) => {
                tracing::warn!(error = %full, "the volume is full: the count of starts is not updated");
            }
            prepared => prepared?,
        }
        if first {
            wait_for(&request.after, Duration::from_secs(AFTER_PATIENCE_SECONDS)).await;
        }
        tracing::info!(
            member = %identity.member_name, start = identity.start_count, pod = identity.pod_start, state = state.flag(),
            first, "starting etcd"
        );
        let error = Command::new(program).args(args).arg(state.flag()).exec();
        Err(Error::config(format!("{program} cannot be started: {error}")))
    })
}

/// Collects the facts for `decide`. Writes nothing.
pub(super) fn observe(volume: &Path, data_dir: &Path) -> Result<Facts> {
    let doing = || format!("looking at the volume {}", volume.display());
    let mut beside = files::names(volume)
        .map_err(io_error(doing()))?
        .ok_or_else(|| Error::config(format!("there is no volume at {}", volume.display())))?;
    beside.retain(|name| name != DATA_DIR);
    let mut data = files::names(data_dir).map_err(io_error(doing()))?.unwrap_or_default();
    data.retain(|name| name != IDENTITY_FILE);
    Ok(Facts {
        beside,
        data,
        // A read error is no fact of the volume: the container restarts and the gate reads again.
        identity: match Identity::read(data_dir) {
            Ok(found) => Ok(found),
            Err(Unread::Nonsense(why)) => Err(why),
            Err(Unread::Io(kind, text)) => return Err(io_error(doing())(io::Error::new(kind, text))),
        },
        wal: match wal::metadata_of(&data_dir.join(WAL)) {
            Err(WalError::Io(kind, text)) if may_pass(kind) => {
                return Err(io_error(doing())(io::Error::new(kind, text)));
            }
            found => found.map_err(|error| error.to_string()),
        },
        database: match fs::metadata(data_dir.join(DATABASE)) {
            Ok(metadata) => metadata.len() > 0,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(io_error(doing())(error)),
        },
    })
}

/// Whether the volume already holds this identity, except for the count of starts.
pub(super) fn is_known(facts: &Facts, identity: &Identity) -> bool {
    let there = facts.identity.as_ref().ok().and_then(Option::as_ref);
    there.is_some_and(|there| Identity { start_count: there.start_count, ..identity.clone() } == *there)
}

/// Writes the identity to the volume, durably, before etcd can write anything.
fn prepare(volume: &Path, data_dir: &Path, identity: &Identity) -> Result<()> {
    // etcd requires 0700 and logs a warning for wider permissions.
    if let Err(error) = fs::DirBuilder::new().mode(0o700).create(data_dir)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(io_error(format!("making {}", data_dir.display()))(error));
    }
    // The process that created the directory may have died before the name was durable.
    files::sync_folder(volume).map_err(io_error("syncing the volume"))?;
    identity.write(data_dir)
}

/// Pause between two requests to the same peer: short beside the 7 s that this wait saves.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Waits until each of these peers has answered once, or until `patience` is over.
async fn wait_for(peers: &[String], patience: Duration) {
    if peers.is_empty() {
        return;
    }
    holdfast_io::crypto::install_crypto();
    // No certificates: the requested ports speak plain HTTP, and etcd's image holds no CA certificates, without which the
    // client would not build.
    let client = match reqwest::Client::builder().timeout(Duration::from_secs(2)).no_proxy().tls_certs_only([]).build()
    {
        Ok(client) => client,
        Err(error) => {
            tracing::warn!(%error, "cannot ask other members; starting without waiting");
            return;
        }
    };
    let until = Instant::now() + patience;
    for peer in peers {
        let url = format!("{}/version", peer.trim_end_matches('/'));
        loop {
            match client.get(&url).send().await {
                // Any answer shows that etcd listens. For members with TLS this is the metrics port, which does not serve
                // /version.
                Ok(_) => break,
                Err(error) => tracing::debug!(%url, %error, "not up yet"),
            }
            if Instant::now() + ASK_AGAIN >= until {
                tracing::warn!(%url, "the member did not answer in time; starting anyway");
                break;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}
