//! How a bucket is spoken to: credentials, address, time limits, and what is asked again.
//!
//! It decides how long each kind of request may take, so that a store that is silent has a reason within 40 s, and that
//! nothing is asked again that will not get better: certificates, redirects, refusals. What is asked is not its business.

use std::fs;
use std::path::Path as FilePath;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, RetryConfig};
use reqwest::Certificate;

use crate::contract::StoreFlags;
use crate::error::{Error, Result, io_error};
use crate::store::class::{classify, tls};

/// A store that hiccups or asks to slow down gets this long, with jitter and growing pauses; what lasts longer is told
/// while somebody still looks, and the Job tries again.
const RETRIES: usize = 10;
const RETRY_FOR: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// A TCP and TLS handshake to the other side of the world takes a second.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A request without a body worth mentioning. Twice this, and the pauses, is what a silent store takes to be told.
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// One part (8 MiB) at 0.2 MiB/s: slower than that, the stream would pin etcd's read transaction for hours.
const WRITE_WITHIN: Duration = Duration::from_secs(40);

/// Between two pieces of an answer's body; the run's own stall limit (20 s) ends it anyway.
const READ_WITHIN: Duration = Duration::from_secs(15);

/// One bucket, spoken to with three time limits.
#[derive(Clone)]
pub(super) struct Clients {
    /// For small requests.
    pub(super) asker: Arc<AmazonS3>,
    /// For parts.
    pub(super) writer: Arc<AmazonS3>,
    /// For downloads: a limit between pieces, none for the whole.
    pub(super) reader: Arc<AmazonS3>,
}

impl Clients {
    /// Reads the credentials and contacts nobody.
    pub(super) fn of(flags: &StoreFlags, bucket: &str) -> Result<Self> {
        install_crypto();
        let plain = flags.s3_endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff: Duration::from_millis(200), max_backoff: LONGEST_PAUSE, base: 2.0 },
            max_retries: RETRIES,
            retry_timeout: RETRY_FOR,
        };
        let builder = address(credentials(flags)?, flags, bucket)?
            .with_bucket_name(bucket)
            .with_skip_signature(false)
            .with_unsigned_payload(false)
            // One DELETE is understood by every store; the bulk call is not.
            .with_disable_bulk_delete(true)
            .with_client_options(ClientOptions::new().with_allow_http(plain))
            .with_retry(retry);
        let certificates = certificates(flags)?;
        let build = |whole, between| {
            let connector = Connector { certificates: certificates.clone(), whole, between };
            let store = builder.clone().with_http_connector(connector).build();
            store.map(Arc::new).map_err(|error| classify("opening the store", &error))
        };
        Ok(Self {
            asker: build(Some(ASK_WITHIN), None)?,
            writer: build(Some(WRITE_WITHIN), None)?,
            reader: build(None, Some(READ_WITHIN))?,
        })
    }
}

/// Chooses ring for TLS, once for the process; what the binary has chosen stands.
pub fn install_crypto() {
    // An error says that one is installed already.
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
}

/// The region that is asked for.
pub(super) fn region(flags: &StoreFlags) -> &str {
    flags.s3_region.as_deref().unwrap_or("us-east-1")
}

/// Makes the HTTP clients. object_store's own would follow redirects to other hosts, and ask a store again whose
/// certificate it has just refused.
#[derive(Clone, Debug)]
struct Connector {
    certificates: Option<Vec<Certificate>>,
    whole: Option<Duration>,
    between: Option<Duration>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // A role's credentials come from an address of the node's own, without TLS: object_store says so here.
        let plain = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|allowed| allowed == "true");
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .https_only(!plain)
            .connect_timeout(CONNECT_WITHIN)
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
            Ok(client) => Ok(HttpClient::new(Speaker(client))),
            Err(error) => Err(object_store::Error::Generic { store: "S3", source: Box::new(error) }),
        }
    }
}

/// An HTTP client whose TLS errors are final.
#[derive(Debug)]
struct Speaker(reqwest::Client);

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
            let answer = self.0.call(request).await;
            // The kind `Unknown` is not asked again.
            answer.map_err(|error| match tls(&error) {
                Some(_) => HttpError::new(HttpErrorKind::Unknown, error),
                None => error,
            })
        })
    }
}

/// Keys from a mounted Secret, or what the environment provides (a service account's role).
fn credentials(flags: &StoreFlags) -> Result<AmazonS3Builder> {
    let Some(folder) = &flags.credentials_dir else {
        return Ok(AmazonS3Builder::from_env());
    };
    let required = |name: &str| {
        secret(folder, name)?
            .ok_or_else(|| Error::config(format!("the credentials have no {name} (looked in {})", folder.display())))
    };
    let builder = AmazonS3Builder::new()
        .with_access_key_id(required("accessKeyID")?)
        .with_secret_access_key(required("secretAccessKey")?);
    Ok(match secret(folder, "sessionToken")? {
        Some(token) => builder.with_token(token),
        None => builder,
    })
}

/// One file of a mounted Secret; people's Secrets often end in a newline.
fn secret(folder: &FilePath, name: &str) -> Result<Option<String>> {
    match fs::read_to_string(folder.join(name)) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(format!("reading the credentials' {name}"))(error)),
    }
}

/// Region, endpoint, and whether the bucket is in the host name or in the path.
fn address(builder: AmazonS3Builder, flags: &StoreFlags, bucket: &str) -> Result<AmazonS3Builder> {
    let builder = builder.with_region(region(flags)).with_virtual_hosted_style_request(!flags.s3_force_path_style);
    let Some(endpoint) = &flags.s3_endpoint else { return Ok(builder) };
    let endpoint = endpoint.trim_end_matches('/');
    let (scheme, host) = endpoint
        .split_once("://")
        .filter(|(scheme, host)| {
            matches!(*scheme, "http" | "https") && !host.is_empty() && !host.contains(['@', '/', '?'])
        })
        .ok_or_else(|| Error::config(format!("{endpoint:?} is no S3 endpoint: https://host[:port]")))?;
    // object_store takes the endpoint of the virtual-hosted style with the bucket in it.
    Ok(builder.with_endpoint(if flags.s3_force_path_style {
        endpoint.to_owned()
    } else {
        format!("{scheme}://{bucket}.{host}")
    }))
}

/// The CA certificates to trust instead of the public ones.
fn certificates(flags: &StoreFlags) -> Result<Option<Vec<Certificate>>> {
    let Some(file) = &flags.s3_ca_file else { return Ok(None) };
    let pem = fs::read(file).map_err(io_error(format!("reading the CA file {}", file.display())))?;
    let certificates = Certificate::from_pem_bundle(&pem).ok().filter(|certificates| !certificates.is_empty());
    let none = || Error::config(format!("{} holds no PEM certificate", file.display()));
    certificates.map(Some).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ExitClass;

    fn flags() -> StoreFlags {
        StoreFlags { url: "s3://bkt/p".to_owned(), ..StoreFlags::default() }
    }

    fn refused(change: impl FnOnce(&mut StoreFlags)) -> Error {
        let mut flags = flags();
        change(&mut flags);
        Clients::of(&flags, "bkt").err().expect("was taken")
    }

    #[test]
    fn one_wrong_flag_at_a_time() {
        for endpoint in
            ["", "host:90", "ftp://host", "https://", "https://u:p@host", "https://host/path", "https://h?x"]
        {
            let error = refused(|flags| flags.s3_endpoint = Some(endpoint.to_owned()));
            assert_eq!(error.class(), ExitClass::Config, "{endpoint}");
        }
        let folder = tempfile::tempdir().unwrap();
        let error = refused(|flags| flags.credentials_dir = Some(folder.path().to_owned()));
        assert_eq!(error.class(), ExitClass::Config);
        assert!(error.message().contains("accessKeyID"), "{error}");
        fs::write(folder.path().join("accessKeyID"), "key\n").unwrap();
        fs::write(folder.path().join("secretAccessKey"), "\n").unwrap();
        let error = refused(|flags| flags.credentials_dir = Some(folder.path().to_owned()));
        assert!(error.message().contains("secretAccessKey"), "{error}");
        let error = refused(|flags| flags.s3_ca_file = Some(folder.path().join("accessKeyID")));
        assert_eq!(error.class(), ExitClass::Config);
        let error = refused(|flags| flags.s3_ca_file = Some(folder.path().join("none")));
        assert_eq!(error.class(), ExitClass::NotFound);
    }
}
