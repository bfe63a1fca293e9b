//! A connection to a port of a Pod through the API server, as `kubectl port-forward` opens it.
//!
//! Decides the frames: the API server speaks WebSocket, and each message is the number of a channel and bytes. The caller decides
//! the Pod, the port and the bytes.

use std::io;

use anyhow::{Context as _, bail};
use hyper::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

/// Channel of the bytes of the first port.
const DATA: u8 = 0;
/// Channel of the error of the first port.
const ERROR: u8 = 1;

/// Frames of WebSocket, by their numbers.
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Bit of a frame that is masked, as every frame of a client is.
const MASKED: u8 = 0x80;
/// Lengths that announce a length of two bytes, and of eight.
const TWO_BYTES: u8 = 0x7e;
const EIGHT_BYTES: u8 = 0x7f;

/// Longest message that the API server may send.
const LONGEST: u64 = 16 << 20;
/// Most bytes of one message to the API server.
const CHUNK: usize = 32 << 10;

/// Connects a stream with a port of a Pod until one side ends.
///
/// # Errors
/// The API server refuses the connection, or kubelet cannot reach the port.
pub async fn connect(
    client: &Client,
    namespace: &str,
    pod: &str,
    port: u16,
    near: impl AsyncRead + AsyncWrite + Send,
) -> anyhow::Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}");
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        // The key serves to prove that the server speaks WebSocket. The API server does, so no code checks its answer.
        .header(SEC_WEBSOCKET_KEY, "aG9sZGZhc3QtcGx1Z2luLWs=")
        .header(SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io")
        .body(Body::empty())?;
    let answer = client.send(request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (status, body) = (answer.status(), answer.into_body().collect_bytes().await?);
        let message = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
        bail!(
            "the API server opens no connection to {pod}: {}",
            message["message"].as_str().unwrap_or(status.as_str())
        );
    }
    let far = TokioIo::new(hyper::upgrade::on(answer).await.context("the connection to the API server ended")?);
    carry(far, near).await
}

/// Carries bytes between the frames of the API server and a plain stream.
async fn carry(far: impl AsyncRead + AsyncWrite, near: impl AsyncRead + AsyncWrite) -> anyhow::Result<()> {
    let (from_far, mut to_far) = tokio::io::split(far);
    let (mut from_near, mut to_near) = tokio::io::split(near);
    let (pings, mut pinged) = tokio::sync::mpsc::channel::<Vec<u8>>(8);
    let down = async {
        let mut from_far = BufReader::new(from_far);
        // The first message of each channel repeats the number of the port.
        let mut announced = [false; 2];
        while let Some((kind, message)) = read(&mut from_far).await? {
            if kind == PING {
                // A full channel has a pong under way.
                let _ = pings.try_send(message);
                continue;
            }
            let Some((channel @ (DATA | ERROR), bytes)) = message.split_first().map(|(channel, rest)| (*channel, rest))
            else {
                continue;
            };
            let announced = &mut announced[usize::from(channel)];
            if !std::mem::replace(announced, true) {
                continue;
            }
            if channel == ERROR && !bytes.is_empty() {
                bail!("kubelet cannot reach the port: {}", String::from_utf8_lossy(bytes).trim());
            }
            if is_over(to_near.write_all(bytes).await)? {
                return Ok(());
            }
        }
        is_over(to_near.shutdown().await).map(drop)
    };
    let up = async {
        let mut chunk = vec![0; CHUNK];
        loop {
            tokio::select! {
                read = from_near.read(&mut chunk) => match read {
                    Ok(0) => break,
                    Ok(some) => write(&mut to_far, BINARY, &[&[DATA], &chunk[..some]].concat()).await?,
                    Err(error) => {
                        is_over(Err(error))?;
                        break;
                    }
                },
                Some(ping) = pinged.recv() => write(&mut to_far, PONG, &ping).await?,
            }
        }
        Ok(write(&mut to_far, CLOSE, &[]).await?)
    };
    tokio::select! {
        ended = down => ended,
        ended = up => ended,
    }
}

/// Whether the program on the near side has ended: that is the end of the connection, and no failure.
fn is_over(outcome: io::Result<()>) -> anyhow::Result<bool> {
    match outcome {
        Ok(()) => Ok(false),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Reads the next message, assembled from its frames, and its kind. `None`: the API server ended the connection.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<Option<(u8, Vec<u8>)>> {
    let mut whole = vec![];
    loop {
        let head = match stream.read_u8().await {
            Ok(head) => head,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let length = match stream.read_u8().await? & 0x7f {
            TWO_BYTES => u64::from(stream.read_u16().await?),
            EIGHT_BYTES => stream.read_u64().await?,
            short => u64::from(short),
        };
        if length > LONGEST {
            bail!("the API server sent a frame of {length} bytes");
        }
        let mut payload = vec![0; usize::try_from(length)?];
        stream.read_exact(&mut payload).await?;
        match head & 0x0f {
            0..=BINARY => whole.extend(payload),
            CLOSE => return Ok(None),
            PING => return Ok(Some((PING, payload))),
            _ => continue,
        }
        if head & 0x80 != 0 {
            return Ok(Some((BINARY, whole)));
        }
    }
}

/// Writes one frame. A client masks its frames; the mask hides nothing here, so it is zero.
async fn write(stream: &mut (impl AsyncWrite + Unpin), kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut frame = vec![0x80 | kind];
    match (u8::try_from(bytes.len()), u16::try_from(bytes.len())) {
        (Ok(short @ ..TWO_BYTES), _) => frame.push(MASKED | short),
        (_, Ok(medium)) => {
            frame.push(MASKED | TWO_BYTES);
            frame.extend(medium.to_be_bytes());
        }
        _ => {
            frame.push(MASKED | EIGHT_BYTES);
            frame.extend((bytes.len() as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(bytes);
    stream.write_all(&frame).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// The API server's side of a connection: frames to send, and the bytes that arrived.
    async fn carried(frames: Vec<u8>, near_says: &[u8]) -> (anyhow::Result<()>, Vec<u8>, Vec<u8>) {
        let (mut server, far) = duplex(1 << 20);
        let (mut person, near) = duplex(1 << 20);
        person.write_all(near_says).await.unwrap();
        let carrying = tokio::spawn(carry(far, near));
        // The bytes of the near side arrive before the far side answers.
        let mut up = vec![0; 4096];
        let count = if near_says.is_empty() { 0 } else { server.read(&mut up).await.unwrap() };
        server.write_all(&frames).await.unwrap();
        drop(server);
        let ended = carrying.await.unwrap();
        let mut down = vec![];
        person.read_to_end(&mut down).await.unwrap();
        up.truncate(count);
        (ended, up, down)
    }

    /// A message of the API server.
    fn frame(channel: u8, bytes: &[u8]) -> Vec<u8> {
        [&[0x82, u8::try_from(bytes.len() + 1).unwrap(), channel], bytes].concat()
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_without_the_announced_ports() {
        let port = 2379_u16.to_le_bytes();
        let frames = [frame(DATA, &port), frame(ERROR, &port), frame(DATA, b"hello "), frame(DATA, b"world")].concat();
        let (ended, up, down) = carried(frames, b"ping").await;
        ended.unwrap();
        assert_eq!(down, b"hello world");
        assert_eq!(up, [&[0x82, 0x85, 0, 0, 0, 0, DATA], b"ping".as_slice()].concat());
    }

    #[tokio::test]
    async fn a_program_that_has_ended_is_no_failure() {
        let (mut server, far) = duplex(1 << 20);
        let (person, near) = duplex(1 << 20);
        drop(person);
        let port = 2379_u16.to_le_bytes();
        server.write_all(&[frame(DATA, &port), frame(DATA, b"late")].concat()).await.unwrap();
        carry(far, near).await.unwrap();
        assert!(is_over(Err(io::ErrorKind::ConnectionReset.into())).unwrap());
        assert!(is_over(Err(io::ErrorKind::PermissionDenied.into())).is_err());
    }

    #[tokio::test]
    async fn an_error_of_kubelet_is_the_outcome() {
        let port = 2379_u16.to_le_bytes();
        let frames = [frame(DATA, &port), frame(ERROR, &port), frame(ERROR, b"connection refused")].concat();
        let (ended, ..) = carried(frames, b"").await;
        assert!(ended.unwrap_err().to_string().contains("connection refused"));
    }

    #[tokio::test]
    async fn messages_are_assembled_and_long_frames_are_refused() {
        let long = vec![7; 70_000];
        let mut bytes: Vec<u8> = vec![0x89, 1, b'x', 0x02, 2, 0, b'b', 0x80, 1, b'c', 0x82, 127];
        bytes.extend(70_000_u64.to_be_bytes());
        bytes.extend(&long);
        let mut stream = bytes.as_slice();
        assert_eq!(read(&mut stream).await.unwrap(), Some((PING, b"x".to_vec())));
        assert_eq!(read(&mut stream).await.unwrap(), Some((BINARY, b"\0bc".to_vec())));
        assert_eq!(read(&mut stream).await.unwrap(), Some((BINARY, long)));
        assert_eq!(read(&mut stream).await.unwrap(), None);
        let mut endless = [&[0x82, 127][..], &u64::MAX.to_be_bytes()].concat();
        assert!(read(&mut endless.as_slice()).await.is_err());
        endless.clear();
        write(&mut endless, BINARY, &vec![1; 70_000]).await.unwrap();
        assert_eq!((endless[1], endless.len()), (0xff, 2 + 8 + 4 + 70_000));
    }
}
