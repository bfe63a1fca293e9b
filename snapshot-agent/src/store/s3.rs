//! A bucket as a store.
//!
//! It decides how the client is made, how much is on its way at a time, and what is asked again. Every request is
//! signed and so is its payload: the store checks a sha256 of every part. Large objects cannot be create-only, so data
//! goes under keys that nobody else uses, and the manifest, which is small, is the create-only one.

use std::fmt;
use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, RetryConfig,
};
use tokio_util::task::AbortOnDropHandle;

use super::class::classify;
use super::{Plan, Stat};
use crate::contract::StoreFlags;
use crate::error::{Error, Result, io_error};
use crate::layout::{Folder, Key};
use crate::progress::Progress;

mod upload;

pub(super) use upload::S3Upload;

/// Enough for a store that hiccups, short enough that the reason shows while somebody still looks.
const RETRIES: usize = 4;
const RETRY_FOR: Duration = Duration::from_secs(15);

/// A TCP and TLS handshake to the other side of the world takes a second.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// One part (8 MiB) at 0.2 MiB/s: slower than that, the stream would pin etcd's read transaction for hours.
const WRITE_WITHIN: Duration = Duration::from_secs(40);

/// Between two pieces of an answer's body; the run's own stall limit (20 s) ends it anyway.
const READ_WITHIN: Duration = Duration::from_secs(15);

/// Ranges of a download: large enough that the request's own cost vanishes, small enough to keep four in memory.
const RANGE: u64 = 8 << 20;
const RANGES_AT_A_TIME: usize = 4;

/// A bucket and a prefix in it.
#[derive(Clone)]
pub struct S3Store {
    bucket: String,
    prefix: Option<Folder>,
    /// For uploads and small objects: one time limit for a whole request.
    writer: Arc<AmazonS3>,
    /// For downloads: a limit between pieces, none for the whole.
    reader: Arc<AmazonS3>,
}

/// object_store's own output holds the session token.
impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store").field("bucket", &self.bucket).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Chooses ring for TLS, once for the process; what the binary has chosen stands.
pub fn install_crypto() {
    // An error says that one is installed already.
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
}

impl S3Store {
    pub(super) fn open(flags: &StoreFlags, bucket: String, prefix: Option<Folder>) -> Result<Self> {
        install_crypto();
        let client = client_options(flags)?;
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(200),
                max_backoff: Duration::from_secs(3),
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: RETRY_FOR,
        };
        let builder = address(credentials(flags)?, flags, &bucket)?
            .with_bucket_name(&bucket)
            .with_skip_signature(false)
            .with_unsigned_payload(false)
            // One DELETE is understood by every store; the bulk call is not.
            .with_disable_bulk_delete(true)
            .with_retry(retry);
        let build = |client: ClientOptions| {
            let store = builder.clone().with_client_options(client).build();
            store.map(Arc::new).map_err(|error| classify("opening the store", &error))
        };
        let writer = build(client.clone().with_timeout(WRITE_WITHIN))?;
        let reader = build(client.with_timeout_disabled().with_read_timeout(READ_WITHIN))?;
        Ok(Self { bucket, prefix, writer, reader })
    }

    fn path(&self, key: &Key) -> Result<Path> {
        let key = match &self.prefix {
            Some(prefix) => format!("{prefix}/{key}"),
            None => key.to_string(),
        };
        Path::parse(&key).map_err(|error| Error::config(format!("{key} is no key: {error}")))
    }

    pub(super) fn uri(&self, key: &Key) -> String {
        match &self.prefix {
            Some(prefix) => format!("s3://{}/{prefix}/{key}", self.bucket),
            None => format!("s3://{}/{key}", self.bucket),
        }
    }

    pub(super) async fn begin(&self, key: &Key, plan: Plan) -> Result<S3Upload> {
        S3Upload::begin(Arc::clone(&self.writer), self.path(key)?, plan).await
    }

    pub(super) async fn put_new(&self, key: &Key, content: Bytes) -> Result<()> {
        let path = self.path(key)?;
        let doing = format!("writing {}", self.uri(key));
        let options = PutOptions::from(PutMode::Create);
        let result = self.writer.put_opts(&path, PutPayload::from_bytes(content.clone()), options).await;
        let Err(error) = result else { return Ok(()) };
        match &error {
            // Either somebody else wrote it, or we did and the answer was lost.
            object_store::Error::AlreadyExists { .. } => {
                let found = self.get_small(key, content.len() as u64 + 1).await?;
                if found == content {
                    return Ok(());
                }
                Err(Error::transient(format!("{doing}: another attempt has written it; try again under a new key")))
            }
            // A store that does not know the condition. Nobody else uses the key, so a look beforehand will do.
            object_store::Error::NotImplemented { .. } | object_store::Error::Generic { .. }
                if error.to_string().contains("NotImplemented") || error.to_string().contains("status code: 501") =>
            {
                match self.writer.head(&path).await {
                    Err(object_store::Error::NotFound { .. }) => {
                        let put = self.writer.put(&path, PutPayload::from_bytes(content)).await;
                        put.map(drop).map_err(|error| classify(&doing, &error))
                    }
                    Err(error) => Err(classify(&doing, &error)),
                    Ok(_) => Err(Error::transient(format!("{doing}: there is an object of that name already"))),
                }
            }
            _ => Err(classify(&doing, &error)),
        }
    }

    pub(super) async fn stat(&self, key: &Key) -> Result<Stat> {
        let meta = self.writer.head(&self.path(key)?).await;
        let meta = meta.map_err(|error| classify(&format!("looking at {}", self.uri(key)), &error))?;
        Ok(Stat { bytes: meta.size, etag: meta.e_tag })
    }

    pub(super) async fn get_small(&self, key: &Key, limit: u64) -> Result<Bytes> {
        let doing = format!("reading {}", self.uri(key));
        let result = self.reader.get(&self.path(key)?).await.map_err(|error| classify(&doing, &error))?;
        if result.meta.size > limit {
            return Err(Error::corrupt(format!("{doing}: it has {} bytes, more than {limit}", result.meta.size)));
        }
        let mut content = BytesMut::new();
        let mut body = result.into_stream();
        while let Some(piece) = body.next().await {
            content.extend_from_slice(&piece.map_err(|error| classify(&doing, &error))?);
            if content.len() as u64 > limit {
                return Err(Error::corrupt(format!("{doing}: it is longer than the store said")));
            }
        }
        Ok(content.freeze())
    }

    /// Ranges are fetched a few at a time and handed on in order. A range whose connection breaks is taken up again
    /// where it broke, by object_store, tied to the same ETag.
    pub(super) fn read(&self, key: &Key, stat: &Stat, progress: &Progress) -> BoxStream<'static, Result<Bytes>> {
        let path = match self.path(key) {
            Ok(path) => path,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let doing = format!("reading {}", self.uri(key));
        let (store, etag, size, progress) = (Arc::clone(&self.reader), stat.etag.clone(), stat.bytes, progress.clone());
        stream::iter((0..size).step_by(usize::try_from(RANGE).unwrap_or(usize::MAX)))
            .map(move |from| {
                let options = GetOptions {
                    if_match: etag.clone(),
                    range: Some(GetRange::Bounded(from..size.min(from + RANGE))),
                    ..GetOptions::default()
                };
                let fetch = fetch(Arc::clone(&store), path.clone(), options, doing.clone(), progress.clone());
                // A task, so that it goes on while the consumer is busy.
                AbortOnDropHandle::new(tokio::spawn(fetch))
            })
            .buffered(RANGES_AT_A_TIME)
            .flat_map(|range| match range {
                Ok(Ok(pieces)) => stream::iter(pieces.into_iter().map(Ok)).boxed(),
                Ok(Err(error)) => stream::once(async { Err(error) }).boxed(),
                Err(error) => stream::once(async move { Err(crate::error::task_error(&error)) }).boxed(),
            })
            .boxed()
    }
}

async fn fetch(
    store: Arc<AmazonS3>,
    path: Path,
    options: GetOptions,
    doing: String,
    progress: Progress,
) -> Result<Vec<Bytes>> {
    let result = store.get_opts(&path, options).await.map_err(|error| classify(&doing, &error))?;
    let wanted = result.range.end - result.range.start;
    let mut body = result.into_stream();
    let (mut pieces, mut got) = (Vec::new(), 0_u64);
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| classify(&doing, &error))?;
        got += piece.len() as u64;
        progress.add(piece.len());
        pieces.push(piece);
    }
    if got == wanted { Ok(pieces) } else { Err(Error::transient(format!("{doing}: the answer was cut short"))) }
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
    let builder = builder
        .with_region(flags.s3_region.as_deref().unwrap_or("us-east-1"))
        .with_virtual_hosted_style_request(!flags.s3_force_path_style);
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

fn client_options(flags: &StoreFlags) -> Result<ClientOptions> {
    let plain = flags.s3_endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let options = ClientOptions::new().with_allow_http(plain).with_connect_timeout(CONNECT_WITHIN);
    let Some(file) = &flags.s3_ca_file else { return Ok(options) };
    let pem = fs::read(file).map_err(io_error(format!("reading the CA file {}", file.display())))?;
    let certificates = Certificate::from_pem_bundle(&pem)
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| Error::config(format!("{} holds no PEM certificate", file.display())))?;
    let options = options.with_no_system_certificates(true);
    Ok(certificates.into_iter().fold(options, ClientOptions::with_root_certificate))
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
        S3Store::open(&flags, "bkt".to_owned(), None).expect_err("was taken")
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

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["accessKeyID", "secretAccessKey", "sessionToken"] {
            fs::write(folder.path().join(name), "canary").unwrap();
        }
        let flags = StoreFlags { credentials_dir: Some(folder.path().to_owned()), ..flags() };
        let store = S3Store::open(&flags, "bkt".to_owned(), None).unwrap();
        assert!(!format!("{store:?}").contains("canary"));
    }
}
