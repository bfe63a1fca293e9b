//! Continues a restored snapshot with the log up to a point in time, in the file on the disk.
//!
//! This file decides the order. A first pass over the segments counts the bytes of the result and finds the records that stay
//! after the recorded compaction. The caller judges the size, before the second pass writes. A second pass writes: behind
//! the snapshot's pages, or, after a compaction, into a file beside the snapshot, which takes the snapshot's place. The meta
//! pages come after a sync, and the result is proven like a snapshot. Where no member was asked at the point, the last HashKV of
//! a member before the point is proven from the records of both passes: a later compaction removes some of them from the result.
//! Where a segment is damaged and others hold its revisions, the merge begins again with these.
//! `point.rs` has chosen the segments, `passes.rs` reads them; `crates/bbolt/src/merge.rs` decides which records and leases come
//! into the database.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_bbolt::graft::{self, Unfit};
use holdfast_bbolt::merge::{Kept, LogHash, Merge, MergeError, Merged, Survey, Surveyed};
use holdfast_bbolt::scan::{NEVER, Proven, Reader};
use holdfast_contract::error::{Error, Result, task_error};
use holdfast_contract::{Engine, PointProof, PointReport};
use holdfast_io::memory::file_budget;
use holdfast_segment::{Entry, Record};
use holdfast_store::Store;
use jiff::SignedDuration;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::from_manifest::Placed;
use super::moment::Moment;
use super::passes::{AuthChange, Failed, Fetched, Log, MERGING, Passes, merge_error};
use super::point::Chosen;
use super::segments::{ANOTHER, nearest};
use super::volume::trouble;
use super::{RestoreRun, bump, contents, quota};
use holdfast_catalog::log::Check;
use holdfast_catalog::merged::hash_database;
use holdfast_verbs_common::unsound;

/// Usual time between two samples at most: the archiver takes one each second.
const USUAL_BETWEEN_SAMPLES: SignedDuration = SignedDuration::from_secs(5);

/// The database of the snapshot, in its file.
pub(super) struct Base<'a> {
    pub(super) file: Arc<File>,
    pub(super) db_bytes: u64,
    /// The path that the result has too.
    pub(super) path: &'a Path,
}

/// Sizes of a merge, before it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes that the result has at least.
    pub(super) least: u64,
    /// Bytes that the result has, as far as the pages of bbolt can be foreseen.
    pub(super) likely: u64,
    /// Bytes of the snapshot's file, if the result has a file of its own until the snapshot's is removed.
    pub(super) beside: u64,
}

/// Settings of a merge.
pub(super) struct Settings<'a> {
    pub(super) users: AuthChange,
    /// Whether the result is hashed.
    pub(super) hashes: bool,
    pub(super) stall: Duration,
    /// Refuses a result of this size.
    pub(super) judge: &'a (dyn Fn(Size) -> Result<()> + Send + Sync),
}

/// The inputs of a merge.
struct Replay {
    file: Arc<File>,
    db_bytes: u64,
    revision: i64,
    hashes: bool,
    /// The answer of a member at the revision, and the last one before if that is not comparable.
    check: Option<Check>,
    check_between: Option<Check>,
    log: Log,
}

/// Surveys of the same records: of the result, and for HashKV of the check before the point.
struct Surveys {
    result: Part,
    between: Option<Part>,
}

enum Part {
    Reads(Box<Survey<Arc<File>>>),
    Done(Surveyed),
}

impl Part {
    fn add(&mut self, record: &Record<'_>) -> Result<(), MergeError> {
        if let Self::Reads(survey) = self {
            survey.add(record)?;
        }
        Ok(())
    }

    fn end_segment(&mut self) {
        if let Self::Reads(survey) = self {
            survey.end_segment();
        }
    }

    fn end_pass(&mut self) -> Result<(), MergeError> {
        if let Self::Reads(survey) = self
            && let Some(surveyed) = survey.end_pass()?
        {
            *self = Self::Done(surveyed);
        }
        Ok(())
    }
}

/// The result of a merge.
pub(super) struct Continued {
    /// The file of the result.
    pub(super) file: Arc<File>,
    pub(super) merged: Merged,
    pub(super) proven: Proven,
    pub(super) proof: PointProof,
    /// sha256 of the proven database, if the caller publishes it.
    pub(super) sha256: Option<[u8; 32]>,
    /// Number of segments that were read.
    pub(super) segments: u64,
}

/// Continues a downloaded snapshot; without a point in time it stays as it is.
pub(super) async fn continue_snapshot(
    run: &RestoreRun<'_>,
    engine: Engine,
    path: &Path,
    placed: Placed,
) -> Result<Placed> {
    let Some(chosen) = &run.point else { return Ok(placed) };
    let (request, store) = (run.request, run.store()?);
    let Placed { mut restored, file, mut writeback, db_bytes, .. } = placed;
    let settings = Settings {
        users: if request.allow_auth_changed { AuthChange::Allowed } else { AuthChange::Refused },
        hashes: false,
        stall: Duration::from_secs(request.stall_seconds.into()),
        judge: &|size| run.judge(engine, db_bytes, size),
    };
    let base = Base { file: Arc::clone(&file), db_bytes, path };
    let Continued { file: result, merged, proven, proof, segments, .. } = merge(store, chosen, base, &settings).await?;
    if !Arc::ptr_eq(&file, &result)
        && let Some(writeback) = writeback.take()
    {
        // The snapshot's file keeps its space until the last write-back ends.
        spawn_blocking(|| writeback.end().map(drop))
            .await
            .map_err(|error| task_error(&error))?
            .map_err(trouble("syncing the snapshot's file"))?;
    }
    drop(file);
    quota::check(request, merged.bytes)?;
    restored.db_bytes = merged.bytes;
    contents::record(run, &mut restored, Some(&proven), &result)?;
    restored.point = Some(Box::new(PointReport {
        base_revision: chosen.base_revision,
        revision: merged.revision,
        asked: chosen.asked,
        records: merged.records,
        segments,
        proof,
        unknown_leases: u64::try_from(merged.unknown_ttls.len()).unwrap_or(u64::MAX),
        known_at: chosen.moment.map(|moment| moment.known_at),
        changed_by: chosen.moment.and_then(|moment| moment.changed_by),
    }));
    warn_of_pause(chosen);
    if let Some(lease) = merged.unknown_ttls.first() {
        tracing::warn!(
            leases = merged.unknown_ttls.len(),
            "the log does not name the time to live of some leases, such as {lease:x}: they end after one hour"
        );
    }
    let bump = bump::for_etcdutl(request.revision_bump, Some(&proven), &*result, merged.bytes)?;
    tracing::info!(asked = %chosen.asked, revision = merged.revision, records = merged.records, "the log continues the snapshot");
    Ok(Placed { restored, bump, file: result, writeback, db_bytes: merged.bytes })
}

/// Warns of a requested time that is later than the known time of the restored revision.
fn warn_of_pause(chosen: &Chosen) {
    let Some(Moment { revision, known_at, changed_by: Some(changed_by) }) = chosen.moment else { return };
    if changed_by.duration_since(known_at) > USUAL_BETWEEN_SAMPLES {
        tracing::warn!(
            asked = %chosen.asked, revision, %known_at, %changed_by,
            "the archiver was away: the log does not say when between both times etcd made the changes that are left out"
        );
    }
}

/// Merges the log into the database of a file, hashes the result if asked, and proves it.
pub(super) async fn merge(
    store: &Store,
    chosen: &Chosen,
    base: Base<'_>,
    settings: &Settings<'_>,
) -> Result<Continued> {
    let (mut cover, mut chain) = (chosen.cover.clone(), chosen.segments.clone());
    let uri = store.uri(&chosen.log);
    let failed = |why: Unfit| merge_error(&uri, why.into());
    let users = graft::auth_revision(&*base.file, base.db_bytes).map_err(failed)?;
    let reached = graft::reached(&*base.file, base.db_bytes).map_err(failed)?;
    let base_sum = graft::last_sum(&*base.file, base.db_bytes, reached).map_err(failed)?;
    let compacted = reached.compact_revision.unwrap_or(NEVER);
    // Records that the snapshot lacks cannot be hashed. A check at the point proves all before it.
    let comparable = |check: &Check| check.compact_revision >= compacted;
    let check = chosen.check.clone().filter(comparable);
    let check_between = chosen.check_between.clone().filter(|between| check.is_none() && comparable(between));
    let replay = Arc::new(Replay {
        file: base.file,
        db_bytes: base.db_bytes,
        revision: chosen.revision,
        hashes: settings.hashes,
        check,
        check_between,
        log: Log::new(store, chosen, (base_sum, users), settings.users),
    });
    loop {
        let segments = u64::try_from(chain.len()).unwrap_or(u64::MAX);
        let passes = Passes { store, chosen, chain, stall: settings.stall };
        let Failed { error, damaged } = match merge_chain(&passes, &replay, base.path, settings).await {
            Ok(continued) => return Ok(Continued { segments, ..continued }),
            Err(failed) => failed,
        };
        let Some(damaged) = damaged else { return Err(error) };
        cover = cover.without(&damaged);
        let Some(others) = cover.chain(chosen.base_revision, chosen.revision) else { return Err(error) };
        tracing::warn!(
            "a segment is damaged, and others hold its revisions: the merge begins again with these: {error}"
        );
        chain = others.into_iter().cloned().collect();
    }
}

/// Surveys the segments of a chain, and merges them.
async fn merge_chain(
    passes: &Passes<'_>,
    replay: &Arc<Replay>,
    path: &Path,
    settings: &Settings<'_>,
) -> Result<Continued, Failed> {
    let compact = passes.find_compaction().await?;
    let (surveyed, between) = survey(passes, replay, compact).await?;
    let Surveyed { kept, least_bytes: least, likely_bytes: likely, .. } = surveyed;
    let beside = if kept.is_some() { replay.db_bytes } else { 0 };
    (settings.judge)(Size { least, likely, beside })?;
    let replaces = kept.is_some().then(|| merging_path(path));
    let file = match &replaces {
        Some(path) => {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path);
            Arc::new(file.map_err(trouble("making the file of the merged database"))?)
        }
        None => Arc::clone(&replay.file),
    };
    let merging = Arc::clone(replay);
    let continued = passes.run(move |segments| merging.run(segments, (kept, between), file)).await?;
    if let Some(merged) = replaces {
        fs::rename(merged, path).map_err(trouble("putting the merged database in the place of the snapshot"))?;
    }
    Ok(continued)
}

/// Returns the path of the result, until it takes the place of the snapshot.
fn merging_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".merged");
    path.with_file_name(name)
}

/// Runs the passes that write nothing.
async fn survey(
    passes: &Passes<'_>,
    replay: &Arc<Replay>,
    compact: Option<i64>,
) -> Result<(Surveyed, Option<Surveyed>), Failed> {
    let beginning = Arc::clone(replay);
    let started = spawn_blocking(move || beginning.surveys(compact)).await.map_err(|error| task_error(&error))?;
    let mut surveys = started?;
    loop {
        let reading = Arc::clone(replay);
        let passed = passes.run(move |segments| {
            reading.survey_segments(segments, &mut surveys)?;
            Ok(surveys)
        });
        surveys = match passed.await? {
            Surveys { result: Part::Done(result), between: None } => return Ok((result, None)),
            Surveys { result: Part::Done(result), between: Some(Part::Done(between)) } => {
                return Ok((result, Some(between)));
            }
            again => again,
        };
    }
}

impl Replay {
    fn surveys(&self, compact: Option<i64>) -> Result<Surveys> {
        let failed = |error| merge_error(self.log.uri(), error);
        let (file, bytes, budget) = (|| Arc::clone(&self.file), self.db_bytes, file_budget() / 2);
        let result = Survey::begin(file(), bytes, self.revision, compact, budget).map_err(failed)?;
        let between = self.check_between.as_ref().map(|check| {
            let survey = Survey::for_hash_kv(file(), bytes, check.revision, check.compact_revision, budget);
            survey.map(|survey| Part::Reads(Box::new(survey))).map_err(failed)
        });
        Ok(Surveys { result: Part::Reads(Box::new(result)), between: between.transpose()? })
    }

    /// Passes all records to the surveys.
    fn survey_segments(&self, segments: mpsc::Receiver<Fetched>, surveys: &mut Surveys) -> Result<(), Failed> {
        let parts = |surveys: &mut Surveys, act: &mut dyn FnMut(&mut Part) -> Result<(), MergeError>| {
            act(&mut surveys.result)?;
            surveys.between.as_mut().map_or(Ok(()), act)
        };
        self.log.read(segments, |entry| match entry {
            Some(Entry::Record(record)) => parts(surveys, &mut |part| part.add(&record)),
            Some(_) => Ok(()),
            None => parts(surveys, &mut |part| {
                part.end_segment();
                Ok(())
            }),
        })?;
        let ended = parts(surveys, &mut Part::end_pass);
        Ok(ended.map_err(|error| merge_error(self.log.uri(), error))?)
    }

    /// Merges the segments into this file, and proves the result.
    fn run(
        &self,
        segments: mpsc::Receiver<Fetched>,
        (kept, between): (Option<Kept>, Option<Surveyed>),
        result: Arc<File>,
    ) -> Result<Continued, Failed> {
        let (merged, between) = self.merge(segments, (kept, between), &result)?;
        let (uri, file) = (self.log.uri(), &*result);
        if let Some((check, found)) = self.check_between.as_ref().zip(between) {
            self.compare(check, found)?;
        }
        // Before the proof: what changes later has another hash.
        let sha256 = if self.hashes { Some(hash_database(file, merged.bytes)?) } else { None };
        let mut reader = Reader::open(file, merged.bytes, file_budget()).map_err(|error| unsound(uri, &error))?;
        let proven = reader.prove(None).map_err(|error| unsound(uri, &error))?;
        if proven.revision != self.revision {
            let (found, wanted) = (proven.revision, self.revision);
            let message = format!("{uri}: the merged database is at revision {found}, and not at {wanted}. {ANOTHER}");
            return Err(Error::corrupt(message).into());
        }
        let proof = match &self.check {
            Some(check) => {
                let found = reader.hash_kv(check.revision, check.compact_revision);
                self.compare(check, found.map_err(|error| unsound(uri, &error))?.hash)?;
                PointProof::HashKV
            }
            None => PointProof::Chained,
        };
        Ok(Continued { file: result, merged, proven, proof, sha256, segments: 0 })
    }

    /// Compares HashKV with the answer of a member.
    fn compare(&self, check: &Check, found: u32) -> Result<()> {
        if found == check.hash_kv {
            return Ok(());
        }
        let Check { revision, member_id, hash_kv, .. } = check;
        let mut points = self.log.points_around(revision.saturating_sub(1));
        // The check is of the snapshot's own revision.
        points.retain(|point| point != revision);
        let remedy = if points.is_empty() {
            "Restore one of the snapshots without --at-revision and --at-time".to_owned()
        } else {
            nearest(&points)
        };
        Err(Error::corrupt(format!(
            "{}: at revision {revision} the merged database has HashKV {found}, and member {member_id} had {hash_kv}. {remedy}",
            self.log.uri()
        )))
    }

    /// Writes the records of the segments behind the snapshot, or what stays of both into another file; then the meta pages. Also
    /// returns HashKV at the check before the point.
    fn merge(
        &self,
        segments: mpsc::Receiver<Fetched>,
        (kept, between): (Option<Kept>, Option<Surveyed>),
        file: &File,
    ) -> Result<(Merged, Option<u32>), Failed> {
        let failed = |error| merge_error(self.log.uri(), error);
        let (base, bytes, until, budget) = (&*self.file, self.db_bytes, self.revision, file_budget());
        let merge = match kept {
            Some(kept) => Merge::compact(base, bytes, until, kept, budget),
            None => Merge::begin(base, bytes, until, budget),
        };
        let mut merge = merge.map_err(failed)?;
        // Without a key etcd hashes more than the survey has kept.
        let between = self.check_between.as_ref().zip(between.filter(|between| !between.is_empty));
        let hash = between.map(|(check, Surveyed { kept, .. })| LogHash::begin(base, bytes, check.revision, kept));
        let mut hash = hash.transpose().map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.seek(SeekFrom::Start(merge.offset())).map_err(trouble(MERGING))?;
        self.log.read(segments, |entry| {
            match entry {
                Some(Entry::Record(record)) => {
                    merge.add(&record, &mut out)?;
                    hash.as_mut().map_or(Ok(()), |hash| hash.add(&record))?;
                }
                Some(Entry::Lease { id, ttl }) => merge.add_lease(id, ttl)?,
                Some(_) => {}
                None => {
                    merge.end_segment();
                    hash.as_mut().into_iter().for_each(LogHash::end_segment);
                }
            }
            Ok(())
        })?;
        let found = hash.map(LogHash::finish).transpose().map_err(failed)?;
        let merged = merge.finish(&mut out).map_err(failed)?;
        drop(out);
        let write = || {
            // Before a page refers to them.
            file.sync_data()?;
            for page in &merged.metas {
                file.write_all_at(&page.bytes, page.id.saturating_mul(page.bytes.len() as u64))?;
            }
            // A snapshot may be longer than its used pages.
            file.set_len(merged.bytes)
        };
        write().map_err(trouble(MERGING))?;
        Ok((merged, found))
    }
}
