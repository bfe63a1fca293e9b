//! Opens a TCP connection, with TLS if requested, for tonic and hyper.
//!
//! This file decides neither the trusted CAs (`trust.rs`) nor the addresses of a name (`dns.rs`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tower_service::Service;

use super::dns::Resolver;

/// HTTP/2, which gRPC requires.
pub const H2: &[u8] = b"h2";

/// A TCP handshake to the other side of the world takes a second.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// TLS settings of a connection.
#[derive(Clone, Debug)]
pub struct Secure {
    /// Trusted CAs and client certificate. It must offer [`H2`].
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must have.
    pub name: ServerName<'static>,
}

/// Returns a TCP connector with Holdfast's resolver.
pub fn tcp(connect_within: Duration) -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(Resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_within));
    tcp
}

/// Returns a channel to one server; its first call connects. `url`: as tonic accepts it, https included.
///
/// # Errors
///
/// A URL without a host.
pub fn channel(
    url: &Uri,
    secure: Option<Secure>,
    connect_within: Duration,
    set: impl FnOnce(Endpoint) -> Endpoint,
) -> Result<Channel, tonic::transport::Error> {
    // With https in the address tonic would start TLS itself.
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let at = Endpoint::from_shared(format!("http://{authority}"))?.origin(url.clone()).connect_timeout(connect_within);
    Ok(set(at).connect_with_connector_lazy(Connector { tcp: tcp(connect_within), secure }))
}

/// A stream with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

#[derive(Clone, Debug)]
struct Connector {
    tcp: HttpConnector<Resolver>,
    secure: Option<Secure>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = TokioIo<Pin<Box<dyn Stream>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, at: Uri) -> Self::Future {
        let (connecting, secure) = (self.tcp.call(at), self.secure.clone());
        async move {
            let tcp = connecting.await?.into_inner();
            let Some(Secure { config, name }) = secure else { return Ok(TokioIo::new(Box::pin(tcp) as _)) };
            let stream = TlsConnector::from(config).connect(name, tcp).await?;
            if stream.get_ref().1.alpn_protocol() != Some(H2) {
                return Err(io::Error::other("the server speaks TLS, but not HTTP/2").into());
            }
            Ok(TokioIo::new(Box::pin(stream) as _))
        }
        .boxed()
    }
}
