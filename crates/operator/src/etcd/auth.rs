//! Whether etcd's authentication is on, and whether etcd has a user or a role of a name. No watch reports a change. With
//! authentication on each question is a line in etcd's log, so that answer counts for minutes.
//!
//! Decides when etcd is asked again. The leader is asked: its answer follows a linearizable read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Address, Failure, Pool};
use crate::aged::{Aged, FRESH, Key};

/// How long an answer counts with authentication off: etcd writes no line for the question.
const WHILE_OFF: Duration = Duration::from_secs(30);

/// How long an answer counts while the spec asks for the other state.
const WHILE_WRONG: Duration = Duration::from_secs(10);

/// The answers, by the Pod that gave them.
#[derive(Default)]
pub(crate) struct AuthStates(Mutex<Aged<bool>>);

impl AuthStates {
    fn lock(&self) -> MutexGuard<'_, Aged<bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a state that a change has brought about.
    pub(crate) fn put(&self, at: &Address, on: bool) {
        self.lock().put(key(at), Some(&on));
    }

    /// Forgets all Pods but these.
    pub(super) fn retain(&self, kept: impl Fn(&str) -> bool) {
        self.lock().retain(kept);
    }
}

fn key(at: &Address) -> Key {
    (at.pod_uid.clone(), String::new())
}

/// Returns whether authentication is on; `None` where the leader gives no answer.
pub(crate) async fn is_auth_on(pool: &Pool, leader: &Address, wanted: Option<bool>) -> Option<bool> {
    let known = |within| pool.auth.lock().get(&key(leader), within);
    let on = known(FRESH).filter(|on| *on);
    let fresh = on.or_else(|| known(WHILE_OFF)).filter(|on| wanted.is_none_or(|wanted| wanted == *on));
    if let Some(known) = fresh.or_else(|| known(WHILE_WRONG)) {
        return Some(known);
    }
    let on = pool.is_auth_on(leader).await.ok()?;
    pool.auth.put(leader, on);
    Some(on)
}

/// Returns whether etcd has a user or a role of this name. A name that is taken counts as taken for five minutes: each question is an
/// entry in etcd's raft log.
pub(crate) async fn has_user(pool: &Pool, at: &Address, name: &str) -> Result<bool, Failure> {
    let key = (at.pod_uid.clone(), name.to_owned());
    if pool.auth.lock().get(&key, FRESH).is_some() {
        return Ok(true);
    }
    let taken = pool.reads_user(at, name).await?;
    pool.auth.lock().put(key, taken.then_some(&true));
    Ok(taken)
}
