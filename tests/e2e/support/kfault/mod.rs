//! A proxy between an operator and the real API server that injects faults by rules.
//!
//! It forwards the caller's own token, so that the API server judges the caller's rights, and adds nothing of its own: every answer
//! is the API server's or one that an API server may give. It runs on a thread of its own, so that a busy story does not delay the
//! operator.

pub mod call;
pub mod rule;
mod serve;
mod stream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use kube::Client;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use tokio::sync::{mpsc, oneshot};

pub use call::{Call, Verb};
pub use rule::{Fault, Hold, Rule};
pub use stream::Cut;

use super::env::Env;

/// A write that reached the API server, and its result.
#[derive(Clone, Debug)]
pub struct Write {
    pub call: Call,
    /// The API server's answer, whatever answer the caller got.
    pub code: u16,
    /// Whether it changed the object.
    pub effective: bool,
}

/// The proxy; dropping it ends it.
pub struct Kfault {
    /// Server address for the operator's kubeconfig.
    pub url: String,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    upstream: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    hits: BTreeMap<&'static str, u64>,
    calls: u64,
    writes_begun: u64,
    writes: Vec<Write>,
    /// The newest version of each object that the caller got.
    versions: BTreeMap<String, String>,
    watches: Vec<(Call, mpsc::UnboundedSender<Cut>)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kfault {
    /// Starts the proxy on a free port of the loopback, without rules.
    pub async fn start(env: &Env) -> Result<Self> {
        let (told, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let kubeconfig = env.kubeconfig.clone();
        let thread = std::thread::Builder::new().name("kfault".to_owned()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(why) => return drop(told.send(Err(why.into()))),
            };
            runtime.block_on(async move {
                match begin(&kubeconfig).await {
                    Ok((listener, address, shared)) => {
                        let _ = told.send(Ok((address, Arc::clone(&shared))));
                        tokio::select! {
                            _ = stopped => {}
                            _ = serve::serve(listener, shared) => {}
                        }
                    }
                    Err(why) => drop(told.send(Err(why))),
                }
            });
        })?;
        let (address, shared) = ready.await.context("the proxy broke off")??;
        Ok(Self { url: format!("http://{address}"), shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Adds a rule after the existing rules.
    pub fn add(&self, rule: Rule) {
        let mut state = self.shared.state();
        state.hits.entry(rule.name).or_default();
        state.rules.push(rule);
    }

    /// Removes every rule, and restarts the count of writes.
    pub fn clear(&self) {
        let mut state = self.shared.state();
        state.rules.clear();
        state.writes_begun = 0;
    }

    /// Removes the rules of this name.
    pub fn lift(&self, name: &str) {
        self.shared.state().rules.retain(|rule| rule.name != name);
    }

    /// Number of matches of each rule, removed rules included.
    pub fn hits(&self) -> BTreeMap<&'static str, u64> {
        self.shared.state().hits.clone()
    }

    /// Requests so far.
    pub fn calls(&self) -> u64 {
        self.shared.state().calls
    }

    /// Writes that reached the API server so far, in the order of their answers.
    pub fn writes(&self) -> Vec<Write> {
        self.shared.state().writes.clone()
    }

    /// Ends the watches that run on a resource, or all of them; returns their number.
    pub fn cut(&self, resource: Option<&str>, cut: Cut) -> usize {
        let mut state = self.shared.state();
        let (hit, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut state.watches)
            .into_iter()
            .filter(|(_, to)| !to.is_closed())
            .partition(|(call, _)| resource.is_none_or(|wanted| call.resource == wanted));
        state.watches = kept;
        hit.iter().filter(|(_, to)| to.send(cut).is_ok()).count()
    }
}

impl Drop for Kfault {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn begin(kubeconfig: &std::path::Path) -> Result<(tokio::net::TcpListener, SocketAddr, Arc<Shared>)> {
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default()).await?;
    // Without credentials: the caller has to present its own.
    config.auth_info = AuthInfo::default();
    config.default_retry = false;
    let shared = Shared { upstream: Client::try_from(config)?, state: Mutex::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address, Arc::new(shared)))
}
