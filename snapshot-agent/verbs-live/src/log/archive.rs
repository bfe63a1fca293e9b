//! Records the revisions of an etcd: from a watch into segments, and the segments into the spool.
//!
//! This file decides when a revision is complete, when a segment ends, and what follows a broken watch. Nothing is skipped: a
//! hole in the revisions ends the watch, and the next watch begins after the last complete revision. Only etcd's compaction
//! makes a gap, which the log records. A sample is a read that a quorum confirmed and that the log has reached: while the log
//! lags behind the cluster, its segments have no sample. Before a watch goes on, `history.rs` compares etcd's history with the
//! log's.

use std::io::Write as _;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast_bbolt::scan::HashKv;
use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_contract::{LogGap, LogRequest, Origin, hex_id};
use holdfast_io::clock;
use holdfast_layout::{Folder, GapName, SegmentName, Tail, check_key};
use holdfast_segment::{self as segment, OutOfOrder, Writer};
use holdfast_store::{Handle, layout};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::begin::Begin;
use super::entries::Entries;
use super::history;
use super::numbers::{Numbers, Side};
use super::pack::pack;
use super::spool::Spool;
use holdfast_catalog::log::{Check, FORMAT_VERSION, Gap, render};
use holdfast_etcd::auth_revision::AuthReader;
use holdfast_etcd::connect::Dialer;
use holdfast_etcd::hash_kv::{LARGE, ask_newest};
use holdfast_etcd::revisions::{Change, News, Revisions, compact_revision, granted, newest_revision, raft_place};
use holdfast_etcd::source::{Source, choose_for_watch};
use holdfast_format::crypt::Recipients;

/// Time between two questions to the member: how far the watch is, and how far the cluster is.
const TICK: Duration = Duration::from_secs(1);

/// A member that sends nothing for this long is left, although it answers each question within a second.
const SILENCE: Duration = Duration::from_secs(15);

/// First and longest pause before the next watch.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Where the objects of this run go.
pub(super) struct Place<'a> {
    pub(super) store: &'a Handle,
    pub(super) log: Folder,
    pub(super) spool: &'a Spool,
    pub(super) numbers: &'a Numbers,
    pub(super) recipients: Arc<Recipients>,
    /// Eight random characters in the names of this run.
    pub(super) run8: String,
}

/// A run of `agent log`.
pub(super) struct Archiver<'a> {
    request: &'a LogRequest,
    place: Place<'a>,
    cluster_id: u64,
    writer: Writer<Entries>,
    /// Source of the segment.
    origin: segment::Origin,
    /// Number of the next segment of this run.
    serial: u32,
    cut_at: Instant,
    /// Time of the last sample, in milliseconds since 1970.
    known_at: i64,
    /// Least number of entries of raft without a revision.
    least: Option<i64>,
    /// The last known revision of users and roles.
    users: Option<i64>,
    /// Checks that a member computes.
    checks: JoinSet<Option<Check>>,
    checked_at: Option<Instant>,
    /// Revision of the last check: the name of a check is used once.
    checked: i64,
}

/// Reason for which a watch has ended.
enum Ended {
    Stopped,
    SpoolFull,
    /// etcd has compacted the revisions up to this one.
    Compacted(i64),
}

impl<'a> Archiver<'a> {
    /// Continues the log.
    pub(super) fn new(begin: &Begin, request: &'a LogRequest, place: Place<'a>, source: &Source) -> Self {
        place.numbers.recorded.store(begin.after, Relaxed);
        let known_at = begin.known_at.as_millisecond();
        let mut writer = Writer::after(begin.after, known_at, place.spool.entries(room(request)));
        writer.set_sum(begin.sum);
        let origin = segment::Origin {
            cluster_id: source.facts.cluster_id,
            member_id: source.facts.member_id,
            compact_revision: 0,
            auth_revision: None,
            raft: None,
        };
        Self {
            request,
            place,
            cluster_id: source.facts.cluster_id,
            writer,
            origin,
            serial: 0,
            cut_at: Instant::now(),
            known_at,
            least: begin.least,
            users: None,
            checks: JoinSet::new(),
            checked_at: None,
            checked: 0,
        }
    }

    /// Records until `stop`, then ends the last segment.
    pub(super) async fn run(&mut self, first: Source, stop: &mut watch::Receiver<bool>) -> Result<()> {
        let (mut source, mut pause) = (Some(first), PAUSE);
        while !*stop.borrow() {
            let before = self.writer.last_complete();
            match self.record(source.take(), stop).await {
                Ok(Ended::Stopped) => break,
                Ok(Ended::SpoolFull) => {
                    tracing::warn!("the spool is full (--spool-mib): the watch ends until the store takes segments");
                    tokio::select! {
                        () = self.place.spool.wait_for_room() => tracing::info!("the spool has room: the watch goes on"),
                        () = stopped(stop) => break,
                    }
                }
                Ok(Ended::Compacted(compacted)) => self.record_gap(compacted).await?,
                Err(error) if !matches!(error.origin(), Some(Origin::Etcd | Origin::Dns)) => {
                    // The recorded revisions are of the log's own history, whatever etcd has now.
                    self.writer.drop_incomplete();
                    self.cut().await?;
                    return Err(error);
                }
                Err(error) => {
                    self.place.numbers.note_failure(Side::Watch, &error);
                    tracing::warn!(class = ?error.class(), %error, "the watch has ended");
                    pause = if self.writer.last_complete() > before { PAUSE } else { longer(pause) };
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = stopped(stop) => break,
                    }
                }
            }
            self.writer.drop_incomplete();
        }
        self.cut().await
    }

    /// Reads the revision of users and roles, and records a change.
    async fn ask_auth(&mut self, users: &mut AuthReader) -> Result<()> {
        self.origin.auth_revision = users.read().await?;
        let Some(now) = self.origin.auth_revision else { return Ok(()) };
        if self.users.replace(now).is_some_and(|before| before != now) {
            self.writer.auth_changed();
            tracing::warn!("users or roles have changed: a restore to a later revision has the users of its snapshot");
        }
        Ok(())
    }

    /// Reads the member's compact revision, which a merge applies as etcd did. Without an answer the earlier one stands.
    async fn ask_compaction(&mut self, source: &Source) {
        let known = self.origin.compact_revision;
        // On the heap: the future of a call is large, and lies within those of the whole run.
        match Box::pin(compact_revision(source, known, self.writer.last_complete())).await {
            Ok(compacted) => self.origin.compact_revision = known.max(compacted),
            Err(error) => tracing::debug!(%error, "the member did not tell its compact revision"),
        }
    }

    /// Watches one member. `source`: already chosen.
    async fn record(&mut self, source: Option<Source>, stop: &mut watch::Receiver<bool>) -> Result<Ended> {
        let connecting = async {
            let source = match source {
                Some(source) => source,
                None => choose_for_watch(&self.request.etcd, None).await?,
            };
            let dialer = Dialer::from_flags(&self.request.etcd).map_err(of_etcd)?;
            let revisions = Revisions::open(&dialer, &source, self.writer.last_complete()).await?;
            let users = AuthReader::open(&dialer, &source.facts.endpoint, source.client()).map_err(of_etcd)?;
            Ok::<_, Error>((source, revisions, users))
        };
        let (source, revisions, users) = tokio::select! {
            connected = connecting => connected?,
            () = stopped(stop) => return Ok(Ended::Stopped),
        };
        if source.facts.cluster_id != self.cluster_id {
            return Err(Error::unclear(format!(
                "{} is etcd cluster {:x} now, and this run records cluster {:x}. Start the agent again: each etcd cluster has a log \
                 of its own",
                source.facts.endpoint, source.facts.cluster_id, self.cluster_id
            )));
        }
        let recorded = self.writer.last_complete();
        history::check_place(&self.place.store.store(), &self.place.log, &source, (recorded, self.least)).await?;
        self.origin.member_id = revisions.member_id;
        self.follow(&source, (revisions, users), stop).await
    }

    /// Takes the answers of an open watch.
    async fn follow(
        &mut self,
        source: &Source,
        (mut revisions, mut users): (Revisions, AuthReader),
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Ended> {
        self.ask_auth(&mut users).await?;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Times of the last answer and of the last change.
        let (mut heard, mut changed) = (Instant::now(), Instant::now());
        // The revision of the last progress, if no change has come since.
        let mut quiet = None;
        // The cluster's revision, until the log has it, and the time of its read.
        let mut newest: Option<(i64, Instant, i64)> = None;
        // Whether the last recorded revision is etcd's too.
        let mut is_joined = false;
        loop {
            let mut busy = Instant::now();
            tokio::select! {
                () = stopped(stop) => {
                    self.ask_leases(source).await?;
                    return Ok(Ended::Stopped);
                }
                news = revisions.next() => {
                    heard = Instant::now();
                    busy = heard;
                    match news? {
                        News::Changes(answer) => {
                            (quiet, changed) = (None, Instant::now());
                            if !is_joined && revisions.changes(&answer).next().is_some() {
                                self.join(source, &revisions).await?;
                                is_joined = true;
                            }
                            for change in revisions.changes(&answer) {
                                self.take(&change).map_err(|error| out_of_order(source, &error))?;
                            }
                        }
                        News::Progress(revision) => {
                            // Early versions of etcd may report progress before they send the changes. They have sent
                            // the changes before they report the same revision a second later.
                            if quiet == Some(revision) && revision >= self.writer.last_complete() {
                                if !mem::replace(&mut is_joined, true) {
                                    self.join(source, &revisions).await?;
                                }
                                self.writer.complete(revision);
                            }
                            quiet = Some(revision);
                        }
                        News::Compacted(revision) => return Ok(Ended::Compacted(revision)),
                    }
                }
                Some(check) = self.checks.join_next() => {
                    if let Ok(Some(check)) = check {
                        self.keep_check(check).await?;
                    }
                }
                _ = tick.tick() => {
                    busy = Instant::now();
                    let lags =
                        newest.is_some_and(|(_, read, _)| read.elapsed() > SILENCE) && changed.elapsed() > SILENCE;
                    if lags || heard.elapsed() > SILENCE {
                        let (endpoint, seconds) = (&source.facts.endpoint, SILENCE.as_secs());
                        return Err(of_etcd(Error::transient(format!("{endpoint}: the watch is silent for {seconds} s"))));
                    }
                    revisions.request_progress().await?;
                    self.ask_leases(source).await?;
                    let read = newest_revision(source).await?;
                    newest.get_or_insert((read, Instant::now(), clock::now().as_millisecond()));
                }
            }
            self.place.numbers.recorded.store(self.writer.last_complete(), Relaxed);
            if let Some((revision, _, at)) = newest
                && is_joined
                && revision <= self.writer.last_complete()
            {
                self.writer.sample(revision, at);
                self.known_at = at.max(self.known_at);
                self.place.numbers.note_success(Side::Watch);
                newest = None;
            }
            if is_joined && self.is_due() {
                self.ask_leases(source).await?;
                self.ask_auth(&mut users).await?;
                self.ask_raft(source).await?;
                self.ask_compaction(source).await;
                self.cut().await?;
                self.begin_check(source);
                if self.place.spool.is_full() {
                    return Ok(Ended::SpoolFull);
                }
            }
            // Time in which nothing was read is no silence of the member.
            heard += busy.elapsed();
            changed += busy.elapsed();
        }
    }

    /// Compares etcd's changes of the last recorded revision with the log's.
    async fn join(&mut self, source: &Source, revisions: &Revisions) -> Result<()> {
        let recorded = (self.writer.last_complete(), self.writer.last_sum());
        let sum =
            history::compare(&self.place.store.store(), &self.place.log, source, recorded, revisions.sums_before())
                .await?;
        self.writer.set_sum(sum);
        Ok(())
    }

    async fn ask_raft(&mut self, source: &Source) -> Result<()> {
        let place = raft_place(source).await?;
        self.origin.raft = place;
        self.least = self.least.max(place.map(|place| place.least()));
        Ok(())
    }

    fn take(&mut self, change: &Change<'_>) -> Result<(), OutOfOrder> {
        match change {
            Change::Put(kv) => self.writer.put(kv),
            Change::Delete(revision, key) => self.writer.delete(*revision, key),
        }
    }

    async fn ask_leases(&mut self, source: &Source) -> Result<()> {
        let leases = self.writer.take_leases();
        match granted(source, &leases).await {
            Ok(known) => known.into_iter().for_each(|(id, ttl)| self.writer.lease(id, ttl)),
            Err(error) => {
                self.writer.return_leases(leases);
                return Err(error);
            }
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        let every = Duration::from_secs(self.request.every_seconds.into());
        self.cut_at.elapsed() >= every || self.writer.len() >= room(self.request)
    }

    /// Ends the segment after the last complete revision, and puts it into the spool.
    async fn cut(&mut self) -> Result<()> {
        self.cut_at = Instant::now();
        let Some(segment) = self.writer.cut(&self.origin) else { return Ok(()) };
        let header = segment.header;
        self.serial = self.serial.saturating_add(1);
        let name = SegmentName {
            first: header.first,
            last: header.last,
            at: Timestamp::from_second(header.last_at / 1000).unwrap_or_default(),
            run8: self.place.run8.clone(),
            encrypted: !self.place.recipients.is_empty(),
            tail: Some(Tail { serial: self.serial, sum: segment.last_sum, is_timed: segment.is_timed }),
        };
        let key = name.key(&self.place.log).map_err(|error| layout(&error))?;
        let recipients = Arc::clone(&self.place.recipients);
        self.place.spool.push(key, move |file| pack(segment, &recipients, file)).await
    }

    /// Records that etcd has compacted revisions that the log lacks, and continues after them.
    async fn record_gap(&mut self, compacted: i64) -> Result<()> {
        self.cut().await?;
        let after = self.writer.last_complete();
        let gap = GapName { after, until: compacted, removed: false };
        let key = gap.key(&self.place.log, &self.place.run8).map_err(|error| layout(&error))?;
        let at = clock::now();
        let json = render(&Gap {
            format_version: FORMAT_VERSION,
            cluster_id: hex_id(self.cluster_id),
            after,
            until: compacted,
            at,
        })?;
        self.place.spool.push(key, move |file| file.write_all(&json)).await?;
        self.place.numbers.count_gap(LogGap { after, until: compacted, at: Some(at) });
        tracing::error!(
            after,
            until = compacted,
            "etcd has compacted revisions before the log recorded them: no restore reaches the revisions of this gap. \
             Save a snapshot now, so that the log continues it"
        );
        self.origin.compact_revision = compacted;
        self.writer = Writer::after(compacted, self.known_at, self.place.spool.entries(room(self.request)));
        Ok(())
    }

    /// Has the member compute its HashKV, if a check is due.
    fn begin_check(&mut self, source: &Source) {
        let every = Duration::from_secs(self.request.check_seconds.into());
        let due = !every.is_zero() && self.checked_at.is_none_or(|at| at.elapsed() >= every);
        // Writes would wait while the leader hashes a large database.
        let spared = source.facts.leader == source.facts.member_id && source.facts.db_bytes >= LARGE;
        let Some(voter) = source.voters().into_iter().next() else { return };
        if !due || spared || !self.checks.is_empty() {
            return;
        }
        self.checked_at = Some(Instant::now());
        let (cluster_id, member_id, least) = (hex_id(self.cluster_id), hex_id(source.facts.member_id), self.least);
        self.checks.spawn(async move {
            match ask_newest(&voter).await {
                Ok(Some(HashKv { hash, revision, compact_revision })) => Some(Check {
                    format_version: FORMAT_VERSION,
                    cluster_id,
                    member_id,
                    revision,
                    compact_revision,
                    hash_kv: hash,
                    at: clock::now(),
                    least,
                }),
                Ok(None) => None,
                Err(error) => {
                    tracing::warn!(%error, "the member has not computed its HashKV: the log has no check of this hour");
                    None
                }
            }
        });
    }

    async fn keep_check(&mut self, check: Check) -> Result<()> {
        self.origin.compact_revision = self.origin.compact_revision.max(check.compact_revision);
        if check.revision <= self.checked {
            return Ok(());
        }
        self.checked = check.revision;
        let key = check_key(&self.place.log, check.revision, &self.place.run8).map_err(|error| layout(&error))?;
        let json = render(&check)?;
        self.place.spool.push(key, move |file| file.write_all(&json)).await
    }
}

/// Returns the length at which a segment ends.
fn room(request: &LogRequest) -> usize {
    usize::try_from(request.segment_mib << 20).unwrap_or(segment::MAX_VALUE)
}

fn longer(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(LONGEST_PAUSE)
}

fn out_of_order(source: &Source, error: &OutOfOrder) -> Error {
    let endpoint = &source.facts.endpoint;
    of_etcd(Error::transient(format!("{endpoint}: {error}. The watch begins again after the last complete revision")))
}

/// Waits for the end of the run.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error: the sender is gone, and with it the run.
    let _ended = stop.wait_for(|stop| *stop).await;
}
