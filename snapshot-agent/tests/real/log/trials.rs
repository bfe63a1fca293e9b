//! Trials of a log, each driven by a seed: etcd is written, compacted, rolled back and restored in place; two archivers end, are
//! killed and catch up; snapshots are saved and merged; a clock differs; bookkeeping objects are lost.
//!
//! A restore to a point has one of two answers. Either the database is that of etcd at this revision, in a history that its
//! snapshot belongs to, or the error names the nearest points or the missing revisions, and a restore to each named point succeeds.
//! Where etcd had one history, and where the recorded revisions follow a snapshot without a hole, only the first answer counts.
//!
//! The seeds are the same each time; with `HOLDFAST_SOAK=1` there are more, from another seed on, and `HOLDFAST_SEED` repeats one.
//! A seed repeats the steps, but not the moments at which the archivers see them.

mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::time::Instant;

use etcd_client::{Client, CompactionOptions, DeleteOptions, PutOptions, Txn, TxnOp};
use futures::{FutureExt as _, StreamExt as _};
use holdfast_contract::{Compression, ExitClass, Point};
use holdfast_layout::{SegmentName, is_closed_name};
use jiff::Timestamp;
use snapshot_agent::verbs::{save, verify};
use tempfile::TempDir;

use super::archiver::Log;
use super::histories::{LINEAGE, grant_leases, keep, restore_in_place, roll_back};
use super::truth::{History, Moment, hash_of, newest, shift_clock};
use super::{FAILED, LOGGED, verify_request};
use crate::compaction::{compacted, manifest, request as compact_request};
use crate::server::Dice;
use crate::server::seed::seed;
use crate::soak::soak;
use crate::support::{Etcd, eventually, file_store, save_request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write,
    Start,
    End,
    Kill,
    CatchUp,
    Save,
    Keep,
    RollBack,
    RestoreInPlace,
    Compact,
    Merge,
    Lose,
    ShiftClock,
    Ask,
}

use Step::{
    Ask, CatchUp, Compact, End, Keep, Kill, Lose, Merge, RestoreInPlace, RollBack, Save, ShiftClock, Start, Write,
};

/// Draws a step. Some trials have one history.
fn draw(dice: &mut Dice, has_one: bool) -> Step {
    match dice.below(if has_one { 22 } else { 26 }) {
        0..5 => Write,
        5..8 => Start,
        8..10 => End,
        10 => Kill,
        11..13 => CatchUp,
        13 => Save,
        14 => Keep,
        15..17 => Compact,
        17 => Merge,
        18 => Lose,
        19 => ShiftClock,
        20..22 => Ask,
        22..24 => RollBack,
        _ => RestoreInPlace,
    }
}

/// Draws a place in a list.
fn place(dice: &mut Dice, length: usize) -> usize {
    usize::try_from(dice.below(length.max(1) as u64)).unwrap()
}

/// A snapshot: its history, and its revision.
type Base = (usize, i64);

struct Trial {
    seed: u64,
    steps: Vec<(Step, u64)>,
    etcd: Etcd,
    mount: TempDir,
    logs: [Log; 2],
    /// The last one is etcd's.
    histories: Vec<History>,
    kept: Vec<(TempDir, Base)>,
    bases: BTreeMap<String, Base>,
    /// Number of the last value: each value is written once.
    number: u64,
    /// Snapshots when etcd began its second history, and the revisions that they and the log reached.
    at_fork: Option<(usize, Vec<(i64, i64)>)>,
    is_shifted: bool,
    has_lost_gap: bool,
    begun: Instant,
    answers: usize,
    refusals: usize,
    /// Answers whose HashKV was compared.
    hashed: usize,
    /// Volume and revision of the last answer.
    restored: Option<(TempDir, i64)>,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("HOLDFAST_SEED={} fails: {:?}", self.seed, self.steps);
            println!("snapshots {:#?}, log {:#?}", self.bases, self.logs[0].paths());
        }
    }
}

impl Trial {
    /// An etcd with a snapshot and an archiver.
    async fn begin(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let count = 8 + dice.below(8);
        let steps = (0..count).map(|_| (draw(&mut dice, seed.is_multiple_of(3)), dice.below(1 << 40) | 1)).collect();
        let (etcd, mount) = (Etcd::start().await, tempfile::tempdir().unwrap());
        let logs = [(); 2].map(|()| {
            let mut log = Log::prepare(etcd.flags(), file_store(mount.path()), mount.path());
            log.request.from_revision = None;
            log
        });
        let mut trial = Self {
            seed,
            steps,
            etcd,
            mount,
            logs,
            histories: vec![History::new()],
            kept: vec![],
            bases: BTreeMap::new(),
            number: 0,
            at_fork: None,
            is_shifted: false,
            has_lost_gap: false,
            begun: Instant::now(),
            answers: 0,
            refusals: 0,
            hashed: 0,
            restored: None,
        };
        let mut client = trial.etcd.client().await;
        trial.note(&mut client, Timestamp::now()).await;
        trial.write(&mut dice).await;
        trial.keep().await;
        trial.save().await;
        trial.logs[0].start();
        trial.logs[0].is_alive().await;
        trial
    }

    async fn run(&mut self) {
        for (step, luck) in self.steps.clone() {
            let mut dice = Dice(luck);
            let one = place(&mut dice, 2);
            match step {
                Write => self.write(&mut dice).await,
                Start if self.logs[one].process.is_none() => self.logs[one].start(),
                End => drop(self.end(one)),
                Kill if self.logs[one].process.is_some() => self.logs[one].kill(),
                CatchUp => self.catch_up().await,
                Save => self.save().await,
                Keep => self.keep().await,
                RollBack | RestoreInPlace => self.go_back(step, &mut dice).await,
                Compact => self.compact(&mut dice).await,
                Merge => self.merge().await,
                Lose => self.lose(&mut dice),
                ShiftClock if self.logs.iter().all(|log| log.process.is_none()) => self.shift(&mut dice),
                Ask => self.ask_any(&mut dice).await,
                Start | Kill | ShiftClock => {}
            }
        }
        self.catch_up().await;
        let _refused = [self.end(0), self.end(1)];
        let mut dice = Dice(self.seed | 1 << 40);
        for _ in 0..6 {
            self.ask_any(&mut dice).await;
        }
        let reached = self.logs[0].last();
        self.ask(Point::Revision(reached), LINEAGE).await;
        self.verify().await;
        self.merge().await;
        self.compare_with_etcd().await;
        let (forks, steps) = (self.histories.len() - 1, self.steps.len());
        let Self { seed, answers, refusals, hashed, .. } = self;
        println!(
            "seed {seed}: {steps} steps, {forks} new histories, {answers} answers ({hashed} by HashKV), {refusals} refusals"
        );
        assert!(forks > 0 || *answers > 3, "a log of one history has too few points");
    }

    fn history(&self) -> &History {
        self.histories.last().unwrap()
    }

    /// Notes etcd's newest revision.
    async fn note(&mut self, client: &mut Client, began: Timestamp) {
        let (revision, state) = newest(client).await;
        if self.history().contains_key(&revision) {
            return;
        }
        assert!(self.history().keys().next_back().is_none_or(|last| last + 1 == revision), "{revision} was not noted");
        let hash = hash_of(client, revision).await;
        self.histories.last_mut().unwrap().insert(revision, Moment { state, hash, began });
    }

    async fn write(&mut self, dice: &mut Dice) {
        let mut client = self.etcd.client().await;
        for _ in 0..3 + dice.below(9) {
            let began = Timestamp::now();
            let place = dice.below(24);
            let key = |more: u64| format!("{}/{:02}", (place + more) % 3, (place + more) % 24);
            self.number += 1;
            let value = |more: u64| format!("{}-{more}", self.number);
            let (_, state) = newest(&mut client).await;
            match dice.below(12) {
                0 => drop(client.delete(key(0), None).await.unwrap()),
                1 => drop(client.delete("0/", Some(DeleteOptions::new().with_prefix())).await.unwrap()),
                2 => {
                    let puts = (1..4).map(|more| TxnOp::put(key(more), value(more), None));
                    let ops: Vec<_> = puts.chain([TxnOp::delete(key(0), None)]).collect();
                    client.txn(Txn::new().and_then(ops)).await.unwrap();
                }
                3 | 4 => {
                    let lease = client.lease_grant(1000 + dice.below(9000).cast_signed(), None).await.unwrap().id();
                    client.put(key(0), value(0), Some(PutOptions::new().with_lease(lease))).await.unwrap();
                }
                5 => {
                    if let Some(lease) = state.values().map(|(_, numbers)| numbers[0]).find(|lease| *lease != 0) {
                        client.lease_revoke(lease).await.unwrap();
                    }
                }
                _ => drop(client.put(key(0), value(0), None).await.unwrap()),
            }
            self.note(&mut client, began).await;
        }
    }

    async fn compact(&mut self, dice: &mut Dice) {
        let newest = *self.history().keys().next_back().unwrap();
        // An archiver that comes back at the compact revision has nothing to compare.
        let at =
            if dice.below(3) == 0 { self.logs[0].last() } else { 1 + dice.below(newest.cast_unsigned()).cast_signed() };
        let options = CompactionOptions::new().with_physical();
        // etcd refuses a compacted revision, and one that it has not reached.
        let _ = self.etcd.client().await.compact(at, Some(options)).await;
    }

    async fn keep(&mut self) {
        let now = (self.histories.len() - 1, *self.history().keys().next_back().unwrap());
        self.kept.push((keep(&mut self.etcd).await, now));
    }

    async fn save(&mut self) {
        let request = save_request(self.etcd.flags(), file_store(self.mount.path()), Compression::Zstd);
        let saved = save::run(request).await.unwrap();
        self.bases.insert(saved.key, (self.histories.len() - 1, saved.revision.unwrap()));
    }

    /// etcd begins another history, from kept data.
    async fn go_back(&mut self, step: Step, dice: &mut Dice) {
        if self.at_fork.is_none() {
            self.at_fork = Some((self.bases.len(), self.reaches()));
        }
        let (kept, (history, revision)) = &self.kept[place(dice, self.kept.len())];
        self.histories
            .push(self.histories[*history].range(..=revision).map(|(at, moment)| (*at, moment.clone())).collect());
        match step {
            RollBack => roll_back(&mut self.etcd, kept).await,
            _ => restore_in_place(&mut self.etcd, kept).await,
        }
        if dice.below(2) == 0 {
            grant_leases(&self.etcd).await;
        }
        self.write(dice).await;
    }

    /// Ends an archiver, if it runs. Returns whether it refused etcd's history.
    fn end(&mut self, one: usize) -> bool {
        let log = &mut self.logs[one];
        if log.process.is_none() {
            return false;
        }
        // It may have ended before.
        let _status = Command::new("kill").args(["-TERM", &log.pid()]).output().unwrap();
        let status = log.process.take().unwrap().wait().unwrap();
        let output = fs::read_to_string(log.spool.path().join("output")).unwrap();
        let has_refused = output.contains(&format!("{FAILED}{:?}", ExitClass::Refused));
        // The signal came first, or etcd was away.
        let early = ["stopped by SIGTERM", "connect error", "transport error"];
        let is_early = status.code().is_none() || early.iter().any(|words| output.contains(words));
        assert!(has_refused || is_early || output.contains(LOGGED), "{output}");
        assert!(!has_refused || self.histories.len() > 1, "{output}");
        has_refused
    }

    /// Waits until the log has etcd's newest revision, or until an archiver has refused etcd.
    async fn catch_up(&mut self) {
        let last = *self.history().keys().next_back().unwrap();
        eventually("the end of the log", async || {
            let runs =
                |log: &mut Log| log.process.as_mut().is_some_and(|process| process.try_wait().unwrap().is_none());
            if self.logs[0].last() >= last {
                return Some(());
            }
            if !self.logs.iter_mut().any(runs) {
                if self.end(0) | self.end(1) {
                    return Some(());
                }
                self.logs[0].start();
            }
            None
        })
        .await;
    }

    /// Removes an object that holds no revision.
    fn lose(&mut self, dice: &mut Dice) {
        let is_lost = |path: &String| SegmentName::parse(path).is_none();
        let objects: Vec<String> = self.logs[0].paths().into_iter().filter(is_lost).collect();
        let closed = objects.iter().filter(|path| is_closed_name(path) || *path == "closed.json");
        let lost: Vec<&String> = match dice.below(3) {
            0 => closed.collect(),
            1 => objects.iter().filter(|path| *path == "cluster.json").collect(),
            _ => objects.get(place(dice, objects.len())).into_iter().collect(),
        };
        for path in lost {
            self.has_lost_gap |= path.starts_with("gaps/");
            fs::remove_file(self.logs[0].folder().join(path)).unwrap();
        }
    }

    /// The clock of one run of an archiver was ahead or behind.
    fn shift(&mut self, dice: &mut Dice) {
        let runs: BTreeSet<String> = self.logs[0].segments().into_iter().map(|segment| segment.run8).collect();
        let run = runs.iter().nth(place(dice, runs.len())).unwrap();
        let seconds = 1 + dice.below(120).cast_signed();
        let seconds = if dice.below(2) == 0 { seconds } else { -seconds };
        for path in self.logs[0].paths() {
            if SegmentName::parse(&path).is_some_and(|segment| segment.run8 == *run) {
                shift_clock(&self.logs[0].folder(), &path, seconds);
            }
        }
        self.is_shifted = true;
    }

    async fn merge(&mut self) {
        let scratch = tempfile::tempdir().unwrap();
        match compacted(compact_request(self.mount.path(), scratch.path())).await {
            Ok(None) => {}
            Ok(Some(merged)) => {
                let of = manifest(self.mount.path(), &merged.key).await.derived_from.unwrap().base;
                let at = Point::Revision(merged.revision.unwrap());
                let (volume, report) = self.restore(at, &merged.key).await.unwrap();
                let history = self.answered(at, volume, &report, &self.histories_of(&of));
                self.bases.insert(merged.key, (history, merged.revision.unwrap()));
            }
            Err(error) => self.refused(&error, self.histories.len() == 1).await,
        }
    }

    async fn verify(&mut self) {
        if let Err(error) = verify::run(verify_request(&self.logs[0], vec![])).await {
            assert!(self.histories.len() > 1 || self.has_lost_gap, "{error}");
            assert!(error.class() == ExitClass::Corrupt && error.message().contains("revision"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_seed() {
    let first = seed("trials", 1);
    let count = if std::env::var_os("HOLDFAST_SEED").is_some() { 1 } else { soak(8, 100) };
    let trials = (first..first + count).map(|seed| async move {
        let trial = async {
            let mut trial = Trial::begin(seed).await;
            trial.run().await;
            trial.answers
        };
        // The others go on.
        AssertUnwindSafe(trial).catch_unwind().await.map_err(|_| seed)
    });
    let ended: Vec<_> = futures::stream::iter(trials).buffer_unordered(4).collect().await;
    let failed: Vec<_> = ended.iter().filter_map(|ended| ended.err()).collect();
    assert!(failed.is_empty(), "HOLDFAST_SEED is one of {failed:?}");
    let answers: usize = ended.iter().flatten().sum();
    assert!(answers > 4 * ended.len(), "{answers} answers of {} trials", ended.len());
}
