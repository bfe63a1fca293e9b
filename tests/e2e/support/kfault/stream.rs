//! A watch on its way through the proxy: frame by frame, until the API server ends it or the test cuts it.

use std::io;

use axum::body::{Body, BodyDataStream, Bytes};
use futures::StreamExt;
use futures::stream;
use tokio::sync::mpsc::UnboundedReceiver;

/// Early end of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The connection breaks within a frame.
    MidFrame,
    /// 410: the version of the watch is too old, so the client has to list again.
    Gone,
}

const GONE: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"too old resource version","reason":"Expired","code":410}}"#,
    "\n"
);

const FRAGMENT: &str = r#"{"type":"MODIFIED","object":{"kind":"#;

enum After {
    Goes,
    Breaks,
    Ended,
}

struct Watch<F> {
    source: BodyDataStream,
    buffer: Vec<u8>,
    cuts: UnboundedReceiver<Cut>,
    after: After,
    seen: F,
}

/// The same watch; it passes each whole frame to `seen` and ends at a cut.
pub fn cuttable(body: Body, cuts: UnboundedReceiver<Cut>, seen: impl Fn(&[u8]) + Send + 'static) -> Body {
    let watch = Watch { source: body.into_data_stream(), buffer: vec![], cuts, after: After::Goes, seen };
    Body::from_stream(stream::unfold(watch, |mut watch| async move { watch.next().await.map(|item| (item, watch)) }))
}

impl<F: Fn(&[u8])> Watch<F> {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            match self.after {
                After::Goes => {}
                After::Breaks => {
                    self.after = After::Ended;
                    return Some(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
                }
                After::Ended => return None,
            }
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let frame: Vec<u8> = self.buffer.drain(..=end).collect();
                (self.seen)(&frame);
                return Some(Ok(Bytes::from(frame)));
            }
            tokio::select! {
                biased;
                Some(cut) = self.cuts.recv() => {
                    let (after, last) = match cut {
                        Cut::MidFrame => (After::Breaks, FRAGMENT),
                        Cut::Gone => (After::Ended, GONE),
                    };
                    self.after = after;
                    return Some(Ok(Bytes::from_static(last.as_bytes())));
                }
                chunk = self.source.next() => match chunk {
                    Some(Ok(chunk)) => self.buffer.extend_from_slice(&chunk),
                    Some(Err(_)) => self.after = After::Breaks,
                    None => self.after = After::Ended,
                },
            }
        }
    }
}
