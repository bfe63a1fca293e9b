//! Puts keys of a point back into a live etcd.
//!
//! This file decides which differences go back, the transactions and the rate. `snapshot-agent/etcd/src/keys.rs` decides that a newer
//! write of another client stays. A run that ended early has less to do the next time: a key that went back is no difference.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{Applied, Leases, UndeleteReport, UndeleteRequest};
use holdfast_etcd::keys::{GuardedPut, Keys, MAX_BYTES, MAX_OPS, PutOutcome};
use holdfast_io::progress::Progress;
use tokio::time::sleep_until;

use super::differences::{Difference, Differences, Sort};
use super::table::{PastKey, Table};
use super::{STALL, name};

/// Leases that are known to have ended; more are asked for again.
const MOST_ENDED: usize = 10_000;

/// Bytes of a put in a transaction beside value and key. The key stands in the condition, in the put and in the read.
const BESIDE_PUT: usize = 64;

/// Puts the wanted differences back, and counts them.
pub(super) async fn apply(
    keys: &mut Keys,
    request: &UndeleteRequest,
    (table, differences, report): (&Table, &Differences, &UndeleteReport),
    applied: &mut Applied,
) -> Result<()> {
    let changed = if request.changed { report.changed.bytes } else { 0 };
    let progress = Progress::new("putting keys back", report.missing.bytes.saturating_add(changed));
    let began = Instant::now();
    let mut run = Run {
        keys,
        applied,
        leases: request.leases,
        rate: request.rate,
        began,
        puts: vec![],
        bytes: 0,
        sent: 0,
        ended: HashSet::new(),
        progress: progress.clone(),
    };
    progress.watch(STALL, run.put_all(table, differences, request.changed)).await
}

struct Run<'a> {
    keys: &'a mut Keys,
    applied: &'a mut Applied,
    leases: Leases,
    rate: Option<u32>,
    began: Instant,
    /// The next transaction.
    puts: Vec<GuardedPut>,
    /// Its bytes.
    bytes: usize,
    /// Keys of all transactions so far.
    sent: u64,
    /// Leases that have ended.
    ended: HashSet<i64>,
    progress: Progress,
}

impl Run<'_> {
    async fn put_all(&mut self, table: &Table, differences: &Differences, changed: bool) -> Result<()> {
        let mut past = table.keys()?;
        for found in differences.read()? {
            let found = found?;
            if found.difference == Sort::Added || found.difference == Sort::Changed && !changed {
                continue;
            }
            let Some(lease) = self.lease_for(&found) else { continue };
            let PastKey { key, value, .. } = find(&mut past, &found)?;
            let bytes = key.len().saturating_mul(3).saturating_add(value.len()).saturating_add(BESIDE_PUT);
            if self.puts.len() >= self.most() || self.bytes.saturating_add(bytes) > MAX_BYTES {
                self.send().await?;
            }
            self.bytes = self.bytes.saturating_add(bytes);
            self.puts.push(GuardedPut { key, value, lease, expected: found.live_revision });
        }
        self.send().await
    }

    /// Most keys of a transaction: a rate below its size spreads them.
    fn most(&self) -> usize {
        self.rate.and_then(|rate| usize::try_from(rate).ok()).map_or(MAX_OPS, |rate| rate.clamp(1, MAX_OPS))
    }

    /// Returns the lease with which a key goes back; `None`: the key stays out.
    fn lease_for(&mut self, found: &Difference) -> Option<i64> {
        match self.leases {
            _ if found.lease == 0 => Some(0),
            Leases::Drop => Some(0),
            Leases::Skip => {
                self.applied.leased.add(found.point_bytes);
                None
            }
            Leases::Keep if self.ended.contains(&found.lease) => {
                self.applied.lease_ended.add(found.point_bytes);
                None
            }
            Leases::Keep => Some(found.lease),
        }
    }

    async fn send(&mut self) -> Result<()> {
        if self.puts.is_empty() {
            return Ok(());
        }
        self.wait_for_rate().await;
        let puts = std::mem::take(&mut self.puts);
        self.bytes = 0;
        let outcomes = self.keys.put(&puts).await?;
        self.sent = self.sent.saturating_add(puts.len() as u64);
        for (put, outcome) in puts.iter().zip(outcomes) {
            self.count(put, outcome);
        }
        self.progress.moved();
        self.applied.millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn count(&mut self, put: &GuardedPut, outcome: PutOutcome) {
        let bytes = put.key.len() + put.value.len();
        let applied = &mut *self.applied;
        let count = match outcome {
            PutOutcome::Put => {
                self.progress.add(bytes);
                &mut applied.put_back
            }
            PutOutcome::Outrun => {
                name(&mut applied.outrun_keys, &put.key);
                &mut applied.outrun
            }
            PutOutcome::LeaseEnded => {
                if self.ended.len() < MOST_ENDED {
                    self.ended.insert(put.lease);
                }
                &mut applied.lease_ended
            }
            PutOutcome::TooLarge => {
                name(&mut applied.too_large_keys, &put.key);
                &mut applied.too_large
            }
        };
        count.add(bytes as u64);
    }

    /// Waits until the rate permits the next transaction.
    async fn wait_for_rate(&self) {
        let Some(rate) = self.rate else { return };
        let due = self.began + due_after(self.sent, rate);
        while Instant::now() < due {
            // In short steps: a slow rate is no stall.
            let step = due.min(Instant::now() + Duration::from_secs(1));
            sleep_until(step.into()).await;
            self.progress.moved();
        }
    }
}

/// Returns the time from the begin at which a transaction is due after so many keys.
fn due_after(sent: u64, rate: u32) -> Duration {
    let millis = u128::from(sent) * 1_000 / u128::from(rate.max(1));
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// Returns the key of a difference, from the table in the order of keys.
fn find(past: &mut impl Iterator<Item = Result<PastKey>>, found: &Difference) -> Result<PastKey> {
    for key in past {
        let key = key?;
        if key.key == found.key {
            return Ok(key);
        }
    }
    Err(Error::corrupt(
        "the table of keys in --scratch lacks a key of the comparison. Check the disk of --scratch, and run again",
    )
    .with_origin(holdfast_contract::Origin::Volume))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spreads_the_transactions() {
        assert_eq!(due_after(0, 10), Duration::ZERO);
        assert_eq!(due_after(128, 10), Duration::from_millis(12_800));
        assert_eq!(due_after(u64::MAX, 1), Duration::from_millis(u64::MAX));
    }
}
