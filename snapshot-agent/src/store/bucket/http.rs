//! How a store is spoken to, whoever the provider is: time limits, certificates, and what is asked again.
//!
//! It decides how long each kind of request may take, so that a store that is silent has a reason within 40 s, that a
//! slow line gets ten minutes for a part where nobody is kept waiting, and a store as many to put the parts together, and
//! that nothing is asked again that will not get better: certificates, redirects, refusals. What is asked, with which
//! credentials and where, is not its business.

use std::borrow::Cow;
use std::path::Path as FilePath;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
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
use reqwest::{StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::timeout;

use super::address::{self, NoStore, Resolver};
use super::listing::{self, CutListing, NoListing, WebPage};
use super::proxy;
use crate::error::{Error, Result, io_error, of_request};
use crate::net::trust;
use crate::store::error_class::{beneath, tls};
use crate::util::crypto::install_crypto;

/// A store that hiccups or asks to slow down gets this long, with jitter and growing pauses; what lasts longer is told
/// while somebody still looks, and the Job tries again.
const RETRIES: usize = 10;
pub(super) const RETRY_FOR: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// A TCP and TLS handshake to the other side of the world takes a second.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A request without a body worth mentioning. Twice this, and the pauses, is what a silent store takes to be told.
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// One part (8 MiB) at 0.2 MiB/s: slower than that, the stream would pin etcd's read transaction for hours.
pub(super) const WRITE_WITHIN: Duration = Duration::from_secs(40);

/// The same where no stream waits, as for a copy or behind a spool: four parts share a line of 55 KiB/s. The limit is
/// still one for the whole of a part: the client sees its bytes only as far as the kernel's buffer, which holds most of it.
pub(super) const PATIENT_WITHIN: Duration = Duration::from_mins(10);

/// A store that takes nothing at all of a part is not waited for as long: the kernel ends a connection whose bytes nobody
/// acknowledges.
const SILENT_FOR: Duration = WRITE_WITHIN;

/// To the beginning of a download, and between two of its pieces; the run's own stall limit (20 s) ends it anyway.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(15);

/// The most of an answer that is not a download: a page of a thousand names of a kilobyte each has about 2 MiB.
const ANSWER: u64 = 16 << 20;

/// The most of an answer that says no: its code stands at the beginning.
const REFUSAL: usize = 64 << 10;

/// What every provider's client can do.
pub(in crate::store) trait Client: ObjectStore + MultipartStore + PaginatedListStore {}

impl<T: ObjectStore + MultipartStore + PaginatedListStore> Client for T {}

/// One bucket, spoken to by one client, and by others where the protocol has what is asked for in the client itself.
#[derive(Clone)]
pub(in crate::store) struct Clients {
    /// For everything that the others are not for.
    pub(in crate::store) usual: Arc<dyn Client>,
    /// For small requests that make an object which stays: with what is asked for about that, on every request.
    pub(in crate::store) sealer: Arc<dyn Client>,
    /// For parts that are read back and compared before they count, where the protocol hashes them otherwise.
    pub(in crate::store) unsigned: Option<Arc<dyn Client>>,
}

impl Clients {
    /// The one for everything.
    pub(in crate::store) fn of(usual: impl Client) -> Self {
        let usual: Arc<dyn Client> = Arc::new(usual);
        Self { sealer: Arc::clone(&usual), usual, unsigned: None }
    }
}

/// Removes one object.
pub(in crate::store) type Eraser = Arc<dyn Fn(Path) -> BoxFuture<'static, object_store::Result<()>> + Send + Sync>;

/// What is asked again, and how often.
pub(in crate::store) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: Duration::from_millis(200), max_backoff: LONGEST_PAUSE, base: 2.0 },
        max_retries: RETRIES,
        retry_timeout: RETRY_FOR,
    }
}

tokio::task_local! {
    /// How long each request of this task's may take, where that is not [`ASK_WITHIN`].
    static WITHIN: Duration;
}

/// Lets each request that is made in `doing` take so long: object_store has no such option.
pub(super) fn within<T>(limit: Duration, doing: impl Future<Output = T>) -> impl Future<Output = T> {
    WITHIN.scope(limit, doing)
}

/// What was waited for too long.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
struct Late(Duration);

/// The error of a request that has taken so long.
pub(super) fn late(limit: Duration) -> HttpError {
    HttpError::new(HttpErrorKind::Timeout, Late(limit))
}

/// Makes the HTTP client of a store, once however many clients of the store share it. object_store's own would follow
/// redirects to other hosts, and ask a store again whose certificate it has just refused.
#[derive(Clone, Debug)]
pub(in crate::store) struct Connector {
    certificates: Option<Vec<CertificateDer<'static>>>,
    identity: Option<&'static str>,
    /// With TLS alone, and without.
    made: Arc<[OnceLock<HttpClient>; 2]>,
}

impl Connector {
    /// That trusts the CA certificates of this file, or the public ones. Nobody is contacted. `identity`: the name at
    /// which the provider's own client asks for the node's identity.
    pub(in crate::store) fn trusting(file: Option<&FilePath>, identity: Option<&'static str>) -> Result<Self> {
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

/// What a connection to a store is made of.
#[derive(Clone, Debug)]
struct Wire {
    certificates: Option<Vec<CertificateDer<'static>>>,
    identity: Option<&'static str>,
    plain: bool,
}

impl Wire {
    /// A client that keeps its connections for the next request, or opens one for each.
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
    /// Headers and all else that the options ask for are object_store's to send, but for one.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // A role's credentials come from an address of the node's own, without TLS: object_store says so here.
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|allowed| allowed == "true");
        let [secure, insecure] = &*self.made;
        let made = if plain { insecure } else { secure };
        match made.get() {
            Some(client) => Ok(client.clone()),
            None => self.client(plain).map(|client| made.get_or_init(|| client).clone()),
        }
    }
}

/// What an answer's headers say and object_store passes over; it hands on what is put beside an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// Until when the object is locked, as far as these credentials may know.
    pub(crate) locked_until: Option<Timestamp>,
    /// Whether somebody holds the object, as far as these credentials may know.
    pub(crate) legal_hold: bool,
    /// Whether something is said of a lock that cannot be read.
    pub(crate) lock_unread: bool,
    /// What time it is, says the store.
    pub(crate) now: Option<Timestamp>,
}

impl Heard {
    /// The names of S3 (also of Google's for S3), and of Azure.
    fn of(answer: &HttpResponse) -> Self {
        // What cannot be read is none of the values that say that nobody locks.
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

/// Beside a request: so much of its answer is read at most. Who asks for something small does not wait for something large.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct AtMost(pub(in crate::store) u64);

/// Beside a request: its answer is read piece by piece by somebody who counts, and who waits [`READ_WITHIN`] for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Download;

/// Beside a request: a connection that no other request has used.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Fresh;

/// An answer with more in it than anybody reads.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer has more than {0} bytes")]
pub(super) struct TooLong(u64);

/// An answer that object_store would ask for again although it stays the same (501), or whose body it would drop
/// (redirects): in the words that it has for others.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Server returned non-2xx status code: {status}: {body}")]
struct Final {
    status: StatusCode,
    body: String,
}

/// In which region a bucket is, says S3 beside a refusal.
const BUCKET_REGION: &str = "x-amz-bucket-region";

/// Whether an answer that is no download is a page for browsers: no store sends one.
fn is_web_page(answer: &HttpResponse) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let of_a_store = |name: &HeaderName| name.as_str().starts_with("x-");
    answer.status().is_success() && kind.starts_with("text/html") && !answer.headers().keys().any(of_a_store)
}

/// An HTTP client whose TLS errors, and names that lead to no store, are final, and whose answers have an end.
#[derive(Debug)]
struct Speaker {
    client: reqwest::Client,
    wire: Wire,
    /// That keeps no connection.
    fresh: OnceLock<reqwest::Client>,
}

impl Speaker {
    /// The client for this request.
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

    /// What is answered, and what its headers say.
    async fn answer(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let lists = listing::asked(&request);
        let most = match request.extensions().get::<Download>() {
            Some(Download) => None,
            None => Some(request.extensions().get::<AtMost>().map_or(ANSWER, |AtMost(most)| *most)),
        };
        let mut answer = self.client(&request)?.call(request).await?;
        let heard = Heard::of(&answer);
        answer.extensions_mut().insert(heard);
        if is_web_page(&answer) {
            return Err(HttpError::new(HttpErrorKind::Unknown, WebPage));
        }
        Self::bounded(answer, most, lists).await
    }

    /// object_store collects what is no download in memory, and errors of every kind.
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
            // Before it grows: the room doubles.
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
            // Beside what says it by itself, or says nothing (HEAD).
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
                // The kind `Unknown` is not asked again.
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

/// What object_store may ask again, in words that hold nothing of the request or the answer.
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

/// One file of a mounted Secret; people's Secrets often end in a newline.
pub(in crate::store) fn secret(folder: &FilePath, name: &str) -> Result<Option<String>> {
    match fs::read_to_string(folder.join(name)) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(of_request(io_error(format!("reading the credentials' {name}"))(error))),
    }
}

/// A value that has to be in the mounted Secret.
pub(in crate::store) fn required(folder: &FilePath, name: &str) -> Result<String> {
    secret(folder, name)?.ok_or_else(|| missing(folder, name))
}

/// Who restores, or looks for what to restore, starts also without the Secrets that are named.
const OF_A_SECRET: &str = "the Secret has no such key, or is missing";

/// What is missing in the mounted Secret.
pub(in crate::store) fn missing(folder: &FilePath, name: &str) -> Error {
    Error::config(format!(
        "the credentials have no {name}: there is no such file in {}: {OF_A_SECRET}",
        folder.display()
    ))
}

/// An endpoint's scheme and the rest of it: `https://host[:port]`, and a path only where `path` allows one.
pub(in crate::store) fn endpoint<'a>(flag: &str, url: &'a str, path: bool) -> Result<(&'a str, &'a str)> {
    // A shared access signature may stand behind a question mark.
    if url.contains(['@', '?']) {
        return Err(Error::config(format!(
            "{flag} holds a user, a password or a signature: {}",
            crate::store::location::NOT_IN_URLS
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
            // object_store would panic at what is none.
            let read = Url::parse(url).map_err(|why| Error::config(format!("{flag}={url:?} is no endpoint: {why}")));
            read.map(|_| parts)
        })
}

/// Whether an endpoint is spoken to without TLS.
pub(in crate::store) fn plain(endpoint: Option<&String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// The CA certificates to trust instead of the public ones.
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
            let Heard { locked_until, legal_hold, lock_unread, now } = Heard::of(&answer);
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
                let heard = Heard::of(&answer);
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
