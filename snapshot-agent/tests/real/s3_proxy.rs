//! A proxy in front of a real S3 server that gives single requests the faults of bad networks and bad stores.
//!
//! The test decides which request meets which fault; every other request passes, byte for byte and with its signature.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use holdfast_contract::StoreFlags;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, client, server, service};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::front::Front;
use crate::support::S3;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Create,
    Part,
    Complete,
    Abort,
    Put,
    Get,
    Head,
    List,
    Delete,
}

/// One request, as a rule gets it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    /// Number of earlier requests of this operation.
    pub(crate) before: usize,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    /// Number of earlier connections.
    pub(crate) connection: u64,
}

/// Fault of a request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// No fault.
    Pass,
    /// The store does not get the request; the answer has this status, with more headers, and this body.
    Answer(u16, String),
    /// Like `Answer`, with one more header.
    AnswerWith(u16, [&'static str; 2], String),
    /// The store carries the request out, and the answer is this one all the same.
    Done(u16, String),
    /// The store does not get the request; the answer of this status echoes the request's headers, like S3's answer to a wrong
    /// signature.
    Echo(u16),
    /// The connection ends after the request was read; the store does not get it.
    Hangup,
    /// Like `Hangup`, after this time.
    HangupAfter(std::time::Duration),
    /// The store carries the request out, and the connection ends without an answer.
    DoneHangup,
    /// The connection ends without an answer, and the store gets the request once this is true.
    DoneLater(tokio::sync::watch::Receiver<bool>),
    /// The connection ends after this many bytes of the request's body.
    CutRequest(usize),
    /// The store gets the request once this is true.
    When(tokio::sync::watch::Receiver<bool>),
    /// No answer, ever.
    Silence,
    /// The answer ends after this many bytes of its body; its headers stay.
    Cut(usize),
    /// The answer ends after this many bytes of its body, and its headers agree with that.
    CutNeatly(usize),
    /// One byte of the answer's body is changed.
    Flip(usize),
    /// This text in the answer's body is replaced.
    Swap(&'static str, String),
    /// One byte of the request's body is changed.
    FlipRequest(usize),
    /// An answer of this status whose body never ends.
    Endless(u16),
    /// An answer with this many additional headers.
    Headers(usize),
    /// The answer lacks the headers with this prefix.
    Without(&'static str),
    /// The answer is passed on, and the connection is closed after it without an announcement.
    CloseAfter,
}

/// An error answer of S3 with this code.
pub(crate) fn error(code: &str) -> String {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><HostId>canary-body</HostId></Error>")
}

type Rule = dyn Fn(&Asked) -> Fault + Send + Sync;
type Body = BoxBody<Bytes, std::io::Error>;

/// The proxy, for as long as the test keeps it.
pub(crate) struct S3Proxy {
    front: Front,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl S3Proxy {
    pub(crate) async fn before(s3: &S3, rule: impl Fn(&Asked) -> Fault + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (store, seen, rule): (_, _, Arc<Rule>) = (s3.address.clone(), Arc::clone(&asked), Arc::new(rule));
        let counts = Arc::new(Mutex::new(HashMap::new()));
        let front = Front::of(move |connection, number| {
            let (store, seen, rule) = (store.clone(), Arc::clone(&seen), Arc::clone(&rule));
            let counts = Arc::clone(&counts);
            let ended = Arc::<AtomicBool>::default();
            let answered = Arc::clone(&ended);
            let serve = service::service_fn(move |request: Request<Incoming>| {
                let op = operation(&request);
                let before = {
                    let mut counts = counts.lock().unwrap();
                    let count: &mut usize = counts.entry(op).or_default();
                    *count += 1;
                    *count - 1
                };
                let (uri, headers) = (request.uri().to_string(), request.headers().clone());
                let asked = Asked { op, before, uri, headers, connection: number };
                let fault = rule(&asked);
                seen.lock().unwrap().push(asked);
                let (store, ended) = (store.clone(), Arc::clone(&answered));
                async move { meet(store, request, fault, &ended).await }
            });
            async move {
                let served = server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(Ending { connection, ended }), serve);
                served.await.map_err(std::io::Error::other)
            }
        })
        .await;
        Self { front, asked }
    }

    /// Flags of the same bucket, reached through the proxy.
    pub(crate) fn flags(&self, s3: &S3) -> StoreFlags {
        s3.through(self.front.url())
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Whether each request had a connection of its own.
    pub(crate) fn each_asked_alone(&self) -> bool {
        self.front.connections() >= self.asked().len() as u64
    }

    pub(crate) fn count(&self, op: Op) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.op == op).count()
    }
}

/// A connection that is closed after its last answer, without an announcement: the proxy reads nothing more from it.
struct Ending<C> {
    connection: C,
    ended: Arc<AtomicBool>,
}

impl<C: AsyncRead + Unpin> AsyncRead for Ending<C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.ended.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.connection).poll_read(cx, into)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Ending<C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

/// Marks the last answer of a connection.
struct Last(Arc<AtomicBool>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn operation(request: &Request<Incoming>) -> Op {
    let query = request.uri().query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    match *request.method() {
        Method::POST if has("uploads") => Op::Create,
        Method::POST => Op::Complete,
        Method::PUT if has("partNumber") => Op::Part,
        Method::PUT => Op::Put,
        Method::HEAD => Op::Head,
        Method::DELETE if has("uploadId") => Op::Abort,
        Method::DELETE => Op::Delete,
        _ if has("list-type") => Op::List,
        _ => Op::Get,
    }
}

fn broken() -> std::io::Error {
    std::io::Error::other("broken on purpose")
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn plain(status: u16, body: String) -> Response<Body> {
    let mut answer = Response::new(full(body));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}

async fn meet(
    store: String,
    request: Request<Incoming>,
    fault: Fault,
    ended: &Arc<AtomicBool>,
) -> std::io::Result<Response<Body>> {
    match fault {
        Fault::Answer(status, body) => {
            let _sent = request.into_body().collect().await;
            Ok(plain(status, body))
        }
        Fault::AnswerWith(status, [name, value], body) => {
            let _sent = request.into_body().collect().await;
            let mut answer = plain(status, body);
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
            Ok(answer)
        }
        Fault::Echo(status) => {
            let (head, body) = request.into_parts();
            let _sent = body.collect().await;
            let said: Vec<_> = head.headers.iter().map(|(name, value)| format!("{name}:{value:?}")).collect();
            let said = said.join("\n");
            let canonical = format!("<Code>SignatureDoesNotMatch</Code><CanonicalRequest>{said}</CanonicalRequest>");
            Ok(plain(status, format!("<?xml version=\"1.0\"?><Error>{canonical}</Error>")))
        }
        Fault::Hangup => {
            let _sent = request.into_body().collect().await;
            Err(broken())
        }
        Fault::HangupAfter(pause) => {
            // The time counts from the first byte, like the sender's: a busy machine may take longer for the rest.
            let over = tokio::time::Instant::now() + pause;
            let _sent = request.into_body().collect().await;
            tokio::time::sleep_until(over).await;
            Err(broken())
        }
        Fault::CutRequest(bytes) => {
            let (mut body, mut read) = (request.into_body(), 0);
            while read < bytes {
                match body.frame().await {
                    Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
                    _ => break,
                }
            }
            Err(broken())
        }
        Fault::When(mut ready) => {
            ready.wait_for(|ready| *ready).await.map_err(|_| broken())?;
            ask(store, request, Fault::Pass, ended).await
        }
        Fault::DoneLater(mut ready) => {
            // After the whole body has arrived: the incoming connection ends.
            let (head, body) = request.into_parts();
            let sent = body.collect().await.map_err(|_| broken())?.to_bytes();
            let request = Request::from_parts(head, full(sent));
            tokio::spawn(async move {
                ready.wait_for(|ready| *ready).await.map_err(|_| broken())?;
                deliver(store, request).await?.into_body().collect().await.map_err(|_| broken())
            });
            Err(broken())
        }
        Fault::Silence => std::future::pending().await,
        Fault::Endless(status) => {
            let _sent = request.into_body().collect().await;
            let chunk = Bytes::from(vec![b'x'; 64 << 10]);
            let body = BodyExt::boxed(StreamBody::new(stream::repeat_with(move || Ok(Frame::data(chunk.clone())))));
            let mut answer = Response::new(body);
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            Ok(answer)
        }
        Fault::Pass
        | Fault::Done(..)
        | Fault::DoneHangup
        | Fault::Cut(_)
        | Fault::CutNeatly(_)
        | Fault::Flip(_)
        | Fault::Swap(..)
        | Fault::FlipRequest(_)
        | Fault::Headers(_)
        | Fault::Without(_)
        | Fault::CloseAfter => ask(store, request, fault, ended).await,
    }
}

/// Sends the request to the store. A client that takes this for a proxy names its store; here it is always this one.
async fn deliver(store: String, mut request: Request<Body>) -> std::io::Result<Response<Incoming>> {
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = path.into();
    }
    let connection = TokioIo::new(TcpStream::connect(store).await?);
    let (mut sender, connection) = client::conn::http1::handshake(connection).await.map_err(|_| broken())?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|_| broken())
}

/// Sends the request to the store, and applies the fault to the answer.
async fn ask(
    store: String,
    request: Request<Incoming>,
    fault: Fault,
    ended: &Arc<AtomicBool>,
) -> std::io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let mut sent = body.collect().await.map_err(|_| broken())?.to_bytes().to_vec();
    if let Fault::FlipRequest(at) = fault
        && !sent.is_empty()
    {
        let at = at % sent.len();
        sent[at] ^= 1;
    }
    let (mut head, body) = deliver(store, Request::from_parts(head, full(sent))).await?.into_parts();
    if matches!(fault, Fault::Pass) {
        return Ok(Response::from_parts(head, body.map_err(|_| broken()).boxed()));
    }
    let mut got = body.collect().await.map_err(|_| broken())?.to_bytes().to_vec();
    match fault {
        Fault::Done(status, body) => return Ok(plain(status, body)),
        Fault::DoneHangup => return Err(broken()),
        Fault::Cut(bytes) if bytes < got.len() => {
            let rest = vec![Ok(Frame::data(Bytes::from(got[..bytes].to_vec()))), Err(broken())];
            return Ok(Response::from_parts(head, BodyExt::boxed(StreamBody::new(stream::iter(rest)))));
        }
        Fault::CutNeatly(bytes) if bytes < got.len() => {
            got.truncate(bytes);
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(got.len()));
        }
        Fault::Flip(at) if !got.is_empty() => {
            let at = at % got.len();
            got[at] ^= 1;
        }
        Fault::Swap(from, to) => {
            got = String::from_utf8_lossy(&got).replace(from, &to).into_bytes();
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(got.len()));
        }
        Fault::Headers(more) => {
            for i in 0..more {
                let name = hyper::header::HeaderName::from_bytes(format!("x-flood-{i}").as_bytes()).unwrap();
                head.headers.insert(name, HeaderValue::from_static("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
            }
        }
        Fault::Without(prefix) => {
            let names: Vec<_> = head.headers.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect();
            for name in names {
                head.headers.remove(name);
            }
        }
        Fault::CloseAfter => {
            // hyper drops the body when all of it is on its way.
            let last = Last(Arc::clone(ended));
            let whole = stream::iter([Ok(Frame::data(Bytes::from(got)))]).inspect(move |_| {
                let _until_dropped = &last;
            });
            return Ok(Response::from_parts(head, BodyExt::boxed(StreamBody::new(whole))));
        }
        _ => {}
    }
    Ok(Response::from_parts(head, full(got)))
}
