//! Rules: which call meets which trouble. Decides nothing about how trouble is made.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;

use super::call::Call;

/// Something to do to the operator, from the proxy's thread.
pub type Blow = Arc<dyn Fn() + Send + Sync>;

/// What a call meets. All of it is what a healthy API server, its load balancer or a network may do.
#[derive(Clone)]
pub enum Fault {
    /// It is not carried out, and answered with this code.
    Refuse {
        code: u16,
        /// Seconds that the caller is asked to wait.
        retry_after: Option<u32>,
    },
    /// It is carried out, and answered with 504.
    AnswerTooLate,
    /// It is carried out, and the connection breaks before the answer.
    LoseAnswer,
    /// It is carried out later.
    Delay(Duration),
    /// It is carried out when the test says so, whether the caller still waits or not.
    Hold(Hold),
    /// The blow falls, and the call is not carried out.
    KillBefore(Blow),
    /// The call is carried out, the blow falls, and nobody hears the answer.
    KillAfterCommit(Blow),
}

/// Which calls, how often, and what they meet. The first rule that matches a call is the one that counts.
pub struct Rule {
    /// For people, and for [`super::Kfault::hits`].
    pub name: &'static str,
    when: Box<dyn FnMut(&Call) -> bool + Send>,
    left: Option<u64>,
    fault: Fault,
}

impl Rule {
    /// Every call of which `when` says yes.
    pub fn new(name: &'static str, fault: Fault, when: impl FnMut(&Call) -> bool + Send + 'static) -> Self {
        Self { name, when: Box::new(when), left: None, fault }
    }

    /// The first one alone.
    pub fn once(self) -> Self {
        Self { left: Some(1), ..self }
    }

    /// The n-th write, counted from one.
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

/// A call that is held back: it has left its sender and has not arrived.
#[derive(Clone, Debug)]
pub struct Hold {
    arrived: watch::Sender<Option<Call>>,
    released: watch::Sender<bool>,
    answered: watch::Sender<Option<u16>>,
}

impl Hold {
    /// Nothing is held yet.
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

    /// Lets it arrive; the code it is answered with.
    pub async fn release(&self, patience: Duration) -> Result<u16> {
        self.released.send_replace(true);
        reached(&self.answered, patience).await.context("the held call was not answered")
    }

    pub(super) async fn wait(&self, call: &Call) {
        self.arrived.send_replace(Some(call.clone()));
        // Its own sender lives as long as this does.
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
