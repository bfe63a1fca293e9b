//! How a store is spoken to, whoever the provider is: time limits, certificates, and what is asked again.
//!
//! It decides how long each kind of request may take, so that a store that is silent has a reason within 40 s, that a
//! slow line gets ten minutes for a part where nobody is kept waiting, and a store as many to put the parts together, and
//! that nothing is asked again that will not get better: certificates, redirects, refusals. What is asked, with which
//! credentials and where, is not its business.

use std::path::Path as FilePath;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io};

use bytes::BytesMut;
use futures::StreamExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use reqwest::{Certificate, Url};

use super::address::{self, NoStore, Resolver};
use super::listing::{self, NoListing};
use super::proxy;
use crate::error::{Error, Result, io_error};
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

/// Between two pieces of an answer's body; the run's own stall limit (20 s) ends it anyway.
const READ_WITHIN: Duration = Duration::from_secs(15);

/// The most of an answer that is not a download: a page of a thousand names of a kilobyte each has about 2 MiB.
const ANSWER: u64 = 16 << 20;

/// The most of an answer that says no: its code stands at the beginning.
const REFUSAL: usize = 64 << 10;

/// What every provider's client can do.
pub(in crate::store) trait Client: ObjectStore + MultipartStore + PaginatedListStore {}

impl<T: ObjectStore + MultipartStore + PaginatedListStore> Client for T {}

/// One bucket, spoken to with four time limits and by one more client for what is to stay.
#[derive(Clone)]
pub(in crate::store) struct Clients {
    /// For small requests.
    pub(super) asker: Arc<dyn Client>,
    /// For small requests that make an object which stays: with what is asked for about that, on every request.
    pub(super) sealer: Arc<dyn Client>,
    /// For parts.
    pub(super) writer: Arc<dyn Client>,
    /// For parts that are read back and compared before they count, where the protocol hashes them otherwise.
    pub(super) unsigned: Option<Arc<dyn Client>>,
    /// The same two for parts that no stream waits for; this one also makes them an object, which may take minutes.
    pub(super) patient: Arc<dyn Client>,
    /// The same.
    pub(super) patient_unsigned: Option<Arc<dyn Client>>,
    /// For downloads: a limit between pieces, none for the whole.
    pub(super) reader: Arc<dyn Client>,
}

impl Clients {
    /// Makes them with a provider's own builder. Nobody is contacted.
    pub(in crate::store) fn of<C: Client>(
        connectors: &Connectors,
        build: impl Fn(Connector) -> Result<C>,
    ) -> Result<Self> {
        let asker: Arc<dyn Client> = Arc::new(build(connectors.asking.clone())?);
        Ok(Self {
            sealer: Arc::clone(&asker),
            asker,
            unsigned: None,
            patient_unsigned: None,
            writer: Arc::new(build(connectors.writing.clone())?),
            patient: Arc::new(build(connectors.patient.clone())?),
            reader: Arc::new(build(connectors.reading.clone())?),
        })
    }

    /// With another client for what is to stay.
    pub(in crate::store) fn sealing<C: Client>(self, sealer: C) -> Self {
        Self { sealer: Arc::new(sealer), ..self }
    }

    /// With other clients for parts that are read back.
    pub(in crate::store) fn unsigned<C: Client>(
        self,
        connectors: &Connectors,
        build: impl Fn(Connector) -> Result<C>,
    ) -> Result<Self> {
        let (unsigned, patient) = (build(connectors.writing.clone())?, build(connectors.patient.clone())?);
        Ok(Self { unsigned: Some(Arc::new(unsigned)), patient_unsigned: Some(Arc::new(patient)), ..self })
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

/// The HTTP clients for one store: one for each set of time limits, however many clients of the store share it.
pub(in crate::store) struct Connectors {
    /// For small requests.
    pub(in crate::store) asking: Connector,
    /// For parts.
    writing: Connector,
    /// For parts that no stream waits for.
    patient: Connector,
    /// For downloads.
    reading: Connector,
}

impl Connectors {
    /// That trust the CA certificates of this file, or the public ones. Nobody is contacted. `identity`: the name at
    /// which the provider's own client asks for the node's identity.
    pub(in crate::store) fn trusting(file: Option<&FilePath>, identity: Option<&'static str>) -> Result<Self> {
        install_crypto();
        proxy::check()?;
        let certificates = certificates(file)?;
        let connector = |whole, between, silent| {
            let settings = Settings { certificates: certificates.clone(), whole, between, silent, identity };
            Connector { settings, made: Arc::default() }
        };
        Ok(Self {
            asking: connector(Some(ASK_WITHIN), None, None),
            writing: connector(Some(WRITE_WITHIN), None, None),
            patient: connector(Some(PATIENT_WITHIN), None, Some(SILENT_FOR)),
            reading: connector(None, Some(READ_WITHIN), None),
        })
    }
}

/// Makes an HTTP client once. object_store's own would follow redirects to other hosts, and ask a store again whose
/// certificate it has just refused.
#[derive(Clone, Debug)]
pub(in crate::store) struct Connector {
    settings: Settings,
    /// With TLS alone, and without.
    made: Arc<[OnceLock<HttpClient>; 2]>,
}

/// Whom an HTTP client trusts, and how long it waits.
#[derive(Clone, Debug)]
struct Settings {
    certificates: Option<Vec<Certificate>>,
    whole: Option<Duration>,
    between: Option<Duration>,
    silent: Option<Duration>,
    identity: Option<&'static str>,
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
            None => self.settings.client(plain).map(|client| made.get_or_init(|| client).clone()),
        }
    }
}

impl Settings {
    fn client(&self, plain: bool) -> object_store::Result<HttpClient> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .https_only(!plain)
            .connect_timeout(CONNECT_WITHIN)
            .tcp_user_timeout(self.silent)
            .dns_resolver(Arc::new(Resolver { identity: self.identity }))
            .redirect(reqwest::redirect::Policy::none());
        if let Some(certificates) = &self.certificates {
            builder = builder.tls_certs_only(certificates.iter().cloned());
        }
        if let Some(whole) = self.whole {
            builder = builder.timeout(whole);
        }
        if let Some(between) = self.between {
            builder = builder.read_timeout(between);
        }
        match builder.build() {
            Ok(client) => Ok(HttpClient::new(Speaker { client, downloads: self.between.is_some() })),
            Err(error) => Err(object_store::Error::Generic { store: "store", source: Box::new(error) }),
        }
    }
}

/// What an answer's headers say and object_store passes over; it hands on what is put beside an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// The store's clock.
    pub(crate) date: Option<String>,
    /// Names and values of the checksums that the store says the object has.
    pub(crate) checksums: Vec<(String, String)>,
    /// Until when the object is locked, as far as these credentials may know.
    pub(crate) locked_until: Option<Timestamp>,
}

impl Heard {
    fn of(answer: &HttpResponse) -> Self {
        let text = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let checksums = ["x-amz-checksum-crc64nvme", "x-amz-checksum-sha256"];
        let said = checksums.into_iter().filter_map(|name| Some((name.to_owned(), text(name)?)));
        let locked_until = text("x-amz-object-lock-retain-until-date").and_then(|until| until.parse().ok());
        Self { date: text("date"), checksums: said.collect(), locked_until }
    }
}

/// Beside a request: so much of its answer is read at most. Who asks for something small does not wait for something large.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct AtMost(pub(in crate::store) u64);

/// An answer with more in it than anybody reads.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it has more than {0} bytes")]
pub(super) struct TooLong(u64);

/// An HTTP client whose TLS errors, and names that lead to no store, are final, and whose answers have an end.
#[derive(Debug)]
struct Speaker {
    client: reqwest::Client,
    /// Whether answers are read piece by piece by somebody who counts.
    downloads: bool,
}

impl Speaker {
    /// object_store collects what is no download in memory, and errors of every kind.
    async fn bounded(
        &self,
        answer: HttpResponse,
        most: u64,
        lists: bool,
    ) -> std::result::Result<HttpResponse, HttpError> {
        let refusal = !answer.status().is_success();
        if self.downloads && !refusal {
            return Ok(answer);
        }
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
        if lists && !refusal && !listing::is_one(&whole) {
            return Err(HttpError::new(HttpErrorKind::Unknown, NoListing));
        }
        Ok(HttpResponse::from_parts(head, whole.freeze().into()))
    }
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
            let lists = listing::asked(&request);
            let most = request.extensions().get::<AtMost>().map_or(ANSWER, |AtMost(most)| *most);
            match self.client.call(request).await {
                Ok(mut answer) => {
                    let heard = Heard::of(&answer);
                    answer.extensions_mut().insert(heard);
                    self.bounded(answer, most, lists).await
                }
                // The kind `Unknown` is not asked again.
                Err(error) if tls(&error).is_some() || beneath::<NoStore>(&error).is_some() => {
                    Err(HttpError::new(HttpErrorKind::Unknown, error))
                }
                Err(error) => Err(error),
            }
        })
    }
}

/// One file of a mounted Secret; people's Secrets often end in a newline.
pub(in crate::store) fn secret(folder: &FilePath, name: &str) -> Result<Option<String>> {
    match fs::read_to_string(folder.join(name)) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(format!("reading the credentials' {name}"))(error)),
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
fn certificates(file: Option<&FilePath>) -> Result<Option<Vec<Certificate>>> {
    let Some(file) = file else { return Ok(None) };
    let pem = fs::read(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::config(format!("there is no CA file {}: {OF_A_SECRET}", file.display())),
        _ => io_error(format!("reading the CA file {}", file.display()))(error),
    })?;
    let certificates = Certificate::from_pem_bundle(&pem).ok().filter(|certificates| !certificates.is_empty());
    let none = || Error::config(format!("{} holds no PEM certificate", file.display()));
    certificates.map(Some).ok_or_else(none)
}
