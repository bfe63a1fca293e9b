//! Answers `GET /progress` while a save or a restore runs.
//!
//! Decides the form of the server. `Board` of `crates/io` decides the numbers. The server is there for a person who waits, so no
//! failure of it ends or slows a run: a port that another program has is one line in the log, and there is one connection at a
//! time, for two seconds at most. Every client that reaches the port gets the numbers, so the answer holds nothing else.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use holdfast_contract::PROGRESS_PATH;
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
pub(crate) async fn serve_beside<T>(port: Option<u16>, work: impl Future<Output = T>) -> T {
    let Some(port) = port else { return work.await };
    let board = Board::default();
    // Dropped with the work, and ends its task then.
    let mut serving = JoinSet::new();
    serving.spawn(serve(port, board.clone()));
    board.observe(work).await
}

async fn serve(port: u16, board: Board) {
    let listener = match bind(port).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(port, %error, "this run does not answer about its progress: the port cannot be opened");
            return;
        }
    };
    loop {
        match listener.accept().await {
            Ok((connection, _)) => answer(connection, &board).await,
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
async fn answer(connection: TcpStream, board: &Board) {
    let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(respond(&request, board))));
    let serving = http1::Builder::new()
        .keep_alive(false)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(connection), service);
    let _ = tokio::time::timeout(ANSWER_WITHIN, serving).await;
}

fn respond(request: &Request<Incoming>, board: &Board) -> Response<String> {
    if request.uri().path() != PROGRESS_PATH || request.method() != Method::GET {
        let mut missing = Response::new(String::new());
        *missing.status_mut() = StatusCode::NOT_FOUND;
        return missing;
    }
    // JSON of our own types cannot fail.
    let mut response = Response::new(serde_json::to_string(&board.report()).unwrap_or_default());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
