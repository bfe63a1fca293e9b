//! Pods that do not answer: remembered, so that no pass waits for them, and asked beside the passes until they answer.
//!
//! Decides which failed calls count as silence. A remembered silence is an unknown answer, never an absent member; a failed read
//! of the membership is never remembered. Losing this memory costs one deadline.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Address, Failure, MemberStatus, News, Pool};
use crate::clock::{self, Instant};

/// A call that fails later than this met silence. A Pod whose etcd does not listen yet refuses at once; each pass asks it.
const REFUSES_WITHIN: Duration = Duration::from_secs(1);

/// Pause between two questions beside the passes: short, so that an answer is noticed as soon as by a pass that waits.
const PAUSE: Duration = Duration::from_millis(100);

/// The last unanswered question counts for this long. Longer than a question with its pause: only a question that hangs gets older.
const COUNTS: Duration = Duration::from_secs(10);

/// A Pod that no pass asks for this long is asked no more: every cluster has a pass within five minutes.
const UNUSED: Duration = Duration::from_mins(10);

/// UID and address of a Pod: kubelet may restart the same Pod with another address.
type Key = (String, IpAddr);

/// The Pods that do not answer.
#[derive(Default)]
pub(super) struct Silent(Mutex<HashMap<Key, Silence>>);

struct Silence {
    asked: Instant,
    used: Instant,
    failure: Failure,
}

impl Silent {
    /// The failure of a Pod's last call, where the Pod is known to be silent.
    fn known(&self, pod: &Key) -> Option<Failure> {
        let mut all = self.lock();
        let silence = all.get_mut(pod).filter(|silence| silence.asked.elapsed() < COUNTS)?;
        silence.used = clock::instant();
        Some(silence.failure.clone())
    }

    /// Remembers a silence; returns whether it is new.
    fn begin(&self, at: &Address, failure: Failure) -> bool {
        let now = clock::instant();
        let silence = Silence { asked: now, used: now, failure };
        self.lock().insert(key(at), silence).is_none()
    }

    /// Notes another question without an answer; returns whether to ask again.
    fn goes_on(&self, at: &Address, failure: Failure) -> bool {
        let mut all = self.lock();
        let Some(silence) = all.get_mut(&key(at)) else { return false };
        (silence.asked, silence.failure) = (clock::instant(), failure);
        let used = silence.used.elapsed() < UNUSED;
        if !used {
            all.remove(&key(at));
        }
        used
    }

    /// Whether the silence is still remembered: its Pod may be gone.
    fn is_remembered(&self, at: &Address) -> bool {
        self.lock().contains_key(&key(at))
    }

    fn end(&self, at: &Address) {
        self.lock().remove(&key(at));
    }

    /// Forgets all Pods but these.
    pub(super) fn retain(&self, kept: impl Fn(&str) -> bool) {
        self.lock().retain(|(pod_uid, _), _| kept(pod_uid));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Silence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(at: &Address) -> Key {
    (at.pod_uid.clone(), at.ip)
}

impl Pool {
    /// Whether a Pod is known not to answer at this address.
    pub(crate) fn is_silent(&self, pod_uid: &str, ip: IpAddr) -> bool {
        self.silent.known(&(pod_uid.to_owned(), ip)).is_some()
    }
}

/// Reads a member's own status; fails at once where its Pod is known to be silent. The first answer of such a Pod calls `news`.
pub(super) async fn ask(pool: &Pool, at: &Address, news: &News) -> Result<MemberStatus, Failure> {
    if let Some(failure) = pool.silent.known(&key(at)) {
        return Err(failure);
    }
    match listen(pool, at).await {
        Heard::Answer(answer) => answer,
        Heard::Nothing(failure) => {
            if pool.silent.begin(at, failure.clone()) {
                tokio::spawn(ask_until_heard(pool.clone(), at.clone(), Arc::clone(news)));
            }
            Err(failure)
        }
    }
}

enum Heard {
    Answer(Result<MemberStatus, Failure>),
    Nothing(Failure),
}

async fn listen(pool: &Pool, at: &Address) -> Heard {
    let started = clock::instant();
    match pool.status(at).await {
        Err(failure @ (Failure::Silent(_) | Failure::Unreachable(_))) if started.elapsed() > REFUSES_WITHIN => {
            Heard::Nothing(failure)
        }
        answer => Heard::Answer(answer),
    }
}

async fn ask_until_heard(pool: Pool, at: Address, news: News) {
    tracing::info!(member = at.member, ip = %at.ip, "a member does not answer, and is asked beside the passes");
    loop {
        clock::sleep(PAUSE).await;
        if !pool.silent.is_remembered(&at) {
            return;
        }
        match listen(&pool, &at).await {
            Heard::Answer(_) => break,
            Heard::Nothing(failure) => {
                if !pool.silent.goes_on(&at, failure) {
                    return;
                }
            }
        }
    }
    tracing::info!(member = at.member, ip = %at.ip, "a member that was silent answers");
    pool.silent.end(&at);
    news();
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn at(ip: &str) -> Address {
        Address { member: "m".to_owned(), pod_uid: "u".to_owned(), ip: ip.parse().unwrap(), tls: None }
    }

    async fn timed(pool: &Pool, at: &Address, news: &News) -> (Duration, Failure) {
        let begun = clock::instant();
        let failure = ask(pool, at, news).await.unwrap_err();
        (begun.elapsed(), failure)
    }

    /// The listener accepts no connection: the kernel completes the handshake, and no byte comes back.
    #[tokio::test]
    async fn silence_costs_one_deadline_and_ends_with_the_first_answer() {
        let (pool, silent) = (Pool::default(), at("127.77.1.1"));
        let listener = TcpListener::bind("127.77.1.1:2379").unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        let news: News = {
            let told = Arc::clone(&told);
            Arc::new(move || {
                told.fetch_add(1, Ordering::SeqCst);
            })
        };
        let (first, failure) = timed(&pool, &silent, &news).await;
        assert!(first > REFUSES_WITHIN, "{first:?}");
        // Longer than one question beside the passes.
        let begun = clock::instant();
        while begun.elapsed() < Duration::from_secs(3) {
            let (again, same) = timed(&pool, &silent, &news).await;
            assert!(again < Duration::from_millis(500) && same == failure, "{again:?}: {same}");
            clock::sleep(Duration::from_millis(100)).await;
        }
        assert!(pool.is_silent("u", silent.ip) && told.load(Ordering::SeqCst) == 0);
        // kubelet restarts the Pod with another address: the silence of the old address does not count.
        let (_, refused) = timed(&pool, &at("127.77.1.2"), &news).await;
        assert_ne!(refused, failure);
        // A closed port is an answer.
        drop(listener);
        let begun = clock::instant();
        while told.load(Ordering::SeqCst) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "no news");
            clock::sleep(Duration::from_millis(10)).await;
        }
        let (_, refused) = timed(&pool, &silent, &news).await;
        assert!(refused != failure && !pool.is_silent("u", silent.ip), "{refused}");
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_pod_that_is_gone() {
        let pool = Pool::default();
        assert!(pool.silent.begin(&at("127.77.1.3"), Failure::Silent(PAUSE)));
        assert!(!pool.silent.begin(&at("127.77.1.3"), Failure::Silent(PAUSE)), "it is asked already");
        assert!(pool.is_silent("u", at("127.77.1.3").ip));
        pool.forget("u");
        assert!(!pool.is_silent("u", at("127.77.1.3").ip));
        assert!(!pool.silent.goes_on(&at("127.77.1.3"), Failure::Silent(PAUSE)));
    }
}
