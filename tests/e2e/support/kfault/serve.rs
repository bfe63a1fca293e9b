//! One request on its way: read, matched, forwarded, answered. The rules decide which fault the request meets.

use std::io;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, Response, StatusCode, header};
use futures::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::call::{Call, Verb};
use super::rule::Fault;
use super::{Shared, Write, stream as frames};

/// Limit of a body: larger than any list of a test namespace.
const MOST: usize = 64 << 20;

/// Headers of the caller that the API server needs. No encodings: the proxy reads frames on their way.
const FORWARDED: [HeaderName; 4] = [header::AUTHORIZATION, header::ACCEPT, header::CONTENT_TYPE, header::USER_AGENT];

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    axum::serve(listener, Router::new().fallback(handle).with_state(shared)).await
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    // A task of its own: a sent request arrives even if its sender is gone by then.
    let carried = tokio::spawn(async move { carry(&shared, request).await });
    match carried.await {
        Ok(Ok(response)) => response,
        Ok(Err(why)) => status(502, &format!("the proxy: {why:#}"), None),
        Err(why) => status(502, &format!("the proxy broke off: {why}"), None),
    }
}

async fn carry(shared: &Arc<Shared>, request: Request) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MOST).await?;
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let query = parts.uri.query().unwrap_or_default();
    let mut call = Call::read(parts.method.as_str(), parts.uri.path(), query, kind, &body);
    match shared.strike(&mut call) {
        None => shared.forward(&call, parts, body).await,
        Some(Fault::Refuse { code, retry_after }) => Ok(status(code, "refused by the test", retry_after)),
        Some(Fault::AnswerTooLate) => {
            shared.forward(&call, parts, body).await?;
            Ok(status(504, "the answer came too late", None))
        }
        Some(Fault::LoseAnswer) => {
            shared.forward(&call, parts, body).await?;
            Ok(broken())
        }
        Some(Fault::Delay(time)) => {
            tokio::time::sleep(time).await;
            shared.forward(&call, parts, body).await
        }
        Some(Fault::Hold(hold)) => {
            hold.wait(&call).await;
            let answer = shared.forward(&call, parts, body).await?;
            hold.answer(answer.status().as_u16());
            Ok(answer)
        }
        Some(Fault::KillBefore(blow)) => {
            blow();
            Ok(broken())
        }
        Some(Fault::KillAfterCommit(blow)) => {
            shared.forward(&call, parts, body).await?;
            blow();
            Ok(broken())
        }
    }
}

impl Shared {
    /// Counts the call and returns the fault of the rule that matches it.
    fn strike(&self, call: &mut Call) -> Option<Fault> {
        let mut state = self.state();
        state.calls += 1;
        if call.is_write() {
            state.writes_begun += 1;
            call.nth_write = Some(state.writes_begun);
        }
        let (name, fault) = state.rules.iter_mut().find_map(|rule| Some((rule.name, rule.strike(call)?)))?;
        *state.hits.entry(name).or_default() += 1;
        Some(fault)
    }

    async fn forward(self: &Arc<Self>, call: &Call, parts: Parts, body: Bytes) -> Result<Response<Body>> {
        let path = parts.uri.path_and_query().map_or("/", |p| p.as_str());
        let mut request = axum::http::Request::builder().method(parts.method).uri(path);
        for name in FORWARDED {
            if let Some(value) = parts.headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let before = self.state().versions.get(&call.key()).cloned();
        let answer = self.upstream.send(request.body(kube::client::Body::from(body))?).await?;
        let (head, body) = answer.into_parts();
        let body = Body::new(body);
        let mut response = Response::builder().status(head.status);
        for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
            if let Some(value) = head.headers.get(&name) {
                response = response.header(name, value);
            }
        }
        if call.verb == Verb::Watch && head.status.is_success() {
            let (to, cuts) = mpsc::unbounded_channel();
            self.state().watches.push((call.clone(), to));
            let (shared, of) = (Arc::clone(self), call.clone());
            let seen = move |frame: &[u8]| {
                let frame: Value = serde_json::from_slice(frame).unwrap_or_default();
                shared.saw(&of, &frame["object"]);
            };
            return Ok(response.body(frames::cuttable(body, cuts, seen))?);
        }
        let body = to_bytes(body, MOST).await?;
        self.note(call, head.status, &body, before.as_deref());
        Ok(response.body(Body::from(body))?)
    }

    /// Notes the versions that the caller sees, and the result of a write.
    fn note(&self, call: &Call, code: StatusCode, body: &[u8], before: Option<&str>) {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        if code.is_success() {
            match answer["items"].as_array() {
                Some(items) => items.iter().for_each(|item| self.saw(call, item)),
                None => self.saw(call, &answer),
            }
        }
        if call.is_write() {
            let after = answer["metadata"]["resourceVersion"].as_str();
            // The answer to a deletion has no version.
            let effective = code.is_success() && (after.is_none() || after != before);
            self.state().writes.push(Write { call: call.clone(), code: code.as_u16(), effective });
        }
    }

    /// Notes the version of an object.
    fn saw(&self, call: &Call, object: &Value) {
        let meta = &object["metadata"];
        let (Some(name), Some(version)) = (meta["name"].as_str(), meta["resourceVersion"].as_str()) else { return };
        let of = Call {
            name: Some(name.to_owned()),
            namespace: meta["namespace"].as_str().map(str::to_owned),
            ..call.clone()
        };
        self.state().versions.insert(of.key(), version.to_owned());
    }
}

/// An answer in the form of the API server's own.
fn status(code: u16, message: &str, retry_after: Option<u32>) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    let mut response = Response::new(Body::empty());
    if let Some(seconds) = retry_after {
        body["details"] = json!({"retryAfterSeconds": seconds});
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    *response.body_mut() = Body::from(body.to_string());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// A connection that breaks in place of an answer.
fn broken() -> Response<Body> {
    let end = stream::iter([Err::<Bytes, io::Error>(io::ErrorKind::ConnectionReset.into())]);
    Response::new(Body::from_stream(end))
}
