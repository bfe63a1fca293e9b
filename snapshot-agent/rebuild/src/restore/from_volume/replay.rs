//! Lets etcd apply the log of the copy to the database of the copy.
//!
//! This file decides when the log is applied: etcd says so or is healthy, and after its end the database has the last index. Until
//! then leases run: one whose time is over meanwhile ends, with its keys, as at any start of etcd.

use std::path::Path;
use std::time::Duration;

use holdfast_bbolt::scan::HashKv;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{RestoreRequest, hex_id};
use holdfast_etcd::hash_kv::ask_newest;
use holdfast_etcd::member::Voter;
use holdfast_etcd::server::etcd::{Etcd, Ready, Work, starts_within};
use holdfast_etcd::stopped::{Database, read_database};
use holdfast_gate::data_dir::DATABASE;
use holdfast_io::progress::Progress;

use super::{Survivor, copy, own};
use crate::restore::volume::trouble;

/// Time for an entry on the slowest processor. Measured: 20 to 50 microseconds.
const ENTRY: Duration = Duration::from_millis(1);

impl Survivor {
    /// Applies the log; returns etcd's HashKV. `None`: authentication is on, so etcd answers no question.
    pub(super) async fn replay(&self, folder: &Path, request: &RestoreRequest) -> Result<Option<HashKv>> {
        let data = copy::data(folder);
        let mut etcd = Etcd::spawn(Work::Replay(self.version), &self.etcd, &data, folder.join("etcd.log"))?;
        let replayed = self.applied(&mut etcd, &data.join(DATABASE), request).await;
        let asked = match replayed {
            Ok(asked) => etcd.end().await.map(|()| asked).map_err(own)?,
            Err(error) => {
                etcd.stop().await;
                return Err(error);
            }
        };
        let Database { recorded, .. } =
            read_database(&data.join(DATABASE)).map_err(trouble("reading the copy's database"))?;
        let applied = recorded.ok().and_then(|recorded| recorded.consistent_index).unwrap_or(0);
        if applied < self.log.last_index {
            let last = self.log.last_index;
            return Err(own(Error::transient(format!(
                "etcd ended with index {applied} in its database, and the log goes on to index {last}"
            ))));
        }
        Ok(asked)
    }

    /// Waits until etcd has applied the last entry, and asks for its HashKV.
    async fn applied(&self, etcd: &mut Etcd, database: &Path, request: &RestoreRequest) -> Result<Option<HashKv>> {
        let entries = u32::try_from(self.log.last_index - self.applied).unwrap_or(u32::MAX);
        let within = starts_within(self.likely_bytes()).saturating_add(ENTRY.saturating_mul(entries));
        let progress = Progress::new("applying the survivor's log with etcd", self.db_bytes);
        let pid = etcd.pid();
        let work = etcd.ready(within, self.log.last_index);
        // etcd reads its database from memory for a while: its own time limit is the one that counts.
        let limit = within.saturating_add(Duration::from_secs(request.stall_seconds.into()));
        let ready = progress.watch(limit, progress.follow(database, pid, work)).await?;
        let Ready { client, endpoint, member_id, .. } = ready;
        let Some(client) = client else { return Ok(None) };
        let voter = Voter { client, endpoint, member_id, name: hex_id(member_id), leader: true };
        ask_newest(&voter).await.map_err(own)
    }
}
