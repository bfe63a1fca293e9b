//! The keys of a live etcd: ranges at one revision in bounded pages, and puts that a newer write of another client stops.
//!
//! This file decides the size of a page and of a transaction, which answers are repeated through another endpoint, and that a key which
//! stops a transaction costs the others nothing. A user with a role for the keys is enough. The callers decide the keys.

use std::ops::Range;
use std::time::{Duration, Instant};

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, KvClient, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_contract::{EtcdFlags, Origin};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use crate::connect::{Dialer, etcd_error, logged_in};
use crate::source::{candidate, check_cluster};

/// Bytes of a page that the agent aims at.
const PAGE_BYTES: usize = 1 << 20;

/// Most keys of a page: etcd holds a whole answer in memory too.
const MAX_PAGE: i64 = 2_000;

/// Keys of the first page, whose sizes are unknown.
const FIRST_PAGE: i64 = 32;

/// Largest answer: several times the largest request that etcd suggests (10 MiB).
const MAX_ANSWER: usize = 32 << 20;

/// Operations of a transaction: etcd's default of --max-txn-ops.
pub const MAX_OPS: usize = 128;

/// Bytes of a transaction: two thirds of etcd's default of --max-request-bytes, which counts every compare and its key too.
pub const MAX_BYTES: usize = 1 << 20;

/// Time limit for one request: longer than etcd's own (7 s).
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Time for which a request is repeated while no member answers: an election, a restart of a member.
const PATIENCE: Duration = Duration::from_mins(1);

/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// A key of the live etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveKey {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// Revision of the last write.
    pub mod_revision: i64,
}

/// A page of a range.
#[derive(Debug, Default)]
pub struct Page {
    /// The keys, in their order.
    pub keys: Vec<LiveKey>,
    /// Whether the range goes on.
    pub more: bool,
    /// Revision of etcd at the answer; the revision of the page if none was requested.
    pub revision: i64,
}

/// A put that only an unchanged key takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedPut {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// ID of the lease; 0: none.
    pub lease: i64,
    /// Revision of the key's last write; 0: the key does not exist.
    pub expected: i64,
}

/// Outcome of one put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The key has the value.
    Put,
    /// Another client has written or removed the key meanwhile, and its write stays.
    Outrun,
    /// The lease does not exist.
    LeaseEnded,
    /// etcd takes no request of this size.
    TooLarge,
}

/// Reason for which no page was read.
#[derive(Debug)]
pub enum Unread {
    /// etcd has compacted the revision.
    Compacted,
    /// Any other error.
    Failed(Error),
}

/// Kind of an answer that is no success.
enum Refusal {
    /// Repeat the request.
    Transient(Error),
    Compacted,
    /// The answer is larger than [`MAX_ANSWER`].
    LargeAnswer,
    /// etcd takes fewer operations or bytes.
    LargeRequest,
    LeaseEnded,
    Failed(Error),
}

/// A connection to one etcd, through any of its endpoints.
pub struct Keys {
    dialer: Dialer,
    endpoints: Vec<String>,
    next: usize,
    at: Option<(String, Client)>,
    cluster_id: u64,
    /// Keys of the next page.
    limit: i64,
    /// Most operations of a transaction, as far as etcd has refused larger ones.
    ops: usize,
}

impl Keys {
    /// Connects to the first endpoint that answers.
    pub async fn connect(flags: &EtcdFlags) -> Result<Self> {
        let dialer = Dialer::from_flags(flags)?;
        let (endpoints, limit) = (flags.endpoints.clone(), FIRST_PAGE);
        let mut keys = Self { dialer, endpoints, next: 0, at: None, cluster_id: 0, limit, ops: MAX_OPS };
        let mut last = Error::config("no endpoint is given. Name one with --endpoints");
        for _ in 0..keys.endpoints.len() {
            match keys.client().await {
                Ok(_) => return Ok(keys),
                Err(error) => {
                    tracing::warn!(%error, "a member does not answer");
                    last = error;
                }
            }
        }
        Err(of_etcd(last))
    }

    /// Returns etcd's cluster ID.
    pub const fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// Reads the next page of a range; revision 0: the newest, confirmed by a quorum.
    pub async fn page(&mut self, from: &[u8], end: &[u8], revision: i64) -> Result<Page, Unread> {
        let until = Instant::now() + PATIENCE;
        loop {
            let options = GetOptions::new().with_range(end).with_limit(self.limit).with_revision(revision);
            let answer = self.call(|mut kv| {
                let options = options.clone();
                async move { kv.get(from, Some(options)).await }
            });
            match answer.await {
                Ok(answer) => return Ok(self.take(answer)),
                Err(Refusal::Compacted) => return Err(Unread::Compacted),
                Err(Refusal::LargeAnswer) if self.limit > 1 => self.limit /= 2,
                Err(Refusal::Transient(error)) => self.again(until, error).await.map_err(Unread::Failed)?,
                Err(refusal) => return Err(Unread::Failed(refusal.into_error())),
            }
        }
    }

    /// Takes an answer, and decides the size of the next page by its bytes.
    fn take(&mut self, mut answer: GetResponse) -> Page {
        let (more, revision) = (answer.more(), answer.header().map_or(0, etcd_client::ResponseHeader::revision));
        let keys: Vec<LiveKey> = answer
            .take_kvs()
            .into_iter()
            .map(|kv| {
                let mod_revision = kv.mod_revision();
                let (key, value) = kv.into_key_value();
                LiveKey { key, value, mod_revision }
            })
            .collect();
        let bytes: usize = keys.iter().map(|key| key.key.len() + key.value.len()).sum();
        self.limit = next_limit(self.limit, keys.len(), bytes);
        Page { keys, more, revision }
    }

    /// Puts keys, each only if it is unchanged. Returns the outcomes in the order of the puts, which have to fit one transaction
    /// ([`MAX_OPS`], [`MAX_BYTES`]).
    pub async fn put(&mut self, puts: &[GuardedPut]) -> Result<Vec<PutOutcome>> {
        let mut outcomes = vec![PutOutcome::Outrun; puts.len()];
        let mut waiting: Vec<Vec<usize>> = split(0..puts.len(), self.ops).collect();
        let (mut until, mut uncertain) = (Instant::now() + PATIENCE, false);
        while let Some(mut open) = waiting.pop() {
            let txn = transaction(open.iter().filter_map(|place| puts.get(*place)));
            let answer = self.call(|mut kv| {
                let txn = txn.clone();
                async move { kv.txn(txn).await }
            });
            match answer.await {
                Ok(answer) if answer.succeeded() => settle(&mut outcomes, &open, PutOutcome::Put),
                Ok(answer) => {
                    let found = answer.op_responses();
                    let before = open.len();
                    let mut rest = vec![];
                    for (place, found) in open.drain(..).zip(&found) {
                        let Some(put) = puts.get(place) else { continue };
                        if revision_of(found) == put.expected {
                            rest.push(place);
                        } else if uncertain && self.holds(put).await? {
                            // The answer of the first attempt was lost, and etcd had carried it out.
                            settle(&mut outcomes, &[place], PutOutcome::Put);
                        }
                    }
                    if rest.len() == before {
                        return Err(self.contradiction());
                    }
                    waiting.extend((!rest.is_empty()).then_some(rest));
                }
                Err(Refusal::LeaseEnded) if open.len() == 1 => settle(&mut outcomes, &open, PutOutcome::LeaseEnded),
                Err(Refusal::LargeRequest) if open.len() == 1 => settle(&mut outcomes, &open, PutOutcome::TooLarge),
                Err(refusal @ (Refusal::LeaseEnded | Refusal::LargeRequest)) => {
                    let half = open.len().div_ceil(2);
                    if matches!(refusal, Refusal::LargeRequest) {
                        self.ops = self.ops.min(half).max(1);
                    }
                    let second = open.split_off(half);
                    waiting.extend([second, open]);
                }
                Err(Refusal::Transient(error)) => {
                    self.again(until, error).await?;
                    uncertain = true;
                    waiting.push(open);
                    continue;
                }
                Err(refusal) => return Err(refusal.into_error()),
            }
            until = Instant::now() + PATIENCE;
        }
        Ok(outcomes)
    }

    /// Whether the key has this value and this lease now.
    async fn holds(&mut self, put: &GuardedPut) -> Result<bool> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.call(|mut kv| async move { kv.get(put.key.as_slice(), None).await });
            match answer.await {
                Ok(answer) => {
                    return Ok(answer
                        .kvs()
                        .first()
                        .is_some_and(|kv| kv.value() == put.value && kv.lease() == put.lease));
                }
                Err(Refusal::Transient(error)) => self.again(until, error).await?,
                Err(refusal) => return Err(refusal.into_error()),
            }
        }
    }

    fn contradiction(&self) -> Error {
        let at = self.at.as_ref().map_or("etcd", |(endpoint, _)| endpoint.as_str());
        Error::transient(format!(
            "{at} refuses a transaction whose conditions hold by its own answer. Name etcd's own endpoints: a proxy must not answer \
             from its memory"
        ))
        .with_origin(Origin::Etcd)
    }

    /// Makes one call.
    async fn call<T, C>(&mut self, call: impl Fn(KvClient) -> C) -> Result<T, Refusal>
    where
        C: Future<Output = Result<T, etcd_client::Error>>,
    {
        let (endpoint, client) = self.client().await.map_err(|error| match error.class() {
            holdfast_contract::ExitClass::Transient => Refusal::Transient(error),
            _ => Refusal::Failed(error),
        })?;
        let answer = logged_in(&client, |client| call(client.kv_client().max_decoding_message_size(MAX_ANSWER)));
        match timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(refusal(&endpoint, &error)),
            Err(_) => {
                let seconds = ANSWER_WITHIN.as_secs();
                Err(Refusal::Transient(Error::transient(format!("{endpoint} does not answer within {seconds} s"))))
            }
        }
    }

    /// Returns the connection, or opens one to the next endpoint.
    async fn client(&mut self) -> Result<(String, Client)> {
        if let Some(at) = &self.at {
            return Ok(at.clone());
        }
        let endpoint = self.endpoints.get(self.next % self.endpoints.len().max(1)).cloned().unwrap_or_default();
        self.next = self.next.wrapping_add(1);
        let (client, status) = self.dialer.dial(&endpoint).await?;
        let facts = candidate(&endpoint, &status)?;
        if facts.learner || facts.leader == 0 {
            let why = if facts.learner { "is a learner" } else { "knows no leader" };
            return Err(Error::transient(format!("{endpoint} {why}. Name the voters of etcd with --endpoints")));
        }
        let known = (self.cluster_id != 0).then_some(self.cluster_id);
        let cluster_id = facts.cluster_id;
        check_cluster(&[facts], known)?;
        self.cluster_id = cluster_id;
        self.at = Some((endpoint.clone(), client.clone()));
        Ok((endpoint, client))
    }

    /// Waits before a repetition through another endpoint, until the patience ends.
    async fn again(&mut self, until: Instant, error: Error) -> Result<()> {
        if Instant::now() >= until {
            return Err(of_etcd(error));
        }
        tracing::warn!(%error, "etcd does not answer: the request is repeated");
        self.at = None;
        sleep(PAUSE).await;
        Ok(())
    }
}

impl Refusal {
    fn into_error(self) -> Error {
        of_etcd(match self {
            Self::Transient(error) | Self::Failed(error) => error,
            Self::Compacted => Error::transient("etcd has compacted the revision. Run the command again"),
            Self::LargeAnswer => Error::config(format!(
                "a key has more than {} MiB, far beyond etcd's limit for a request. Select other keys with --prefix",
                MAX_ANSWER >> 20
            )),
            Self::LargeRequest => Error::config("etcd takes no request of this size. Raise its --max-request-bytes"),
            Self::LeaseEnded => Error::config("the lease has ended. Use --leases drop"),
        })
    }
}

/// Returns the keys of the next page: so many that their bytes come near to [`PAGE_BYTES`], at most twice as many as before.
fn next_limit(limit: i64, keys: usize, bytes: usize) -> i64 {
    let fit = PAGE_BYTES / bytes.checked_div(keys).unwrap_or(0).max(1);
    i64::try_from(fit).unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE).min(limit.saturating_mul(2))
}

/// Splits places into parts of at most so many.
fn split(places: Range<usize>, most: usize) -> impl Iterator<Item = Vec<usize>> {
    let all: Vec<usize> = places.rev().collect();
    all.chunks(most.max(1)).map(|part| part.iter().rev().copied().collect()).collect::<Vec<_>>().into_iter()
}

fn settle(outcomes: &mut [PutOutcome], places: &[usize], outcome: PutOutcome) {
    for place in places {
        if let Some(slot) = outcomes.get_mut(*place) {
            *slot = outcome;
        }
    }
}

/// Returns the transaction: all puts if each key is unchanged, otherwise the revision of each key, which names the changed ones. It has
/// no transaction inside: versions of etcd exist that check no rights there.
fn transaction<'a>(puts: impl Iterator<Item = &'a GuardedPut>) -> Txn {
    let (mut compares, mut writes, mut reads) = (vec![], vec![], vec![]);
    for GuardedPut { key, value, lease, expected } in puts {
        compares.push(Compare::mod_revision(key.as_slice(), CompareOp::Equal, *expected));
        let options = (*lease != 0).then(|| PutOptions::new().with_lease(*lease));
        writes.push(TxnOp::put(key.as_slice(), value.as_slice(), options));
        reads.push(TxnOp::get(key.as_slice(), Some(GetOptions::new().with_keys_only())));
    }
    Txn::new().when(compares).and_then(writes).or_else(reads)
}

/// Returns the revision of a key in an answer; 0: the key does not exist.
fn revision_of(answer: &TxnOpResponse) -> i64 {
    match answer {
        TxnOpResponse::Get(answer) => answer.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => 0,
    }
}

/// Classifies an answer by etcd's own texts: several of them share a code.
fn refusal(endpoint: &str, error: &etcd_client::Error) -> Refusal {
    if let etcd_client::Error::GRpcStatus(status) = error {
        let has = |text: &str| status.message().contains(text);
        if has("required revision has been compacted") {
            return Refusal::Compacted;
        }
        if has("requested lease not found") {
            return Refusal::LeaseEnded;
        }
        if has("too many operations in txn request") || has("request is too large") || has("received message larger") {
            return Refusal::LargeRequest;
        }
        if has("decoded message length too large") {
            return Refusal::LargeAnswer;
        }
        if has("database space exceeded") {
            return Refusal::Failed(Error::full(format!(
                "{endpoint}: etcd's database has reached its quota and takes no write. Compact and defragment etcd, or raise its quota, \
                 and run the command again"
            )));
        }
        if is_denied(status) {
            return Refusal::Failed(Error::denied(format!(
                "{endpoint}: etcd refuses the keys to this user ({}). Give the user a role that may read the prefix, and with --apply \
                 write it: etcdctl role grant-permission ROLE readwrite PREFIX --prefix. A put with a lease also needs the right to \
                 write every key of the lease: without it use --leases drop",
                status.message()
            )));
        }
    }
    match etcd_error(endpoint, error) {
        error if error.class() == holdfast_contract::ExitClass::Transient => Refusal::Transient(error),
        error => Refusal::Failed(error),
    }
}

fn is_denied(status: &Status) -> bool {
    status.code() == Code::PermissionDenied || status.message().contains("permission denied")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_near_to_its_bytes_and_grows_slowly() {
        assert_eq!(next_limit(32, 32, 32 * 300), 64, "at most twice as many");
        assert_eq!(next_limit(2_000, 2_000, 2_000 * 100), MAX_PAGE);
        assert_eq!(next_limit(64, 64, 64 << 20), 1);
        assert_eq!(next_limit(4, 0, 0), 8, "an empty page");
        assert_eq!(next_limit(1, 1, 1 << 10), 2);
    }

    #[test]
    fn parts_keep_the_order_of_the_puts() {
        let mut parts: Vec<Vec<usize>> = split(0..5, 2).collect();
        assert_eq!(parts.len(), 3);
        let mut order = vec![];
        while let Some(part) = parts.pop() {
            order.extend(part);
        }
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert_eq!(split(0..0, 2).count(), 0);
    }

    #[test]
    fn etcds_texts_decide_where_codes_are_shared() {
        let kind =
            |code, text: &str| refusal("http://m1:2379", &etcd_client::Error::GRpcStatus(Status::new(code, text)));
        let compacted = kind(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
        assert!(matches!(compacted, Refusal::Compacted));
        let large =
            kind(Code::OutOfRange, "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes");
        assert!(matches!(large, Refusal::LargeAnswer));
        for text in ["etcdserver: request is too large", "etcdserver: too many operations in txn request"] {
            assert!(matches!(kind(Code::InvalidArgument, text), Refusal::LargeRequest));
        }
        assert!(matches!(kind(Code::NotFound, "etcdserver: requested lease not found"), Refusal::LeaseEnded));
        assert!(matches!(kind(Code::Unavailable, "etcdserver: no leader"), Refusal::Transient(_)));
        let Refusal::Failed(denied) = kind(Code::PermissionDenied, "etcdserver: permission denied") else { panic!() };
        assert!(denied.message().contains("grant-permission") && !denied.message().contains("snapshot"), "{denied}");
        let full = kind(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded").into_error();
        assert!(full.message().contains("quota"), "{full}");
    }
}
