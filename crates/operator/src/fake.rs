//! For tests: an API server that gives prepared answers and records the requests. It interprets nothing; tests against a real API
//! server cover guards.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use holdfast_api::EtcdCluster;
use holdfast_plan::{Proxies, Settings};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::backoff::Backoff;
use super::context::{Context, ReadClient, WriteClient, Writes};
use super::elsewhere::Elsewhere;
use super::etcd::Pool;
use super::events::Events;
use super::metrics::Metrics;
use super::own_writes::OwnWrites;
use super::repeats::Repeats;
use super::skew::Skew;
use super::tls::Memory;
use super::unstarted::UnstartedPods;
use super::wake::Wakers;
use holdfast_contract::BuildInfo;
use holdfast_kube::caches::CacheWriter;
use holdfast_kube::kinds::CacheWriters;
use holdfast_kube::kinds::Caches;
use tokio_util::task::TaskTracker;

/// A recorded request: method, path with query, body.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Value,
}

/// One prepared answer: to this method, on paths that contain this text. `null` echoes the body of the request, as the API server
/// does after an accepted write.
pub(super) type Answer = (&'static str, &'static str, u16, Value);

#[derive(Clone)]
struct Script {
    answers: Arc<Vec<Answer>>,
    log: Arc<Mutex<Vec<Asked>>>,
    date: Arc<Mutex<Option<String>>>,
}

/// A context that talks to this API server.
pub(super) struct Fake {
    pub(super) ctx: Arc<Context>,
    pub(super) leading: watch::Sender<bool>,
    log: Arc<Mutex<Vec<Asked>>>,
    date: Arc<Mutex<Option<String>>>,
}

impl Fake {
    /// Starts the API server; this process leads.
    pub(super) async fn start(answers: Vec<Answer>) -> Self {
        Self::with(vec![], answers).await
    }

    /// Starts the API server with these clusters in the cache.
    pub(super) async fn with(cached: Vec<EtcdCluster>, answers: Vec<Answer>) -> Self {
        let mut clusters = CacheWriter::<EtcdCluster>::default();
        for cluster in cached {
            clusters.apply(&Event::Apply(cluster));
        }
        Self::filled(Caches { clusters: clusters.cache(), ..CacheWriters::default().caches() }, answers).await
    }

    /// Starts the API server with these caches.
    pub(super) async fn filled(caches: Caches, answers: Vec<Answer>) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let script = Script { answers: Arc::new(answers), log: Arc::default(), date: Arc::default() };
        let date = Arc::clone(&script.date);
        let log = Arc::clone(&script.log);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(script);
        tokio::spawn(async move { axum::serve(listener, app).await });

        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        let client = kube::Client::try_from(config).unwrap();
        let metrics = Arc::new(Metrics::new(BuildInfo::from_compiler(None, "x86_64")));
        let (leading, led) = watch::channel(true);
        let ctx = Arc::new(Context {
            read: ReadClient(client.clone()),
            write: WriteClient(client.clone()),
            caches,
            wakers: Wakers::default(),
            passes: TaskTracker::new(),
            etcd: Pool::default(),
            unstarted: UnstartedPods::default(),
            tls: Memory::default(),
            events: Events::start(client, "test".to_owned(), Arc::clone(&metrics)),
            metrics,
            settings: Settings {
                agent_image: "agent:1".to_owned(),
                etcd_repository: "etcd".to_owned(),
                proxies: Proxies::default(),
                cluster_domain: None,
                allowed_names: vec![],
                pod_run_as: holdfast_api::pod_security::RunAs::default(),
            },
            backoff: Backoff::default(),
            repeats: Repeats::default(),
            skew: Skew::default(),
            own: OwnWrites::default(),
            leading: led,
            judgements: super::judgements::Judgements::default(),
            logs: super::log_state::LogStates::default(),
            elsewhere: Elsewhere::new(Some(("home".to_owned(), "holdfast".to_owned()))),
            writes: Writes::new(None),
        });
        Self { ctx, leading, log, date }
    }

    /// All writes, without Events.
    pub(super) fn writes(&self) -> Vec<Asked> {
        self.log().into_iter().filter(|asked| asked.method != "GET").collect()
    }

    /// All requests, in order, without Events.
    pub(super) fn log(&self) -> Vec<Asked> {
        self.log.lock().unwrap().iter().filter(|asked| !asked.path.contains("/events")).cloned().collect()
    }

    /// Puts this Date on each answer.
    pub(super) fn show_date(&self, date: &str) {
        *self.date.lock().unwrap() = Some(date.to_owned());
    }

    /// Paths of all reads.
    pub(super) fn reads(&self) -> Vec<String> {
        self.log.lock().unwrap().iter().filter(|a| a.method == "GET").map(|a| a.path.clone()).collect()
    }
}

/// The API server's answer to a refused request.
pub(super) fn refusal(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code,
        "message": format!("refused: {reason}")})
}

/// The API server's answer where no object has this name.
pub(super) fn missing(name: &str) -> Value {
    let mut missing = refusal(404, "NotFound");
    missing["details"] = json!({"name": name});
    missing
}

/// The last part of a path: the object's name.
fn request_name(path: &str) -> &str {
    path.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default()
}

async fn answer(State(script): State<Script>, request: Request) -> (StatusCode, HeaderMap, String) {
    let method = request.method().to_string();
    let path = request.uri().to_string();
    let bytes: Bytes = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let found = script.answers.iter().find(|(m, part, ..)| *m == method && path.contains(part));
    let name = request_name(&path);
    let (code, value) = found.map_or_else(|| (404, missing(name)), |(_, _, code, value)| (*code, value.clone()));
    let value = if value.is_null() { body.clone() } else { value };
    script.log.lock().unwrap().push(Asked { method, path, body });
    let mut headers = HeaderMap::new();
    if let Some(date) = script.date.lock().unwrap().as_ref() {
        headers.insert("date", date.parse().unwrap());
    }
    (StatusCode::from_u16(code).unwrap(), headers, value.to_string())
}
