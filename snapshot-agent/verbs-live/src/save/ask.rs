//! Asks the members about a snapshot while the upload continues.
//!
//! This file decides when: as soon as the stream has ended. `etcd/hash_kv.rs` decides which members to ask and how to judge
//! their answers.

use std::time::Duration;

use futures::future::{Either, select};
use holdfast_bbolt::scan::Proven;
use holdfast_contract::error::{Error, Result, of_etcd};
use holdfast_contract::{AskMembers, Verification};
use tokio::sync::{oneshot, watch};

use crate::save::pipe::Streamed;
use holdfast_etcd::differences;
use holdfast_etcd::hash_kv;
use holdfast_etcd::hash_kv::LARGE;
use holdfast_etcd::member::Voter;
use holdfast_etcd::source::Source;

/// Stores that copy the parts take about a second per gigabyte. If a store takes longer than this, a later run removes the
/// object.
const MADE_WITHIN: Duration = Duration::from_secs(20);

/// The members and bounds that the proven database is compared with.
pub(crate) struct Ask {
    voters: Vec<Voter>,
    /// The member that the snapshot was read from.
    member: String,
    /// Revision that the snapshot must reach: writes acknowledged before the stream have at most this revision.
    at_least: i64,
    /// Size in bytes from which members hash only on request.
    large: u64,
}

impl Ask {
    pub(crate) fn for_source(source: &Source) -> Self {
        Self { voters: source.voters(), member: source.name.clone(), at_least: source.revision, large: LARGE }
    }

    /// Returns an `Ask` without members, for streams that come from no member.
    pub(super) const fn without_members() -> Self {
        Self { voters: Vec::new(), member: String::new(), at_least: 0, large: LARGE }
    }

    /// Replaces the size of a large database.
    pub(super) fn about(self, large: u64) -> Self {
        Self { large, ..self }
    }

    /// Asks the members once the stream has ended, while `sending` continues. When either future fails, the other is dropped.
    /// Exception: an object that is `being_made`, which can be removed reliably only once it exists.
    pub(super) async fn beside<T>(
        &self,
        sending: impl Future<Output = Result<T>>,
        streamed: oneshot::Receiver<Streamed>,
        ask_members: AskMembers,
        being_made: &watch::Sender<bool>,
    ) -> Result<(Streamed, T, Verification)> {
        let asked = async {
            // The stream failed; `sending` returns the reason.
            let Ok(streamed) = streamed.await else { return std::future::pending().await };
            let verification = self.verify(&streamed, ask_members).await?;
            tracing::debug!("the members have answered");
            Ok((streamed, verification))
        };
        let (asked, sending) = (Box::pin(asked), Box::pin(sending));
        let ((streamed, verification), sent) = match select(asked, sending).await {
            Either::Left((Ok(answer), sending)) => (answer, sending.await?),
            Either::Right((Ok(sent), asked)) => (asked.await?, sent),
            Either::Right((Err(error), _)) => return Err(error),
            Either::Left((Err(error), sending)) => {
                let mut made = being_made.subscribe();
                if *made.borrow() {
                    tracing::warn!(%error, "the agent removes the upload when the store has completed the object");
                    tokio::select! {
                        _ended = sending => {}
                        _made = made.wait_for(|being_made| !being_made) => {}
                        () = tokio::time::sleep(MADE_WITHIN) => {}
                    }
                }
                return Err(error);
            }
        };
        Ok((streamed, sent, verification))
    }

    /// Compares the proven stream with the members' hashes (I14).
    async fn verify(&self, streamed: &Streamed, ask_members: AskMembers) -> Result<Verification> {
        if let Ok(Proven { revision, .. }) = &streamed.scanned
            && *revision < self.at_least
        {
            return Err(Error::corrupt(format!(
                "the snapshot of {} ends at revision {revision}, and the member reported revision {} before: \
                 acknowledged writes are missing; nothing was published",
                self.member, self.at_least
            )));
        }
        let mut verification =
            hash_kv::verify(&self.voters, ask_members, &streamed.scanned, self.large).await.map_err(of_etcd)?;
        if ask_members != AskMembers::Never
            && let (Some(source), Ok(proven)) = (self.voters.first(), &streamed.scanned)
        {
            verification.differences = differences::differences(source, proven).await;
        }
        Ok(verification)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use etcd_client::Client;
    use holdfast_bbolt::scan::HashKv;
    use holdfast_contract::ExitClass;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use holdfast_format::trailer;

    /// A snapshot that ends at this revision.
    fn ends_at(revision: i64) -> Streamed {
        let hash_kv = Ok(HashKv { hash: 7, revision, compact_revision: -1 });
        let scanned = Proven { revision, hash_kv, ..Proven::empty() };
        Streamed { database: trailer::Proven { db_bytes: 0, sha256: [0; 32] }, scanned: Ok(scanned) }
    }

    #[tokio::test]
    async fn what_fails_first_waits_for_nobody() {
        // Accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let client = Client::connect([&endpoint], None).await.unwrap();
        let voter = Voter { client, endpoint, member_id: 1, name: "m1".to_owned(), leader: false };
        let ask = Ask { voters: vec![voter], member: "m1".to_owned(), at_least: 9, ..Ask::without_members() };
        for (heard, full, class) in [
            (Some(ends_at(8)), false, ExitClass::Corrupt),
            (Some(ends_at(9)), true, ExitClass::Full),
            (None, true, ExitClass::Full),
        ] {
            let (proven, streamed) = oneshot::channel();
            match heard {
                Some(heard) => proven.send(heard).unwrap(),
                None => drop(proven),
            }
            let sending = async {
                if full {
                    tokio::task::yield_now().await;
                    return Err(Error::full("the store is full"));
                }
                std::future::pending::<Result<()>>().await
            };
            let (being_made, _) = watch::channel(false);
            let asked = ask.beside(sending, streamed, AskMembers::Auto, &being_made);
            let passed = timeout(Duration::from_secs(30), asked).await;
            let error = passed.unwrap().unwrap_err();
            assert_eq!(error.class(), class, "{error}");
        }
    }

    /// An object that the store is completing exists a moment later, and the abort then finds it. Later steps are not awaited.
    #[tokio::test]
    async fn an_object_that_is_being_made_is_waited_for() {
        let ask = Ask { at_least: 9, ..Ask::without_members() };
        for making in [true, false] {
            let (proven, streamed) = oneshot::channel();
            proven.send(ends_at(8)).unwrap();
            let (being_made, _) = watch::channel(making);
            let made = AtomicBool::new(false);
            let sending = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                made.store(true, Ordering::Relaxed);
                being_made.send_replace(false);
                std::future::pending::<Result<()>>().await
            };
            let asked = timeout(Duration::from_secs(10), ask.beside(sending, streamed, AskMembers::Auto, &being_made));
            assert_eq!(asked.await.unwrap().unwrap_err().class(), ExitClass::Corrupt);
            assert_eq!(made.load(Ordering::Relaxed), making);
        }
    }
}
