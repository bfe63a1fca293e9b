//! Answers `GET /progress` while a save or a restore runs, and `GET /metrics` and `GET /log` while a log is recorded.
//!
//! Decides the form of the server. `Board` of `crates/io` and `verbs/log/numbers.rs` decide the numbers. The server is there for a person who waits, so no
//! failure of it ends or slows a run: a port that another program has is one line in the log, and there is one connection at a
//! time, for two seconds at most. Every client that reaches the port gets the numbers, so the answer holds nothing else.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use holdfast_contract::{LOG_PATH, PROGRESS_PATH};
use holdfast_io::progress::Board;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Time for a request and its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Pause after a failed accept: the process has no file descriptor left.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs work, and answers on this port meanwhile.
pub async fn serve_beside<T>(port: Option<u16>, work: impl Future<Output = T>) -> T {
    let Some(port) = port else { return work.await };
    let board = Board::default();
    // JSON of our own types cannot fail.
    let shown = board.clone();
    let render = move || serde_json::to_string(&shown.report()).unwrap_or_default();
    // Dropped with the work, and ends its task then.
    let mut serving = JoinSet::new();
    serving.spawn(serve(port, vec![Page { path: PROGRESS_PATH, kind: JSON, render: Box::new(render) }]));
    board.observe(work).await
}

/// Runs work, and answers with its metrics and its state on this port meanwhile.
pub async fn serve_log_beside<T>(port: Option<u16>, [metrics, state]: [Render; 2], work: impl Future<Output = T>) -> T {
    let Some(port) = port else { return work.await };
    let mut serving = JoinSet::new();
    let metrics = Page { path: METRICS_PATH, kind: OPEN_METRICS, render: metrics };
    serving.spawn(serve(port, vec![metrics, Page { path: LOG_PATH, kind: JSON, render: state }]));
    work.await
}

/// Path of the metrics, and their type.
const METRICS_PATH: &str = "/metrics";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const JSON: &str = "application/json";

/// Renders an answer.
pub type Render = Box<dyn Fn() -> String + Send + Sync>;

/// An answer of a server.
struct Page {
    path: &'static str,
    kind: &'static str,
    render: Render,
}

async fn serve(port: u16, pages: Vec<Page>) {
    let listener = match bind(port).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(port, %error, "this run does not answer about its progress: the port cannot be opened");
            return;
        }
    };
    loop {
        match listener.accept().await {
            Ok((connection, _)) => answer(connection, &pages).await,
            Err(error) => {
                tracing::debug!(%error, "accepting a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Opens the port at all addresses of both families, or of IPv4 where the kernel has no other.
async fn bind(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        bound => bound,
    }
}

/// Answers one request. A client that breaks off or takes long has no answer.
async fn answer(connection: TcpStream, pages: &[Page]) {
    let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(respond(&request, pages))));
    let serving = http1::Builder::new()
        .keep_alive(false)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(connection), service);
    let _ = tokio::time::timeout(ANSWER_WITHIN, serving).await;
}

fn respond(request: &Request<Incoming>, pages: &[Page]) -> Response<String> {
    let asked = pages.iter().find(|page| request.uri().path() == page.path && request.method() == Method::GET);
    let Some(page) = asked else {
        let mut missing = Response::new(String::new());
        *missing.status_mut() = StatusCode::NOT_FOUND;
        return missing;
    };
    let mut response = Response::new((page.render)());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
    response
}
