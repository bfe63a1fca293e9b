//! A watch of every key of one member, from one revision on.
//!
//! This file decides how the watch is opened, and what an answer of etcd means. The watch begins with the last revision that the
//! caller has, and leaves that revision out: etcd removes the tombstones of its compact revision, so a watch that began there
//! could lack changes without an error. The checksum of that revision shows whether etcd is in the history that the caller
//! knows: after a restore in place another revision has the same number. The watch has a connection of its own: changes that wait to be read would hold up the
//! answers of other calls. Fragments are on, because etcd refuses a stream whose message is too long. The callers
//! decide what happens to the changes, and when a member counts as silent.

use etcd_client::{LeaseTimeToLiveResponse, ResponseHeader, WatchOptions, WatchResponse, WatchStream};
use futures::stream::{self, StreamExt, TryStreamExt};
use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_segment::{KeyValue, MAX_VALUE, RaftPlace, RevisionSum};
use tonic::Code;

use crate::connect::{Dialer, ask, etcd_error};
use crate::source::Source;

/// Number of leases that the agent asks for at the same time. The leader answers for its followers.
const LEASES_AT_ONCE: usize = 16;

/// A part of an open watch.
pub enum News {
    /// Changes after the last revision that the caller had.
    Changes(WatchResponse),
    /// The member has sent every change up to this revision.
    Progress(i64),
    /// The member has compacted the revisions up to this one, and ends the watch.
    Compacted(i64),
}

/// One change of one key.
pub enum Change<'a> {
    /// The key gets this value.
    Put(KeyValue<'a>),
    /// The key is deleted at this revision.
    Delete(i64, &'a [u8]),
}

/// An open watch.
pub struct Revisions {
    stream: WatchStream,
    endpoint: String,
    cluster_id: u64,
    /// The member that sends the changes.
    pub member_id: u64,
    after: i64,
    /// Checksum of the revision `after`, as far as the member has sent it.
    sum: Option<RevisionSum>,
    /// The same of its puts: etcd removes the deletions of its compact revision.
    puts: Option<RevisionSum>,
}

/// Checksums of the last revision that the caller has, as the member has sent it; `None`: it has sent no such change.
#[derive(Clone, Copy)]
pub struct Sums {
    /// Number of changes.
    pub changes: Option<u32>,
    /// Number of puts.
    pub puts: Option<u32>,
}

impl Revisions {
    /// Opens a watch of the revisions after this one.
    pub async fn open(dialer: &Dialer, source: &Source, after: i64) -> Result<Self> {
        // 0 would mean etcd's newest revision. No change has the revision 1.
        let options = WatchOptions::new().with_all_keys().with_fragment().with_start_revision(after.max(1));
        let endpoint = source.facts.endpoint.clone();
        let (client, status) = dialer.dial(&endpoint).await.map_err(of_etcd)?;
        let member_id = status.header().map_or(source.facts.member_id, ResponseHeader::member_id);
        let stream = ask(&endpoint, &client, |client| {
            let options = options.clone();
            async move { client.watch_client().max_decoding_message_size(MAX_VALUE).watch([], Some(options)).await }
        });
        let stream = stream.await.map_err(of_etcd)?;
        Ok(Self { stream, endpoint, cluster_id: source.facts.cluster_id, member_id, after, sum: None, puts: None })
    }

    /// Returns the checksums of the last revision that the caller has, which the member sends before all later ones.
    pub fn sums_before(&self) -> Sums {
        let [changes, puts] = [&self.sum, &self.puts].map(|sum| sum.as_ref().map(RevisionSum::get));
        Sums { changes, puts }
    }

    /// Asks the member how far the watch is.
    pub async fn request_progress(&mut self) -> Result<()> {
        self.stream.request_progress().await.map_err(|error| of_etcd(etcd_error(&self.endpoint, &error)))
    }

    /// Waits for the next answer.
    pub async fn next(&mut self) -> Result<News> {
        loop {
            let answer = self.stream.message().await.map_err(|error| of_etcd(etcd_error(&self.endpoint, &error)))?;
            let Some(answer) = answer else { return Err(self.transient("the member ended the watch")) };
            let header = answer.header().ok_or_else(|| self.transient("an answer has no header"))?;
            self.check(header)?;
            if answer.compact_revision() > 0 {
                return Ok(News::Compacted(answer.compact_revision()));
            }
            if answer.canceled() {
                return Err(self.transient(&format!("the member ended the watch: {}", answer.cancel_reason())));
            }
            if !answer.events().is_empty() {
                self.sum_up(&answer);
                return Ok(News::Changes(answer));
            }
            // The answer to the request of the watch has its revision too, and says nothing about changes.
            if !answer.created() {
                return Ok(News::Progress(header.revision()));
            }
        }
    }

    fn sum_up(&mut self, answer: &WatchResponse) {
        let of_before = answer.events().iter().filter_map(etcd_client::Event::kv);
        for kv in of_before.filter(|kv| kv.mod_revision() == self.after) {
            let sum = self.sum.get_or_insert_default();
            match change(kv) {
                Change::Put(kv) => {
                    sum.add_change(false, &kv);
                    self.puts.get_or_insert_default().add_change(false, &kv);
                }
                Change::Delete(_, key) => sum.add_change(true, &KeyValue { key, ..KeyValue::default() }),
            }
        }
    }

    fn check(&self, header: &ResponseHeader) -> Result<()> {
        if header.cluster_id() == self.cluster_id {
            return Ok(());
        }
        Err(self.transient(&format!("an answer is of another etcd cluster, {:x}", header.cluster_id())))
    }

    fn transient(&self, why: &str) -> Error {
        of_etcd(Error::transient(format!("{}: {why}", self.endpoint)))
    }

    /// Returns the changes of an answer, in etcd's order.
    pub fn changes<'a>(&self, answer: &'a WatchResponse) -> impl Iterator<Item = Change<'a>> + use<'a> {
        let after = self.after;
        let kvs = answer.events().iter().filter_map(etcd_client::Event::kv);
        kvs.filter(move |kv| kv.mod_revision() > after).map(change)
    }
}

fn change(kv: &etcd_client::KeyValue) -> Change<'_> {
    // The deletion of a key has the key and its revision only; a put has a version of at least 1.
    if kv.version() == 0 {
        return Change::Delete(kv.mod_revision(), kv.key());
    }
    Change::Put(KeyValue {
        key: kv.key(),
        create_revision: kv.create_revision(),
        mod_revision: kv.mod_revision(),
        version: kv.version(),
        value: kv.value(),
        lease: kv.lease(),
    })
}

/// Returns etcd's newest revision, which a quorum confirms.
pub async fn newest_revision(source: &Source) -> Result<i64> {
    Ok(newest(source).await?.revision())
}

/// Returns the header of a read that a quorum confirms.
async fn newest(source: &Source) -> Result<ResponseHeader> {
    let options = || Some(etcd_client::GetOptions::new().with_keys_only().with_limit(1));
    let answer =
        ask(&source.facts.endpoint, source.client(), |mut client| async move { client.get([0], options()).await });
    let answer = answer.await.map_err(of_etcd)?;
    let header = answer.header().filter(|header| header.cluster_id() == source.facts.cluster_id);
    header.cloned().ok_or_else(|| {
        of_etcd(Error::transient(format!("{} leads to another etcd cluster now", source.facts.endpoint)))
    })
}

/// Whether etcd has compacted this revision: its deletions are then gone, and a watch from it lacks them.
pub async fn has_compacted(source: &Source, revision: i64) -> Result<bool> {
    // 0 would mean the newest revision.
    is_compacted(source, revision.saturating_sub(1).max(1)).await
}

/// Returns etcd's compact revision, by reads of a key that does not exist: etcd refuses reads below it, and does not name it.
/// `known`: an earlier answer, 0 for none; `newest`: a revision that etcd has reached.
pub async fn compact_revision(source: &Source, known: i64, newest: i64) -> Result<i64> {
    // A compaction at revision 1 removes nothing.
    let mut below = known.max(1);
    if below >= newest || !is_compacted(source, below).await? {
        return Ok(known);
    }
    let mut readable = newest;
    while below + 1 < readable {
        let middle = below + (readable - below) / 2;
        if is_compacted(source, middle).await? {
            below = middle;
        } else {
            readable = middle;
        }
    }
    Ok(readable)
}

/// Whether etcd, which has reached this revision, has compacted later than at it.
async fn is_compacted(source: &Source, revision: i64) -> Result<bool> {
    let options = || etcd_client::GetOptions::new().with_keys_only().with_limit(1);
    let read = ask(&source.facts.endpoint, source.client(), |mut client| async move {
        match client.get([0], Some(options().with_revision(revision))).await {
            Err(etcd_client::Error::GRpcStatus(status)) if status.code() == Code::OutOfRange => Ok(true),
            answer => answer.map(|_| false),
        }
    });
    read.await.map_err(of_etcd)
}

/// Returns the place of raft beside etcd's newest revision; `None`: the answers came from several members.
pub async fn raft_place(source: &Source) -> Result<Option<RaftPlace>> {
    let endpoint = &source.facts.endpoint;
    let status = || async {
        let answer = ask(endpoint, source.client(), |mut client| async move { client.status().await });
        answer.await.map_err(of_etcd)
    };
    // The order makes both numbers sure: the member had applied the first before the read, and committed the second after.
    let before = status().await?;
    let read = newest(source).await?;
    let after = status().await?;
    let is_the_member = |header: Option<&ResponseHeader>| {
        header.is_some_and(|header| {
            (header.cluster_id(), header.member_id()) == (source.facts.cluster_id, source.facts.member_id)
        })
    };
    let revision = read.revision();
    let is_one = [before.header(), Some(&read), after.header()].into_iter().all(is_the_member);
    let index = |index: u64| i64::try_from(index).unwrap_or(i64::MAX);
    let (applied, committed) = (index(before.raft_applied_index()), index(after.raft_index()));
    Ok(is_one.then_some(RaftPlace { revision, applied, committed }))
}

/// Returns leases with their granted seconds; 0: the lease has ended.
pub async fn granted(source: &Source, leases: &[i64]) -> Result<Vec<(i64, i64)>> {
    let asks = leases.iter().map(|id| async move {
        let id = *id;
        let answer = ask(&source.facts.endpoint, source.client(), |mut client| async move {
            client.lease_time_to_live(id, None).await
        });
        answer.await.map_err(of_etcd).map(|answer| (id, LeaseTimeToLiveResponse::granted_ttl(&answer)))
    });
    stream::iter(asks).buffer_unordered(LEASES_AT_ONCE).try_collect().await
}
