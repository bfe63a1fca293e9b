//! `agent restore`: rebuilds one seed member's data directory from one stored snapshot, or from a survivor's volume.
//!
//! This file decides the order. Everything happens in a staging folder that etcd does not read, and one rename at the end makes
//! the volume startable: etcd cannot start an unfinished restore. Every step can be repeated; on a complete volume the run ends
//! before it reads a Secret or a store. Hash checks are never skipped.
//!
//! `from_manifest.rs` restores a snapshot with a manifest, `from_file.rs` a file without, and `from_volume.rs` the data of a
//! stopped member after its cluster has lost its quorum. `volume.rs` judges the volume, `graft.rs` runs the engine that writes once, `contents.rs` judges users and members, `bump.rs` computes the revision bump,
//! `quota.rs` compares the database with the quota, and `refused.rs` keeps a refusal for the next start. For a point in time
//! `point.rs` chooses the snapshot and the log, `passes.rs` reads the log, and `replay.rs` continues the one with the other.
//! `etcd/etcdutl.rs` runs etcdutl, and `etcd/etcdutl/output.rs` reads its output.

mod bump;
pub mod compact;
mod contents;
mod from_file;
mod from_manifest;
mod from_volume;
mod graft;
mod moment;
mod passes;
mod point;
mod quota;
mod refused;
mod replay;
mod scratch;
mod segments;
pub mod undelete;
mod volume;

use futures::future::BoxFuture;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_catalog::foreign::{self, Named};
use holdfast_catalog::store_id;
use holdfast_etcd::etcdutl::disk::OnDisk;
use holdfast_etcd::etcdutl::{BESIDE_DATABASE, COPIES, Etcdutl, Initial};
use holdfast_etcd::version::check_version;
use holdfast_gate::data_dir::WAL;
use holdfast_gate::pod_annotations::Annotations;
use holdfast_gate::volume_identity::{Identity, Restored};
use holdfast_gate::wal;
use holdfast_verbs_common::progress_server;

use from_file::FileSnapshot;
use from_manifest::{Ends, ManifestSnapshot, Placed};
use from_volume::Survivor;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{Engine, MAY_START_EMPTY, Origin, Point, RestoreRequest, RestoredReport, hex_id};
use holdfast_io::files;
use holdfast_io::interrupt::Interrupt;
use holdfast_io::process::{IMAGES_BIN, find_program};
use holdfast_layout::Key;
use holdfast_store::Store;
use point::Chosen;
use refused::Found;
use replay::Size;
use volume::{Room, Staging, State, Volume};

/// Rebuilds the data directory, or finds it complete.
pub fn run(request: RestoreRequest) -> BoxFuture<'static, Result<RestoredReport>> {
    Box::pin(async move { progress_server::serve_beside(request.progress_port, restore(request)).await })
}

async fn restore(request: RestoreRequest) -> Result<RestoredReport> {
    let since = Instant::now();
    let request = RestoreRequest { etcdutl: program_at(request.etcdutl), ..request };
    from_volume::check(&request)?;
    let volume = Volume::alone(&request.volume).await?;
    match volume.state()? {
        State::Identified(identity) => return report_complete(&volume, &request, &identity, since),
        State::Foreign(names) => {
            return Err(Error::refused(format!(
                "the volume holds data that this restore has not put there ({}). Nothing was touched. Give the restore \
             an empty volume",
                names.join(", ")
            )));
        }
        State::Empty => {}
    }
    check_permit(&request)?;
    // The agent is the container's first process, which ignores SIGTERM by default: the Pod would take its whole grace period
    // to end.
    let mut interrupt = Interrupt::by_signal()?;
    if let Some(refused) = interrupt.unless(async { Ok(refused::find_refusal(&volume, &request).await) }).await? {
        return Err(refused);
    }
    let found = Found::default();
    let rebuilt = interrupt.unless(rebuild_in_time(&request, &volume, &found)).await;
    // From here on no signal interrupts: a volume is either published or not.
    let published = match rebuilt {
        Ok(rebuilt) => publish(rebuilt).await,
        Err(error) => Err(error),
    };
    let (restored, engine, fell_back) =
        published.inspect_err(|error| refused::end_attempt(&volume, &request, &found, error))?;
    let report = RestoredReport { engine: Some(engine), fell_back, ..report(restored, false, since) };
    let engine = engine.as_str();
    tracing::info!(uri = report.uri, db_bytes = report.db_bytes, engine, millis = report.millis, "restored");
    Ok(report)
}

/// Returns the path of etcdutl: the given path, or a search in PATH for a bare name and where etcd's image lacks the program.
fn program_at(named: PathBuf) -> PathBuf {
    let bare = named.components().count() == 1;
    let missing = named.parent() == Some(Path::new(IMAGES_BIN)) && !named.exists();
    let name = named.file_name().and_then(|name| name.to_str()).filter(|_| bare || missing);
    name.and_then(find_program).unwrap_or(named)
}

/// Rebuilds within the deadline, if the request has one.
async fn rebuild_in_time(request: &RestoreRequest, volume: &Volume, found: &Found) -> Result<Rebuilt> {
    let Some(seconds) = request.deadline_seconds else { return rebuild(request, volume, found).await };
    let rebuilding = tokio::time::timeout(Duration::from_secs(seconds.into()), rebuild(request, volume, found));
    rebuilding.await.unwrap_or_else(|_| {
        Err(Error::deadline(format!(
            "the restore did not end within its deadline of {seconds} s, and etcd cannot start on the volume. Raise \
             deadlineSeconds, or check the store and the network"
        )))
    })
}

/// Makes the volume startable, by one rename.
async fn publish(rebuilt: Rebuilt) -> Result<(Restored, Engine, Option<String>)> {
    let Rebuilt { staging, restored, engine, fell_back } = rebuilt;
    let published = tokio::task::spawn_blocking(move || staging.publish()).await;
    published.map_err(|error| holdfast_contract::error::task_error(&error))??;
    Ok((restored, engine, fell_back))
}

/// Makes the data directory in the staging folder of an empty volume.
async fn rebuild(request: &RestoreRequest, volume: &Volume, found: &Found) -> Result<Rebuilt> {
    let initial = Initial::parse(request)?;
    if let Some(folder) = &request.from_volume {
        return rebuild_from_volume(folder, (request, volume, found), initial).await;
    }
    foreign::check(&request.key)?;
    let store = Store::open(&request.store)?;
    // These steps wait for different servers, so they run at once; errors keep this order. The store ID comes before any data
    // (I25).
    let meant = async {
        Ok::<_, Error>(store_id::check_before_restore(&request.store, request.expect_store_id.as_deref()).await)
    };
    let first = async {
        let (etcdutl, meant) = tokio::try_join!(Etcdutl::find(&request.etcdutl), meant)?;
        meant.map(|()| etcdutl)
    };
    let second = async { Ok::<_, Error>(find_source(&store, request).await) };
    let (etcdutl, source) = tokio::try_join!(first, second)?;
    let (etcdutl, (source, point)) = (etcdutl.holding(volume.lock()?), source?);
    match &source {
        Source::Manifest(chosen) => {
            check_version(chosen.manifest(), etcdutl.version())?;
            // With a log the result decides: a compaction after the snapshot makes it smaller.
            if point.as_ref().is_none_or(|point| point.segments.is_empty()) {
                quota::check(request, chosen.db_bytes())?;
            }
        }
        Source::File(chosen) => _ = found.file.get_or_init(|| chosen.stat().clone()),
        Source::Volume(_) => {}
    }
    RestoreRun { request, volume, found, store: Some(&store), source, point, etcdutl, initial }.run().await
}

/// Makes the data directory of a survivor's volume. Boxed: its state would make that of every restore larger.
fn rebuild_from_volume<'a>(
    folder: &'a Path,
    (request, volume, found): (&'a RestoreRequest, &'a Volume, &'a Found),
    initial: Initial<'a>,
) -> BoxFuture<'a, Result<Rebuilt>> {
    Box::pin(async move {
        let etcdutl = Etcdutl::find(&request.etcdutl).await?;
        let survivor = Survivor::find(folder, request, etcdutl.version()).await?;
        let (source, etcdutl) = (Source::Volume(Box::new(survivor)), etcdutl.holding(volume.lock()?));
        RestoreRun { request, volume, found, store: None, source, point: None, etcdutl, initial }.run().await
    })
}

/// The inputs of a rebuild, all checked.
struct RestoreRun<'a> {
    request: &'a RestoreRequest,
    volume: &'a Volume,
    found: &'a Found,
    /// `None`: the source is a volume.
    store: Option<&'a Store>,
    source: Source,
    /// The log that continues the snapshot.
    point: Option<Chosen>,
    etcdutl: Etcdutl,
    initial: Initial<'a>,
}

/// A complete data directory in the staging folder.
struct Rebuilt {
    staging: Staging,
    restored: Restored,
    engine: Engine,
    fell_back: Option<String>,
}

/// Maximum length of a reason, which is one sentence of a report.
const MAX_REASON: usize = 300;

/// Returns the size of the largest database that fits this much space.
const fn largest(engine: Engine, room: u64) -> u64 {
    match engine {
        Engine::Etcdutl => room.saturating_sub(BESIDE_DATABASE) / COPIES,
        Engine::Graft => room.saturating_sub(BESIDE_DATABASE + graft::ADDED),
    }
}

impl RestoreRun<'_> {
    /// Returns the store of a snapshot.
    fn store(&self) -> Result<&Store> {
        self.store.ok_or_else(|| Error::config("the request names no store"))
    }

    /// Runs the steps that write, all in the staging folder.
    async fn run(&self) -> Result<Rebuilt> {
        let (staging, restored, engine, fell_back) = match self.request.engine {
            Engine::Etcdutl => {
                let (staging, restored) = self.copy().await?;
                (staging, restored, Engine::Etcdutl, None)
            }
            Engine::Graft => match graft::rebuild(self).await {
                Ok((staging, restored)) => (staging, restored, Engine::Graft, None),
                Err(graft::Failed::Run(error)) => return Err(error),
                Err(graft::Failed::Unfit(why)) => {
                    let why: String = why.to_string().chars().take(MAX_REASON).collect();
                    tracing::warn!(why, "the graft failed: restoring with etcdutl instead");
                    self.found.needs.get_or_init(|| self.needs(Engine::Etcdutl).bytes);
                    let copied = self.copy().await;
                    let (staging, restored) = copied.map_err(|error| {
                        error.context(format!("the graft failed ({why}), and the restore with etcdutl failed too"))
                    })?;
                    (staging, restored, Engine::Etcdutl, Some(why))
                }
            },
        };
        let data = staging.data();
        let written = identity(self.request, &data, restored.clone())?.write(&data);
        written.map_err(|error| self.ran_out(engine, error))?;
        Ok(Rebuilt { staging, restored, engine, fell_back })
    }

    /// Returns the space that an engine needs, and the alternative that needs less, if the request did not choose it. Before
    /// the log is read, the snapshot alone.
    fn needs(&self, engine: Engine) -> Room {
        let snapshot = Size { least: 0, likely: self.source.db_bytes(), beside: self.source.beside() };
        let merged = self.found.merged.get();
        let Size { likely, beside, .. } = merged.copied().unwrap_or(snapshot);
        let copies = if self.point.is_some() && merged.is_none() { 1 } else { COPIES };
        let merging = likely.saturating_add(beside);
        let copied = likely.saturating_mul(copies).max(merging).saturating_add(BESIDE_DATABASE);
        let grafted = merging.saturating_add(graft::ADDED).saturating_add(BESIDE_DATABASE);
        match engine {
            Engine::Etcdutl => {
                let asked_for = self.request.engine == Engine::Etcdutl;
                Room { bytes: copied, grafted: asked_for.then_some(grafted) }
            }
            Engine::Graft => Room { bytes: grafted, grafted: None },
        }
    }

    /// Refuses a merge before it writes, with all numbers, if the volume has too little space or the result would fill etcd's
    /// quota. `snapshot`: bytes of its file, which is on the volume.
    fn judge(&self, engine: Engine, snapshot: u64, size: Size) -> Result<()> {
        self.found.merged.get_or_init(|| size);
        let needs = self.needs(engine);
        let room = self.volume.check_space(needs, snapshot);
        if room.is_err() {
            self.found.short.get_or_init(|| needs.bytes);
        }
        quota::check_beside(quota::check(self.request, size.least), room)
    }

    /// Adds the needed space to an error of a full volume. For a packed file the error names it already.
    fn ran_out(&self, engine: Engine, error: Error) -> Error {
        if self.found.short.get().is_some() { error } else { volume::ran_out(self.needs(engine), error) }
    }

    /// Makes an empty staging folder, after a check of the space that this engine needs.
    fn stage(&self, engine: Engine) -> Result<Staging> {
        let staging = self.volume.stage()?;
        self.volume.check_space(self.needs(engine), 0)?;
        Ok(staging)
    }

    /// Restores the whole snapshot with etcdutl.
    async fn copy(&self) -> Result<(Staging, Restored)> {
        let staging = self.stage(Engine::Etcdutl)?;
        let copied = self.copy_to(&staging).await;
        copied.map(|restored| (staging, restored)).map_err(|error| self.ran_out(Engine::Etcdutl, error))
    }

    async fn copy_to(&self, staging: &Staging) -> Result<Restored> {
        let Self { source, etcdutl, initial, .. } = self;
        let (snapshot, file) = staging.snapshot()?;
        let (restored, bump, db_bytes, trailer) = match source {
            Source::Manifest(chosen) => {
                // A merged database has no sha256 of etcd.
                let ends = if self.point.is_some() { Ends::Bare } else { Ends::Hashed };
                let placed = chosen.download(self, file, ends).await?;
                let placed = replay::continue_snapshot(self, Engine::Etcdutl, &snapshot, placed).await?;
                let Placed { restored, bump, db_bytes, writeback, .. } = placed;
                if let Some(writeback) = writeback {
                    let ended = tokio::task::spawn_blocking(|| writeback.end().map(drop)).await;
                    let ended = ended.map_err(|error| holdfast_contract::error::task_error(&error))?;
                    ended.map_err(volume::trouble("syncing the database"))?;
                }
                (restored, bump, db_bytes, ends == Ends::Hashed)
            }
            Source::File(chosen) => {
                let (restored, bump) = chosen.download(self, (&snapshot, file)).await?;
                // For a packed file the size is known from here on.
                (restored, bump, source.db_bytes(), chosen.has_trailer())
            }
            Source::Volume(survivor) => {
                drop(file);
                let (restored, bump, _) = survivor.place(self, staging, &snapshot).await?;
                let db_bytes = restored.db_bytes;
                (restored, bump, db_bytes, false)
            }
        };
        let made = etcdutl.restore(&snapshot, &staging.data(), initial, db_bytes, bump, trailer).await;
        match made {
            // A merged or replayed file has no sha256 to compare with.
            Err(error) if self.point.is_some() || self.store.is_none() => return Err(error),
            Err(error) => {
                let (sha256, disk) = (restored.sha256, disk_of(self.request));
                return Err(OnDisk::at(&snapshot, db_bytes, sha256, trailer, disk)?.blame(error).await);
            }
            Ok(()) => {}
        }
        staging.drop_snapshot()?;
        Ok(restored)
    }
}

/// Describes the disk that holds all files.
fn disk_of(request: &RestoreRequest) -> String {
    format!("the volume {}", request.volume.display())
}

/// Reports a complete volume, if its restore is this request's.
fn report_complete(
    volume: &Volume,
    request: &RestoreRequest,
    found: &Identity,
    since: Instant,
) -> Result<RestoredReport> {
    if let Some((_, why)) = found.difference(&request.identity, Some(&request.restore_uid)) {
        return Err(Error::refused(format!(
            "the volume is complete, but not for this restore: {why}. Nothing was touched. Give the restore an empty \
             volume"
        )));
    }
    // `difference` has compared the restore's UID, so the record exists.
    let restored = found.restored.clone().ok_or_else(|| Error::refused("the volume was never restored"))?;
    if let Some(why) = find_difference(&restored, request)? {
        return Err(Error::refused(format!(
            "the volume is complete, and of another restore under the same UID: {why}. Nothing was touched. Give the restore \
             an empty volume"
        )));
    }
    volume.tidy();
    // The run that renamed the folder may have died before the name was durable.
    files::sync_folder(&request.volume).map_err(volume::trouble("syncing the volume"))?;
    tracing::info!(uri = restored.uri, "the volume is complete already: nothing to do");
    Ok(report(restored, true, since))
}

/// Returns the point in time of a finished restore.
fn asked_of(restored: &Restored) -> Option<Point> {
    restored.point.as_ref().map(|point| point.asked)
}

/// Returns the difference between the finished restore and this request: a user may reuse a UID.
fn find_difference(restored: &Restored, request: &RestoreRequest) -> Result<Option<String>> {
    let (key, is_it) = if let Some(folder) = &request.from_volume {
        let uri = from_volume::uri(folder);
        let is_it = restored.uri == uri;
        (uri, is_it)
    } else {
        let key = Key::of_object(&request.key).map_err(|error| holdfast_store::layout(&error))?.to_string();
        let is_it = restored.uri.ends_with(&format!("/{key}")) || restored.uri.contains(&format!("/{key}/"));
        (key, is_it)
    };
    let bump = request.revision_bump;
    Ok(match &request.expect_sha256 {
        _ if !is_it => Some(format!("it holds {}, not {key}", restored.uri)),
        Some(expected) if !expected.eq_ignore_ascii_case(&restored.sha256) => {
            Some(format!("its database has the sha256 {}, not {expected}", restored.sha256))
        }
        _ if restored.revision_bump != bump => {
            Some(format!("its revision was moved on by {}, not by {bump}", restored.revision_bump))
        }
        _ if asked_of(restored) != request.point() => {
            let name =
                |point: Option<Point>| point.map_or_else(|| "the snapshot".to_owned(), |point| point.to_string());
            Some(format!("it holds {}, not {}", name(asked_of(restored)), name(request.point())))
        }
        _ => None,
    })
}

/// Whether the operator still permits to fill this empty volume (I3, I9).
fn check_permit(request: &RestoreRequest) -> Result<()> {
    let Some(annotations) = &request.annotations else { return Ok(()) };
    let claim = &request.identity.claim_uid;
    let on_pod = Annotations::read(annotations);
    if on_pod.permit_empty(claim) {
        return Ok(());
    }
    let why = match (on_pod.started, on_pod.joined) {
        (Err(why), _) | (_, Err(why)) => format!("the Pod's annotations cannot be read: {why}"),
        (Ok(0), Ok(None)) => format!("the Pod's annotation {MAY_START_EMPTY} does not allow to fill it"),
        (Ok(0), Ok(Some(joined))) => format!("this member has joined etcd as {joined} (cluster/member)"),
        (Ok(number), Ok(_)) => format!("Pod number {number} of this member has served"),
    };
    Err(Error::refused(format!(
        "the volume (claim {claim}) is empty and is not filled: {why}. A member that has served is never restored again: \
         restore the snapshot as a new cluster"
    )))
}

/// The data to restore. Their contents are not read yet.
enum Source {
    Manifest(Box<ManifestSnapshot>),
    File(FileSnapshot),
    Volume(Box<Survivor>),
}

/// Finds the snapshot, and for a point in time the log that continues it.
async fn find_source(store: &Store, request: &RestoreRequest) -> Result<(Source, Option<Chosen>)> {
    let Some(asked) = request.point() else { return Ok((Source::find(store, request).await?, None)) };
    let target = Etcdutl::find(&request.etcdutl).await?.version();
    let chosen = point::choose(store, request, asked, Some(target)).await?;
    let snapshot = ManifestSnapshot::open(store, &chosen.base, request).await?;
    Ok((Source::Manifest(Box::new(snapshot)), Some(chosen)))
}

impl Source {
    /// Reads every fact that is available without the data.
    async fn find(store: &Store, request: &RestoreRequest) -> Result<Self> {
        Ok(match foreign::find(store, &request.key).await? {
            Named::Folder(folder) => Self::Manifest(Box::new(ManifestSnapshot::open(store, &folder, request).await?)),
            Named::File(key, stat) => Self::File(FileSnapshot::new(key, stat)),
        })
    }

    fn db_bytes(&self) -> u64 {
        match self {
            Self::Manifest(chosen) => chosen.db_bytes(),
            Self::File(chosen) => chosen.db_bytes(),
            Self::Volume(survivor) => survivor.likely_bytes(),
        }
    }

    /// Returns the bytes that the source needs on the volume beside its database.
    fn beside(&self) -> u64 {
        match self {
            Self::Manifest(_) | Self::File(_) => 0,
            Self::Volume(survivor) => survivor.log_bytes(),
        }
    }
}

/// Returns the identity of the rebuilt directory, with the IDs that etcdutl chose.
fn identity(request: &RestoreRequest, data: &std::path::Path, restored: Restored) -> Result<Identity> {
    let log = wal::metadata_of(&data.join(WAL))
        .ok()
        .flatten()
        .ok_or_else(|| Error::transient("etcdutl has left no WAL").with_origin(Origin::Own))?;
    Ok(Identity {
        restored: Some(restored),
        cluster_id: Some(hex_id(log.cluster_id)),
        member_id: Some(hex_id(log.member_id)),
        ..Identity::new(&request.identity)
    })
}

fn report(restored: Restored, already: bool, since: Instant) -> RestoredReport {
    let Restored {
        restore_uid,
        uri,
        db_bytes,
        sha256,
        taken_at,
        from_cluster,
        without_quorum,
        revision,
        revision_bump,
        point,
        survivor,
        came_along,
        not_compared,
        other: _,
    } = restored;
    let millis = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    RestoredReport {
        restore_uid,
        uri,
        db_bytes,
        sha256,
        taken_at,
        from_cluster,
        without_quorum,
        revision,
        revision_bump,
        point,
        survivor,
        came_along,
        not_compared,
        engine: None,
        fell_back: None,
        already,
        millis,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_where_it_is_named_or_in_path() {
        let sh = find_program("sh").expect("a shell in PATH");
        assert_eq!(program_at("sh".into()), sh);
        assert_eq!(program_at(Path::new(IMAGES_BIN).join("sh")), sh, "the default's folder has none");
        for named in ["/nonexistent/sh", "./sh", "no-such-program"] {
            assert_eq!(program_at(named.into()), PathBuf::from(named));
        }
    }
}
