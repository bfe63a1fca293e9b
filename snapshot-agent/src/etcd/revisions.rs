//! A watch of every key of one member, from one revision on.
//!
//! This file decides how the watch is opened, and what an answer of etcd means. The watch begins with the last revision that the
//! caller has, and leaves that revision out: etcd removes the tombstones of its compact revision, so a watch that began there
//! could lack changes without an error. The watch has a connection of its own: changes that wait to be read would hold up the
//! answers of other calls. Fragments are on, because etcd refuses a stream whose message is too long. The callers
//! decide what happens to the changes, and when a member counts as silent.

use etcd_client::{LeaseTimeToLiveResponse, ResponseHeader, WatchOptions, WatchResponse, WatchStream};
use futures::stream::{self, StreamExt, TryStreamExt};
use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_segment::{KeyValue, MAX_VALUE};

use crate::etcd::connect::{Dialer, ask, etcd_error};
use crate::etcd::source::Source;

/// Number of leases that the agent asks for at the same time. The leader answers for its followers.
const LEASES_AT_ONCE: usize = 16;

/// A part of an open watch.
pub(crate) enum News {
    /// Changes after the last revision that the caller had.
    Changes(WatchResponse),
    /// The member has sent every change up to this revision.
    Progress(i64),
    /// The member has compacted the revisions up to this one, and ends the watch.
    Compacted(i64),
}

/// One change of one key.
pub(crate) enum Change<'a> {
    Put(KeyValue<'a>),
    Delete(i64, &'a [u8]),
}

/// An open watch.
pub(crate) struct Revisions {
    stream: WatchStream,
    endpoint: String,
    cluster_id: u64,
    /// The member that sends the changes.
    pub(crate) member_id: u64,
    after: i64,
}

impl Revisions {
    /// Opens a watch of the revisions after this one.
    pub(crate) async fn open(dialer: &Dialer, source: &Source, after: i64) -> Result<Self> {
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
        Ok(Self { stream, endpoint, cluster_id: source.facts.cluster_id, member_id, after })
    }

    /// Asks the member how far the watch is.
    pub(crate) async fn request_progress(&mut self) -> Result<()> {
        self.stream.request_progress().await.map_err(|error| of_etcd(etcd_error(&self.endpoint, &error)))
    }

    /// Waits for the next answer.
    pub(crate) async fn next(&mut self) -> Result<News> {
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
                return Ok(News::Changes(answer));
            }
            // The answer to the request of the watch has its revision too, and says nothing about changes.
            if !answer.created() {
                return Ok(News::Progress(header.revision()));
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
    pub(crate) fn changes<'a>(&self, answer: &'a WatchResponse) -> impl Iterator<Item = Change<'a>> + use<'a> {
        let after = self.after;
        let kvs = answer.events().iter().filter_map(etcd_client::Event::kv);
        kvs.filter(move |kv| kv.mod_revision() > after).map(|kv| {
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
        })
    }
}

/// Returns etcd's newest revision, which a quorum confirms.
pub(crate) async fn newest_revision(source: &Source) -> Result<i64> {
    let options = || Some(etcd_client::GetOptions::new().with_keys_only().with_limit(1));
    let answer =
        ask(&source.facts.endpoint, source.client(), |mut client| async move { client.get([0], options()).await });
    let answer = answer.await.map_err(of_etcd)?;
    let header = answer.header().filter(|header| header.cluster_id() == source.facts.cluster_id);
    header.map(ResponseHeader::revision).ok_or_else(|| {
        of_etcd(Error::transient(format!("{} leads to another etcd cluster now", source.facts.endpoint)))
    })
}

/// Returns the member's compact revision, by reads of a key that does not exist: etcd refuses reads below it, and does not name it.
/// `known`: an earlier answer, 0 for none; `newest`: a revision that the member has reached.
pub(crate) async fn compact_revision(source: &Source, known: i64, newest: i64) -> Result<i64> {
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

/// Whether the member has compacted later than at this revision.
async fn is_compacted(source: &Source, revision: i64) -> Result<bool> {
    let options = || etcd_client::GetOptions::new().with_serializable().with_keys_only().with_limit(1);
    let read = ask(&source.facts.endpoint, source.client(), |mut client| async move {
        match client.get([0], Some(options().with_revision(revision))).await {
            Err(etcd_client::Error::GRpcStatus(status)) if status.message() == COMPACTED => Ok(true),
            answer => answer.map(|_| false),
        }
    });
    read.await.map_err(of_etcd)
}

/// etcd's answer to a read below its compact revision (etcd: api/v3rpc/rpctypes/error.go, `ErrGRPCCompacted`).
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Returns leases with their granted seconds; 0: the lease has ended.
pub(crate) async fn granted(source: &Source, leases: &[i64]) -> Result<Vec<(i64, i64)>> {
    let asks = leases.iter().map(|id| async move {
        let id = *id;
        let answer = ask(&source.facts.endpoint, source.client(), |mut client| async move {
            client.lease_time_to_live(id, None).await
        });
        answer.await.map_err(of_etcd).map(|answer| (id, LeaseTimeToLiveResponse::granted_ttl(&answer)))
    });
    stream::iter(asks).buffer_unordered(LEASES_AT_ONCE).try_collect().await
}
