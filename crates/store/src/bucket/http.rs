//! The HTTP client for stores of all providers: time limits, certificates and repetitions.
//!
//! This file decides how long each kind of request may take: a silent store gives an error within 40 s, a slow line gets ten
//! minutes for a part if no stream waits, and a store ten minutes to assemble the parts. It also decides which requests are not
//! repeated, because a repetition cannot help: certificates, redirects, refusals. The callers decide the requests, the
//! credentials and the address.

use std::borrow::Cow;
use std::path::Path as FilePath;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use holdfast_contract::error::{Error, Result, io_error, of_request};
use holdfast_io::crypto::install_crypto;
use holdfast_io::net::trust;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use reqwest::header::{CONTENT_TYPE, HeaderName};
use reqwest::{Method, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::timeout;

use super::address::{self, NoStore, Resolver};
use super::listing::{self, CutListing, NoListing, WebPage};
use super::proxy;
use crate::error_class::{beneath, tls};

/// Time for a store that fails for a moment or throttles, with jitter and growing pauses. A longer failure becomes an error,
/// and the Job tries again.
const RETRIES: usize = 10;
pub(super) const RETRY_FOR: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// A TCP and TLS handshake to the other side of the world takes a second.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A request with a small body. A silent store gives an error after twice this time and the pauses.
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// One part (8 MiB) at 0.2 MiB/s: slower than that, the stream would pin etcd's read transaction for hours.
pub(super) const WRITE_WITHIN: Duration = Duration::from_secs(40);

/// The same for a copy or a spool, where no stream waits: four parts share a line of 55 KiB/s. The limit covers a whole part:
/// the client sees its bytes only up to the kernel's buffer, which holds most of it.
pub(super) const PATIENT_WITHIN: Duration = Duration::from_mins(10);

/// Shorter limit for a store that takes no byte of a part: the kernel ends a connection without acknowledgements.
const SILENT_FOR: Duration = WRITE_WITHIN;

/// To the first byte of a download, and between two pieces; the run's own stall limit (20 s) ends it anyway.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(15);

/// Maximum size of an answer that is not a download: a page of a thousand names of a kilobyte each has about 2 MiB.
const ANSWER: u64 = 16 << 20;

/// Maximum size of the answer to a `PUT`: providers answer a write with headers, and several parts are on their way at once.
const WRITE_ANSWER: u64 = 1 << 20;

/// Maximum size of a refusal: its code comes first.
const REFUSAL: usize = 64 << 10;

/// Abilities that every provider's client has.
pub(crate) trait Client: ObjectStore + MultipartStore + PaginatedListStore {}

impl<T: ObjectStore + MultipartStore + PaginatedListStore> Client for T {}

/// The clients of one bucket: one for most requests, others for options that the protocol sets per client.
#[derive(Clone)]
pub(crate) struct Clients {
    /// For all requests without a client of their own.
    pub(crate) usual: Arc<dyn Client>,
    /// Makes the client that creates one permanent object, if objects are locked.
    pub(crate) sealer: Option<Sealer>,
    /// For parts that are read back and compared, if the protocol would otherwise hash them.
    pub(crate) unsigned: Option<Arc<dyn Client>>,
}

impl Clients {
    /// Uses one client for all requests.
    pub(crate) fn from_client(usual: impl Client) -> Self {
        Self { usual: Arc::new(usual), sealer: None, unsigned: None }
    }
}

/// Function that returns a client whose every request has the headers of a lock until this time.
pub(crate) type Sealer = Arc<dyn Fn(Timestamp) -> Result<Arc<dyn Client>> + Send + Sync>;

/// Function that removes one object.
pub(crate) type Eraser = Arc<dyn Fn(Path) -> BoxFuture<'static, object_store::Result<()>> + Send + Sync>;

/// Returns the rules for repetitions.
pub(crate) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: Duration::from_millis(200), max_backoff: LONGEST_PAUSE, base: 2.0 },
        max_retries: RETRIES,
        retry_timeout: RETRY_FOR,
    }
}

tokio::task_local! {
    /// Time limit for each request of this task, if not [`ASK_WITHIN`].
    static WITHIN: Duration;
}

/// Sets the time limit for each request in `doing`: object_store has no such option.
pub(super) fn within<T>(limit: Duration, doing: impl Future<Output = T>) -> impl Future<Output = T> {
    WITHIN.scope(limit, doing)
}

/// A request that took too long.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
struct Late(Duration);

/// Returns the error of a request that took too long.
pub(super) fn late(limit: Duration) -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, Late(limit))
}

/// Creates the HTTP client of a store, once for all clients of the store. object_store's own would follow redirects to other
/// hosts, and repeat requests after a refused certificate.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    certificates: Option<Vec<CertificateDer<'static>>>,
    identity: Option<&'static str>,
    /// With TLS only, and without.
    made: Arc<[OnceLock<HttpClient>; 2]>,
}

impl Connector {
    /// Trusts the CA certificates of this file, or the public ones. Sends no request. `identity`: name of the service at which
    /// the provider's own client asks for the node's identity.
    pub(crate) fn trusting(file: Option<&FilePath>, identity: Option<&'static str>) -> Result<Self> {
        install_crypto();
        proxy::check()?;
        Ok(Self { certificates: certificates(file)?, identity, made: Arc::default() })
    }

    fn client(&self, plain: bool) -> object_store::Result<HttpClient> {
        let wire = Wire { certificates: self.certificates.clone(), identity: self.identity, plain };
        let client = wire.client(true)?;
        Ok(HttpClient::new(Speaker { client, wire, fresh: OnceLock::new() }))
    }
}

/// Settings of a connection to a store.
#[derive(Clone, Debug)]
struct Wire {
    certificates: Option<Vec<CertificateDer<'static>>>,
    identity: Option<&'static str>,
    plain: bool,
}

impl Wire {
    /// Creates a client that keeps its connections, or one that opens a connection for each request.
    fn client(&self, keeps: bool) -> object_store::Result<reqwest::Client> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .pool_max_idle_per_host(if keeps { usize::MAX } else { 0 })
            .https_only(!self.plain)
            .connect_timeout(CONNECT_WITHIN)
            .tcp_user_timeout(SILENT_FOR)
            .dns_resolver(Arc::new(Resolver { identity: self.identity }))
            .redirect(reqwest::redirect::Policy::none());
        if let Some(certificates) = &self.certificates {
            let config = trust::client(certificates.clone(), None);
            let config =
                config.map_err(|error| object_store::Error::Generic { store: "store", source: error.into() })?;
            builder = builder.tls_backend_preconfigured(config);
        }
        proxy::apply(builder)
            .and_then(reqwest::ClientBuilder::build)
            .map_err(|error| object_store::Error::Generic { store: "store", source: Box::new(error) })
    }
}

impl HttpConnector for Connector {
    /// object_store sends the headers and all other options itself, except one.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // A role's credentials come from an address of the node without TLS: object_store announces that with this option.
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|allowed| allowed == "true");
        let [secure, insecure] = &*self.made;
        let made = if plain { insecure } else { secure };
        match made.get() {
            Some(client) => Ok(client.clone()),
            None => self.client(plain).map(|client| made.get_or_init(|| client).clone()),
        }
    }
}

/// Facts from an answer's headers that object_store ignores; object_store passes extensions of an answer on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// End of the object's lock, as far as these credentials may read it.
    pub locked_until: Option<Timestamp>,
    /// Whether the object has a legal hold, as far as these credentials may read it.
    pub legal_hold: bool,
    /// Whether a lock's header cannot be parsed.
    pub lock_unread: bool,
    /// The store's time.
    pub now: Option<Timestamp>,
}

impl Heard {
    /// Reads the headers of S3 (also of Google's S3 interface) and of Azure.
    fn read(answer: &HttpResponse) -> Self {
        // An unreadable value counts as a lock.
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap_or_default());
        let date = |text: &str| rfc2822::parse(text).ok().map(|date| date.timestamp());
        let untils = [
            header("x-amz-object-lock-retain-until-date").map(|until| until.parse().ok()),
            header("x-ms-immutability-policy-until-date").map(date),
        ];
        let holds = |name: &str, not: &str| header(name).is_some_and(|value| !value.eq_ignore_ascii_case(not));
        Self {
            locked_until: untils.into_iter().flatten().max().flatten(),
            legal_hold: holds("x-amz-object-lock-legal-hold", "OFF") || holds("x-ms-legal-hold", "false"),
            lock_unread: untils.contains(&Some(None)),
            now: header("date").and_then(date),
        }
    }
}

/// Request extension: the maximum size of its answer, so that a request for a small object does not load a large one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtMost(pub(crate) u64);

/// Request extension: the caller reads the answer piece by piece, and waits [`READ_WITHIN`] for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Download;

/// Request extension: use a connection that no other request has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh;

/// An answer that exceeds its limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer has more than {0} bytes")]
pub(super) struct TooLong(u64);

/// An answer that object_store would request again although it stays the same (501), or whose body it would drop (redirects),
/// in the words of object_store's other errors.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Server returned non-2xx status code: {status}: {body}")]
struct Final {
    status: StatusCode,
    body: String,
}

/// Header in which S3 names the bucket's region with a refusal.
const BUCKET_REGION: &str = "x-amz-bucket-region";

/// Whether an answer that is no download is a page for browsers: stores do not send such pages.
fn is_web_page(answer: &HttpResponse) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let of_a_store = |name: &HeaderName| name.as_str().starts_with("x-");
    answer.status().is_success() && kind.starts_with("text/html") && !answer.headers().keys().any(of_a_store)
}

/// An HTTP client whose TLS errors and forbidden addresses are final, and whose answers are bounded.
#[derive(Debug)]
struct Speaker {
    client: reqwest::Client,
    wire: Wire,
    /// Keeps no connection.
    fresh: OnceLock<reqwest::Client>,
}

impl Speaker {
    /// Returns the client for this request.
    fn client(&self, request: &HttpRequest) -> std::result::Result<&reqwest::Client, HttpError> {
        if request.extensions().get::<Fresh>().is_none() {
            return Ok(&self.client);
        }
        if let Some(fresh) = self.fresh.get() {
            return Ok(fresh);
        }
        let made = self.wire.client(false).map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        Ok(self.fresh.get_or_init(|| made))
    }

    /// Sends a request, and adds the facts from its headers to the answer.
    async fn answer(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let lists = listing::asked(&request);
        let usual = if request.method() == Method::PUT { WRITE_ANSWER } else { ANSWER };
        let most = match request.extensions().get::<Download>() {
            Some(Download) => None,
            None => Some(request.extensions().get::<AtMost>().map_or(usual, |AtMost(most)| *most)),
        };
        let mut answer = self.client(&request)?.call(request).await?;
        let heard = Heard::read(&answer);
        answer.extensions_mut().insert(heard);
        if is_web_page(&answer) {
            return Err(HttpError::new(HttpErrorKind::Unknown, WebPage));
        }
        Self::bounded(answer, most, lists).await
    }

    /// Bounds the body of an answer: object_store keeps all bodies except downloads in memory.
    async fn bounded(
        answer: HttpResponse,
        most: Option<u64>,
        lists: bool,
    ) -> std::result::Result<HttpResponse, HttpError> {
        let refusal = !answer.status().is_success();
        let most = match most {
            None if !refusal => return Ok(answer),
            most => most.unwrap_or(ANSWER),
        };
        let (head, body) = answer.into_parts();
        let (mut pieces, mut whole) = (body.bytes_stream(), BytesMut::new());
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            // Before the buffer grows: its capacity doubles.
            if !refusal && (whole.len() + piece.len()) as u64 > most {
                return Err(HttpError::new(HttpErrorKind::Unknown, TooLong(most)));
            }
            whole.extend_from_slice(&piece);
            if refusal && whole.len() > REFUSAL {
                whole.truncate(REFUSAL);
                break;
            }
        }
        if refusal && let Some(region) = head.headers.get(BUCKET_REGION).and_then(|region| region.to_str().ok()) {
            // Only if the body does not name the region, or is empty (HEAD).
            if matches!(head.status.as_u16(), 301 | 302 | 307 | 308 | 400) && !contains(&whole, b"<Region>") {
                whole.extend_from_slice(format!("<Region>{region}</Region>").as_bytes());
            }
        }
        let redirects = head.status.is_redirection() && head.status != StatusCode::NOT_MODIFIED;
        if redirects || head.status == StatusCode::NOT_IMPLEMENTED {
            let body = String::from_utf8_lossy(&whole).into_owned();
            return Err(HttpError::new(HttpErrorKind::Unknown, Final { status: head.status, body }));
        }
        if lists && !refusal && !listing::is_one(&whole) {
            return Err(HttpError::new(HttpErrorKind::Unknown, NoListing));
        }
        if lists && !refusal && listing::is_cut(&whole) {
            return Err(HttpError::new(HttpErrorKind::Unknown, CutListing));
        }
        let whole = whole.freeze();
        if lists
            && !refusal
            && let Cow::Owned(named) = listing::with_names(&whole)
        {
            return Ok(HttpResponse::from_parts(head, Bytes::from(named).into()));
        }
        Ok(HttpResponse::from_parts(head, whole.into()))
    }
}

fn contains(whole: &[u8], part: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}

impl HttpService for Speaker {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let usual = if request.extensions().get::<Download>().is_some() { READ_WITHIN } else { ASK_WITHIN };
            let limit = WITHIN.try_with(|limit| *limit).unwrap_or(usual);
            let answered = match timeout(limit, self.answer(request)).await {
                // object_store does not repeat the kind `Unknown`.
                Ok(Err(error)) if tls(&error).is_some() || beneath::<NoStore>(&error).is_some() => {
                    Err(HttpError::new(HttpErrorKind::Unknown, error))
                }
                Ok(answered) => answered,
                Err(_) => Err(late(limit)),
            };
            if let Some(why) = trouble(&answered) {
                tracing::info!(host, why, "a request to the store failed; the agent repeats most requests for 15 s");
            }
            answered
        })
    }
}

/// Describes a failure that object_store may repeat, without text from the request or the answer.
fn trouble(answered: &std::result::Result<HttpResponse, HttpError>) -> Option<String> {
    match answered {
        Ok(answer) => {
            let status = answer.status();
            (status.is_server_error() || matches!(status.as_u16(), 408 | 429)).then(|| format!("status {status}"))
        }
        Err(error) => match error.kind() {
            HttpErrorKind::Connect => Some("no connection".to_owned()),
            HttpErrorKind::Request => Some("the request could not be sent".to_owned()),
            HttpErrorKind::Timeout => Some("no answer in time".to_owned()),
            HttpErrorKind::Interrupted => Some("the connection broke".to_owned()),
            _ => None,
        },
    }
}

/// Reads one file of a mounted Secret, without the newline at its end.
pub(crate) fn secret(folder: &FilePath, name: &str) -> Result<Option<String>> {
    match fs::read_to_string(folder.join(name)) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(of_request(io_error(format!("reading the credentials' {name}"))(error))),
    }
}

/// Reads a required value of the mounted Secret.
pub(crate) fn required(folder: &FilePath, name: &str) -> Result<String> {
    secret(folder, name)?.ok_or_else(|| missing(folder, name))
}

/// Restores and searches start even without the named Secrets.
const OF_A_SECRET: &str = "the Secret has no such key, or is missing";

/// Returns the error of a missing value.
pub(crate) fn missing(folder: &FilePath, name: &str) -> Error {
    Error::config(format!(
        "the credentials have no {name}: there is no such file in {}: {OF_A_SECRET}",
        folder.display()
    ))
}

/// Splits an endpoint into scheme and rest: `https://host[:port]`, with a path only if `path` allows one.
pub(crate) fn endpoint<'a>(flag: &str, url: &'a str, path: bool) -> Result<(&'a str, &'a str)> {
    // The question mark may precede a shared access signature.
    if url.contains(['@', '?']) {
        return Err(Error::config(format!(
            "{flag} holds a user, a password or a signature: {}",
            crate::location::NOT_IN_URLS
        )));
    }
    address::check(flag, url)?;
    let url = url.trim_end_matches('/');
    url.split_once("://")
        .filter(|(scheme, rest)| {
            let host = rest.split('/').next().unwrap_or_default();
            matches!(*scheme, "http" | "https")
                && !host.is_empty()
                && !rest.contains(['?', '#'])
                && (path || host.len() == rest.len())
        })
        .ok_or_else(|| {
            let more = if path { "[/path]" } else { "" };
            Error::config(format!("{flag}={url:?} is no endpoint: https://host[:port]{more}"))
        })
        .and_then(|parts| {
            // object_store would panic at an invalid URL.
            let read = Url::parse(url).map_err(|why| Error::config(format!("{flag}={url:?} is no endpoint: {why}")));
            read.map(|_| parts)
        })
}

/// Whether the endpoint uses no TLS.
pub(crate) fn plain(endpoint: Option<&String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// Reads the CA certificates that replace the public ones.
fn certificates(file: Option<&FilePath>) -> Result<Option<Vec<CertificateDer<'static>>>> {
    let Some(file) = file else { return Ok(None) };
    let pem = fs::read(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::config(format!("there is no CA file {}: {OF_A_SECRET}", file.display())),
        _ => of_request(io_error(format!("reading the CA file {}", file.display()))(error)),
    })?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<std::result::Result<Vec<_>, _>>().ok();
    let certificates = certificates.filter(|certificates| !certificates.is_empty());
    let none = || Error::config(format!("{} holds no PEM certificate", file.display()));
    certificates.map(Some).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_and_the_stores_time_are_heard() {
        let heard = |headers: &[(&'static str, &'static str)]| {
            let mut answer = HttpResponse::new(bytes::Bytes::new().into());
            for (name, value) in headers {
                answer.headers_mut().insert(*name, value.parse().unwrap());
            }
            let Heard { locked_until, legal_hold, lock_unread, now } = Heard::read(&answer);
            assert!(!lock_unread, "{headers:?}");
            (locked_until.map(|at| at.to_string()), legal_hold, now.map(|at| at.to_string()))
        };
        let date = ("date", "Thu, 26 Nov 2026 06:45:01 GMT");
        assert_eq!(heard(&[date]), (None, false, Some("2026-11-26T06:45:01Z".to_owned())));
        let until = ("x-amz-object-lock-retain-until-date", "2026-12-01T00:00:00.000Z");
        assert_eq!(heard(&[until]), (Some("2026-12-01T00:00:00Z".to_owned()), false, None));
        assert!(
            heard(&[("x-amz-object-lock-legal-hold", "ON")]).1 && !heard(&[("x-amz-object-lock-legal-hold", "OFF")]).1
        );
        let azure = ("x-ms-immutability-policy-until-date", "Tue, 01 Dec 2026 00:00:00 GMT");
        let hold = ("x-ms-legal-hold", "true");
        assert_eq!(heard(&[azure, hold]), (Some("2026-12-01T00:00:00Z".to_owned()), true, None));
        assert!(!heard(&[("x-ms-legal-hold", "false")]).1 && heard(&[("x-amz-object-lock-legal-hold", "yes")]).1);
    }

    #[test]
    fn what_is_said_of_a_lock_and_cannot_be_read_is_not_passed_over() {
        for name in ["x-amz-object-lock-retain-until-date", "x-ms-immutability-policy-until-date"] {
            for value in [&b"soon"[..], b"", b"\xff"] {
                let mut answer = HttpResponse::new(bytes::Bytes::new().into());
                answer.headers_mut().insert(name, reqwest::header::HeaderValue::from_bytes(value).unwrap());
                let heard = Heard::read(&answer);
                assert!(heard.lock_unread && heard.locked_until.is_none(), "{name}: {value:?}");
            }
        }
    }

    #[test]
    fn what_is_asked_again_is_told_without_a_word_of_the_request() {
        let answer = |status: u16| {
            let mut answer = HttpResponse::new(bytes::Bytes::from_static(b"canary").into());
            *answer.status_mut() = status.try_into().unwrap();
            Ok(answer)
        };
        let error =
            |kind| Err(HttpError::new(kind, io::Error::other("http://user:canary@host/?X-Amz-Signature=canary")));
        for (answered, told) in [
            (answer(200), None),
            (answer(404), None),
            (answer(403), None),
            (answer(429), Some("status 429 Too Many Requests")),
            (answer(503), Some("status 503 Service Unavailable")),
            (error(HttpErrorKind::Connect), Some("no connection")),
            (error(HttpErrorKind::Timeout), Some("no answer in time")),
            (error(HttpErrorKind::Unknown), None),
        ] {
            assert_eq!(trouble(&answered).as_deref(), told);
        }
    }
}
