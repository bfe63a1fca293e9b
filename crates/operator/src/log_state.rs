//! The answers of agents that record logs: asked over HTTP at the address of their Pod, each remembered for a moment.
//!
//! Decides how long a question may take and how large an answer may be. The Pod runs in the namespace of its users, so nothing but
//! numbers, times and one sentence is taken from the answer. Losing the answers costs questions.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use holdfast_contract::{LOG_PATH, LogReport};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::aged::{Aged, Key};
use super::clock;

/// Time for a question and its answer.
const WITHIN: Duration = Duration::from_secs(2);

/// Time for the connection of a question: a node that is gone refuses no connection.
const CONNECTED: Duration = Duration::from_secs(1);

/// Largest answer in bytes.
const MOST: usize = 64 << 10;

/// Longest sentence about a problem that a status takes, in characters.
const LONGEST: usize = 1000;

/// How long an answer counts, or a refusal: several events in a row cause one question.
const FRESH: Duration = Duration::from_secs(5);

/// How long silence counts: each question to a silent Pod holds up one of the few passes that run at a time.
const SILENT: Duration = Duration::from_mins(1);

/// An answer, or why there is none.
type Answer = Result<LogReport, String>;

/// An answer, and whether the agent was silent instead.
#[derive(Clone)]
struct Heard {
    answer: Answer,
    silent: bool,
}

/// The answers, by UID and address of the Pod.
#[derive(Default)]
pub(super) struct LogStates(Mutex<Aged<Heard>>);

impl std::fmt::Debug for LogStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogStates")
    }
}

impl LogStates {
    /// Asks the agent of this Pod, unless it was asked a moment ago.
    pub(super) async fn ask(&self, uid: &str, at: SocketAddr) -> Answer {
        let key: Key = (uid.to_owned(), at.to_string());
        if let Some(answer) = self.recent(&key, FRESH) {
            return answer;
        }
        let heard = match clock::within(WITHIN, question(at)).await.flatten() {
            Some(answer) => Heard { answer, silent: false },
            None => Heard { answer: Err(format!("{at} does not answer within {} s", WITHIN.as_secs())), silent: true },
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key, Some(&heard));
        heard.answer
    }

    /// Returns an answer that is at most so old, or the silence of the last minute.
    fn recent(&self, key: &Key, fresh: Duration) -> Option<Answer> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = known.get(key, fresh).or_else(|| known.get(key, SILENT).filter(|heard| heard.silent))?;
        Some(heard.answer)
    }
}

/// Returns the address at which the agent of a Pod answers.
pub(super) fn address(ip: &str, port: i32) -> Option<SocketAddr> {
    Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, u16::try_from(port).ok()?))
}

/// Asks; `None`: nothing listens, and nothing refuses.
async fn question(at: SocketAddr) -> Option<Answer> {
    let connection = clock::within(CONNECTED, TcpStream::connect(at)).await?;
    Some(match connection {
        Ok(connection) => answer(at, connection).await,
        Err(error) => Err(format!("asking {at}: {error}")),
    })
}

async fn answer(at: SocketAddr, connection: TcpStream) -> Answer {
    let failed = |error: &dyn std::fmt::Display| format!("asking {at}: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await.map_err(|error| failed(&error))?;
    // Dropped with the question, and ends the connection then.
    let mut connected = JoinSet::new();
    connected.spawn(connection);
    let request = Request::get(LOG_PATH).header(header::HOST, at.to_string()).body(Body::empty());
    let request = request.map_err(|error| failed(&error))?;
    let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    if response.status() != StatusCode::OK {
        return Err(format!("{at} answers with the status {}", response.status()));
    }
    let body = to_bytes(Body::new(response.into_body()), MOST).await.map_err(|error| failed(&error))?;
    let mut report: LogReport = serde_json::from_slice(&body).map_err(|error| failed(&error))?;
    if let Some(problem) = &mut report.problem {
        problem.message = problem.message.chars().take(LONGEST).collect();
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::net::TcpListener;

    use super::*;

    async fn serve(answer: String) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let app = Router::new().route(LOG_PATH, get(move || std::future::ready(answer.clone())));
        tokio::spawn(async move { axum::serve(listener, app).await });
        at
    }

    #[tokio::test]
    async fn an_answer_is_read_and_cut() {
        let message = "x".repeat(3 * LONGEST);
        let problem = serde_json::json!({"class": "Denied", "message": message});
        let at = serve(serde_json::json!({"storedRevision": 7, "newer": true, "problem": problem}).to_string()).await;
        let report = LogStates::default().ask("u", at).await.unwrap();
        assert_eq!((report.stored_revision, report.recorded_revision), (Some(7), None));
        assert_eq!(report.problem.map(|problem| problem.message.len()), Some(LONGEST));
    }

    #[tokio::test]
    async fn what_is_no_answer_is_an_error() {
        let states = LogStates::default();
        for text in ["not json".to_owned(), " ".repeat(MOST + 1) + "{}"] {
            let at = serve(text).await;
            assert!(states.ask("u", at).await.is_err());
        }
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = other.local_addr().unwrap();
        let silent = states.ask("u", at).await.unwrap_err();
        assert!(silent.contains("within 2 s"), "{silent}");
        drop(other);
        assert_eq!(states.ask("u", at).await, Err(silent.clone()));
        let recent = |uid: &str| states.recent(&(uid.to_owned(), at.to_string()), Duration::ZERO);
        assert_eq!(recent("u"), Some(Err(silent)), "silence counts for longer than an answer");
        assert!(states.ask("v", at).await.unwrap_err().contains("asking"));
        assert_eq!(recent("v"), None, "a refusal costs no time");
        assert_eq!(address("10.0.0.1", 2382).map(|at| at.to_string()).as_deref(), Some("10.0.0.1:2382"));
        assert_eq!(address("", 2382), None);
    }
}
