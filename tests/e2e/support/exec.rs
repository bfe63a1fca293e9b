//! Runs a command in a container and returns its output, as `kubectl exec` does. It decides nothing about the command.
//!
//! The API server speaks WebSocket here. The client only reads: each message is a channel number and bytes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hyper::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};

use super::kube_helpers::TROUBLED;

/// A command's channels, by Kubernetes' numbers.
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

/// Runs a command; returns its standard output, or an error with its standard error.
pub async fn exec(client: &Client, ns: &str, pod: &str, container: &str, command: &[&str]) -> Result<String> {
    let path = path(ns, pod, container, command);
    let begun = Instant::now();
    loop {
        match once(client, &path).await {
            Err(why) if not_begun(&format!("{why:#}")) && begun.elapsed() < TROUBLED => {
                eprintln!("e2e: run again: {why:#}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            answer => return answer.with_context(|| format!("exec {pod} {}", command.join(" "))),
        }
    }
}

fn path(ns: &str, pod: &str, container: &str, command: &[&str]) -> String {
    let mut path = format!("/api/v1/namespaces/{ns}/pods/{pod}/exec?container={container}&stdout=true&stderr=true");
    for word in command {
        path.push_str("&command=");
        word.bytes().for_each(|byte| path.push_str(&percent_encoded(byte)));
    }
    path
}

/// A byte in the spelling of a URL.
pub fn percent_encoded(byte: u8) -> String {
    let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
}

async fn once(client: &Client, path: &str) -> Result<String> {
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        // The key serves to prove that the server speaks WebSocket. The API server does, so no code checks its answer.
        .header(SEC_WEBSOCKET_KEY, "aG9sZGZhc3QtZTJlLWtleQ==")
        .header(SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io")
        .body(Body::empty())?;
    let answer = client.send(request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (status, body) = (answer.status(), answer.into_body().collect_bytes().await?);
        bail!("{status}: {}", String::from_utf8_lossy(&body));
    }
    let mut stream = BufReader::new(TokioIo::new(hyper::upgrade::on(answer).await?));
    let (mut stdout, mut stderr) = (vec![], vec![]);
    loop {
        let message = message(&mut stream).await.context("lost connection before the command ended")?;
        match message.split_first() {
            Some((&STDOUT, bytes)) => stdout.extend_from_slice(bytes),
            Some((&STDERR, bytes)) => stderr.extend_from_slice(bytes),
            Some((&STATUS, bytes)) => {
                let why = failure(&serde_json::from_slice(bytes)?);
                ensure!(why.is_none(), "{}{}", String::from_utf8_lossy(&stderr), why.unwrap_or_default());
                return Ok(String::from_utf8(stdout)?);
            }
            _ => {}
        }
    }
}

/// The failure of a command, in kubectl's words; `None` when it succeeded.
fn failure(status: &Value) -> Option<String> {
    let mut causes = status["details"]["causes"].as_array().into_iter().flatten();
    let code = causes.find(|cause| cause["reason"] == "ExitCode").and_then(|cause| cause["message"].as_str());
    match code {
        _ if status["status"] == "Success" => None,
        Some(code) => Some(format!("command terminated with exit code {code}")),
        None => Some(status["message"].as_str().unwrap_or("no reason given").to_owned()),
    }
}

/// Reads the next message with data, assembled from its frames.
async fn message(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>> {
    let mut whole = vec![];
    loop {
        let [head, length] = [stream.read_u8().await?, stream.read_u8().await?];
        let length = match length & 0x7f {
            126 => u64::from(stream.read_u16().await?),
            127 => stream.read_u64().await?,
            short => u64::from(short),
        };
        let mut payload = vec![0; usize::try_from(length)?];
        stream.read_exact(&mut payload).await?;
        match head & 0x0f {
            // Continuation, text, binary.
            0..=2 => whole.extend(payload),
            8 => bail!("the API server closed the stream"),
            _ => continue,
        }
        if head & 0x80 != 0 {
            return Ok(whole);
        }
    }
}

/// Whether a command failed on its way to the container, before it started.
pub fn not_begun(said: &str) -> bool {
    let on_the_way = [
        "error dialing backend",
        "unable to upgrade connection",
        "container not found",
        "TLS handshake timeout",
        "connection refused",
        "etcdserver:",
    ];
    // A command that ran may have printed the same words before it ended or its connection broke.
    let under_way = ["command terminated with exit code", "EOF", "connection reset", "lost connection"];
    let says = |words: &[&str]| words.iter().any(|words| said.contains(words));
    says(&on_the_way) && !says(&under_way)
}

/// Checks that messages are assembled from frames, and that failures are recognised.
pub fn check() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|why| why.to_string())?;
    let long = vec![7; 70_000];
    let mut bytes: Vec<u8> = vec![0x82, 2, 1, b'a', 0x89, 0, 0x02, 2, 1, b'b', 0x80, 1, b'c', 0x82, 127];
    bytes.extend(70_000_u64.to_be_bytes());
    bytes.extend(&long);
    bytes.extend([0x88, 0]);
    let mut stream = bytes.as_slice();
    for wanted in [b"\x01a".to_vec(), b"\x01bc".to_vec(), long] {
        let is = runtime.block_on(message(&mut stream)).map_err(|why| format!("{why:#}"))?;
        if is != wanted {
            return Err(format!("a message of {} bytes instead of {}", is.len(), wanted.len()));
        }
    }
    if runtime.block_on(message(&mut stream)).is_ok() {
        return Err("the close frame is no end".to_owned());
    }
    let exit = serde_json::json!({
        "status": "Failure", "message": "m", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    });
    for (status, wanted) in [
        (serde_json::json!({"status": "Success"}), None),
        (exit, Some("command terminated with exit code 3")),
        (serde_json::json!({"status": "Failure", "message": "container not found"}), Some("container not found")),
    ] {
        let is = failure(&status);
        if is.as_deref() != wanted {
            return Err(format!("{status} means {is:?}, and not {wanted:?}"));
        }
    }
    let (way, ran) = ("error dialing backend: x", "connection refused\ncommand terminated with exit code 1");
    if not_begun(way) && !not_begun(ran) { Ok(()) } else { Err("what has begun is taken for what has not".to_owned()) }
}
