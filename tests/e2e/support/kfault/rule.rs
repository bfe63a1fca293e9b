//! Rules: which call meets which fault. Decides nothing about the way of a fault.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;

use super::call::Call;

/// An action on the operator, run in the proxy's thread.
pub type Blow = Arc<dyn Fn() + Send + Sync>;

/// The fault that a call meets. A healthy API server, its load balancer or a network may cause each of them.
#[derive(Clone)]
pub enum Fault {
    /// The call is not carried out, and answered with this code.
    Refuse {
        code: u16,
        /// Delay that the answer requests, in seconds.
        retry_after: Option<u32>,
    },
    /// The call is carried out, and answered with 504.
    AnswerTooLate,
    /// The call is carried out, and the connection breaks before the answer.
    LoseAnswer,
    /// The call is carried out later.
    Delay(Duration),
    /// The call is carried out when the test releases it, whether the caller still waits or not.
    Hold(Hold),
    /// The blow is run, and the call is not carried out.
    KillBefore(Blow),
    /// The call is carried out, the blow is run, and the caller gets no answer.
    KillAfterCommit(Blow),
}

/// The matching calls, their number, and their fault. The first rule that matches a call counts.
pub struct Rule {
    /// For messages, and for [`super::Kfault::hits`].
    pub name: &'static str,
    when: Box<dyn FnMut(&Call) -> bool + Send>,
    left: Option<u64>,
    fault: Fault,
}

impl Rule {
    /// Matches every call that `when` accepts.
    pub fn new(name: &'static str, fault: Fault, when: impl FnMut(&Call) -> bool + Send + 'static) -> Self {
        Self { name, when: Box::new(when), left: None, fault }
    }

    /// Limits the rule to its first match.
    pub fn once(self) -> Self {
        Self { left: Some(1), ..self }
    }

    /// Matches the n-th write, counted from one.
    pub fn at_write(name: &'static str, n: u64, fault: Fault) -> Self {
        Self::new(name, fault, move |call| call.nth_write == Some(n)).once()
    }

    pub(super) fn strike(&mut self, call: &Call) -> Option<Fault> {
        if self.left == Some(0) || !(self.when)(call) {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        Some(self.fault.clone())
    }
}

/// A call that is held: it has left its sender and has not arrived at the API server.
#[derive(Clone, Debug)]
pub struct Hold {
    arrived: watch::Sender<Option<Call>>,
    released: watch::Sender<bool>,
    answered: watch::Sender<Option<u16>>,
}

impl Hold {
    /// Creates a hold without a call.
    pub fn new() -> Self {
        Self {
            arrived: watch::Sender::new(None),
            released: watch::Sender::new(false),
            answered: watch::Sender::new(None),
        }
    }

    /// Waits until a call is held.
    pub async fn arrived(&self, patience: Duration) -> Result<Call> {
        reached(&self.arrived, patience).await.context("no call came that was to be held")
    }

    /// Lets the held call arrive; returns the code of its answer.
    pub async fn release(&self, patience: Duration) -> Result<u16> {
        self.released.send_replace(true);
        reached(&self.answered, patience).await.context("the held call was not answered")
    }

    pub(super) async fn wait(&self, call: &Call) {
        self.arrived.send_replace(Some(call.clone()));
        // The sender is a field of `self`, so the wait does not end with an error.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }

    pub(super) fn answer(&self, code: u16) {
        self.answered.send_replace(Some(code));
    }
}

async fn reached<T: Clone>(of: &watch::Sender<Option<T>>, patience: Duration) -> Option<T> {
    let mut seen = of.subscribe();
    let seen = tokio::time::timeout(patience, seen.wait_for(Option::is_some)).await.ok()?.ok()?;
    seen.clone()
}
