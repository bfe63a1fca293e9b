//! Amazon S3, and compatible stores: address, credentials, and options of objects.
//!
//! Every request is signed, and so is its payload unless it is read back and compared. The agent checks options as far as
//! possible without the store; a store refuses others at the first request, and the error names the flag.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{S3Checksum, S3Sse, StoreFlags};
use jiff::Timestamp;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::{ClientOptions, TagSet};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::bucket::http::{self, Client, Clients, Connector};
use super::bucket::proxy::through;
use super::bucket::{Bucket, Options, Protocol, address};
use super::location::{Place, is_host_name, needs_path_style};
use super::locked::Term;
use crate::error_class::classify;

/// S3's limit for one upload.
const PROTOCOL: Protocol = Protocol { scheme: "s3", most_parts: 10_000, parts_stay: false };

/// Storage classes that AWS reads immediately.
const STORAGE_CLASSES: &[&str] =
    &["STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY"];

/// Storage classes that AWS reads hours after a request.
const ARCHIVES: &[&str] = &["GLACIER", "DEEP_ARCHIVE"];

/// S3's limit: a hundred years.
const MOST_DAYS: u32 = 36_500;

/// S3's limit for one object.
const MOST_TAGS: usize = 10;

/// Opens a bucket: reads the credentials, sends no request.
pub(super) fn open(flags: &StoreFlags, place: Place) -> Result<Bucket> {
    open_locking(flags, place, lock(flags)?)
}

/// Opens a bucket whose permanent objects are locked.
pub(super) fn open_locking(flags: &StoreFlags, place: Place, lock: Option<Term>) -> Result<Bucket> {
    let builder = builder(flags, &place.name)?;
    let connector = Connector::trusting(flags.s3_ca_file.as_deref(), None)?;
    let plain = http::plain(flags.s3_endpoint.as_ref());
    let build = move |builder: AmazonS3Builder, headers: &[(&str, &str)]| {
        let mut client = ClientOptions::new().with_allow_http(plain);
        let headers: Option<HeaderMap> = headers
            .iter()
            .map(|(name, value)| HeaderName::try_from(*name).ok().zip(HeaderValue::try_from(*value).ok()))
            .collect();
        client = client.with_default_headers(headers.ok_or_else(|| Error::config("a request header is not valid"))?);
        let store = builder.with_client_options(client).with_http_connector(connector.clone()).build();
        store.map_err(|error| classify("opening the store", &error))
    };
    let usual = build(builder.clone(), &[])?;
    // With the credentials that the other client has: a role's credentials are requested once.
    let sealing = builder.clone().with_credentials(Arc::clone(usual.credentials()));
    let mut clients = Clients::from_client(usual);
    if !has_checksum(flags) {
        let unsigned = builder.with_unsigned_payload(true);
        clients.unsigned = Some(Arc::new(build(unsigned, &[])?));
    }
    if let Some(Term { mode, .. }) = lock {
        // Only on requests that create an object: S3 accepts these headers only there.
        let sealer = move |until: Timestamp| -> Result<Arc<dyn Client>> {
            let until = until.to_string();
            let headers = [("x-amz-object-lock-mode", mode.as_str()), ("x-amz-object-lock-retain-until-date", &until)];
            Ok(Arc::new(build(sealing.clone(), &headers)?))
        };
        clients.sealer = Some(Arc::new(sealer));
    }
    let region = region(flags)?;
    let through = match &flags.s3_endpoint {
        Some(endpoint) => through(endpoint),
        None => through(&format!("https://s3.{region}.{}", domain(&region))),
    };
    let at = format!("{}, region {region}{through}", flags.s3_endpoint.as_deref().unwrap_or("AWS"));
    Ok(Bucket::new(place, at, PROTOCOL, Options { lock, ..options(flags)? }, clients))
}

fn builder(flags: &StoreFlags, bucket: &str) -> Result<AmazonS3Builder> {
    let builder = asked_for(reached(credentials(flags)?, flags, bucket)?, flags)?;
    Ok(builder
        // A colon in the path is written this way, and signed this way.
        .with_bucket_name(bucket.replace(':', "%3A"))
        .with_skip_signature(false)
        .with_unsigned_payload(false)
        // Every store accepts one DELETE, but not every store the bulk call.
        .with_disable_bulk_delete(true)
        .with_retry(http::retry()))
}

/// Returns the region from the flag, or from the environment as AWS's own programs read it.
fn region(flags: &StoreFlags) -> Result<String> {
    region_by(flags, |name| std::env::var_os(name)?.into_string().ok())
}

fn region_by(flags: &StoreFlags, env: impl Fn(&str) -> Option<String>) -> Result<String> {
    let named = |name: &'static str| env(name).filter(|region| !region.is_empty()).map(|region| (name, region));
    let by_flag = flags.s3_region.clone().map(|region| ("--s3-region", region));
    let (name, region) = by_flag
        .or_else(|| named("AWS_REGION"))
        .or_else(|| named("AWS_DEFAULT_REGION"))
        .unwrap_or_else(|| ("--s3-region", "us-east-1".to_owned()));
    // The region becomes part of headers and host names.
    if region.is_empty() || !region.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(Error::config(format!("{name}={region:?} is no region: letters, digits, and any of -_.")));
    }
    Ok(region)
}

/// Returns the domain of AWS' services in this region (AWS: "Partitions").
fn domain(region: &str) -> &'static str {
    const PARTITIONS: [(&str, &str); 6] = [
        ("cn-", "amazonaws.com.cn"),
        ("us-iso-", "c2s.ic.gov"),
        ("us-isob-", "sc2s.sgov.gov"),
        ("us-isof-", "csp.hci.ic.gov"),
        ("eu-isoe-", "cloud.adc-e.uk"),
        ("eusc-", "amazonaws.eu"),
    ];
    PARTITIONS.iter().find(|(begins, _)| region.starts_with(begins)).map_or("amazonaws.com", |(_, domain)| domain)
}

/// Returns the keys from a mounted Secret, or the environment's identity (a service account's role).
fn credentials(flags: &StoreFlags) -> Result<AmazonS3Builder> {
    let Some(folder) = &flags.credentials_dir else {
        return Ok(AmazonS3Builder::from_env());
    };
    let builder = AmazonS3Builder::new()
        .with_access_key_id(sendable("accessKeyID", http::required(folder, "accessKeyID")?)?)
        .with_secret_access_key(http::required(folder, "secretAccessKey")?);
    Ok(match http::secret(folder, "sessionToken")? {
        Some(token) => builder.with_token(sendable("sessionToken", token)?),
        None => builder,
    })
}

/// Checks a credential that becomes a header as it is; object_store would panic at characters that no header allows.
fn sendable(name: &str, value: String) -> Result<String> {
    if value.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(value);
    }
    Err(Error::config(format!(
        "the credentials' {name} holds a line break, a space or another invalid character. Correct the key in the \
         Secret"
    )))
}

/// Whether the bucket is in the path. AWS expects the bucket in the host name, and its certificate covers names directly below
/// its own, not those below them (RFC 9525, 6.3). Private servers rarely have a DNS name for each bucket, and an IP address has
/// no names below it.
fn in_path(flags: &StoreFlags, bucket: &str) -> bool {
    let endpoint = flags.s3_endpoint.as_deref();
    let host =
        endpoint.and_then(|endpoint| Url::parse(endpoint).ok()).and_then(|url| url.host_str().map(str::to_owned));
    let address = host.as_ref().is_some_and(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok());
    let aws = host.is_none_or(|host| host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn"));
    address || flags.s3_force_path_style.unwrap_or(!aws || bucket.contains('.'))
}

/// Sets region, endpoint, and whether the bucket is in the host name or in the path.
fn reached(builder: AmazonS3Builder, flags: &StoreFlags, bucket: &str) -> Result<AmazonS3Builder> {
    // Without the flag, the environment of AWS's own programs may name an endpoint (`AmazonS3Builder::from_env`), without the
    // bucket.
    for key in ["aws_endpoint_url_s3", "aws_endpoint_url"] {
        if flags.s3_endpoint.is_none() && builder.get_config_value(&config_key(key)?).is_some() {
            return Err(Error::config(
                "the environment sets AWS_ENDPOINT_URL. Give the URL with --s3-endpoint, or remove the variable",
            ));
        }
    }
    let in_path = in_path(flags, bucket);
    if !in_path && !is_host_name(bucket) {
        return Err(needs_path_style(bucket));
    }
    let region = region(flags)?;
    let mut builder = builder.with_region(&region).with_virtual_hosted_style_request(!in_path);
    let (domain, sts) = (domain(&region), config_key("aws_endpoint_url_sts")?);
    // object_store knows only the services of AWS' first partition.
    let other = domain != "amazonaws.com";
    if other && builder.get_config_value(&sts).is_none() {
        builder = builder.with_config(sts, format!("https://sts.{region}.{domain}"));
    }
    let aws = (flags.s3_endpoint.is_none() && other).then(|| format!("https://s3.{region}.{domain}"));
    let Some(endpoint) = flags.s3_endpoint.as_ref().or(aws.as_ref()) else { return Ok(builder) };
    let (scheme, host) = http::endpoint("--s3-endpoint", endpoint, false)?;
    // For the virtual-hosted style object_store takes the endpoint with the bucket in it.
    let whole = if in_path { format!("{scheme}://{host}") } else { format!("{scheme}://{bucket}.{host}") };
    Url::parse(&whole).map_err(|why| {
        Error::config(format!(
            "--s3-endpoint={endpoint:?} takes no bucket in front of its name ({why}): leave out \
             --s3-force-path-style=false (s3.forcePathStyle)"
        ))
    })?;
    // The bucket's name may turn the host into an IP address.
    address::check("--s3-endpoint", &whole)?;
    // Both: the environment's setting for S3 would win over the other.
    Ok(builder.with_config(config_key("aws_endpoint_url_s3")?, &whole).with_endpoint(whole))
}

/// Whether every request with data has a checksum.
fn has_checksum(flags: &StoreFlags) -> bool {
    flags.s3_object_lock.is_some() || !matches!(flags.s3_checksum, None | Some(S3Checksum::WhenRequired))
}

/// Sets encryption and checksums: object_store adds them to every request that needs them.
fn asked_for(mut builder: AmazonS3Builder, flags: &StoreFlags) -> Result<AmazonS3Builder> {
    if flags.s3_sse == Some(S3Sse::Customer) && has_checksum(flags) {
        // S3 then requires the key again at the end of an upload (CompleteMultipartUpload), and object_store does not send it
        // there.
        return Err(Error::config(
            "Holdfast does not support --s3-sse=SSE-C with --s3-object-lock or --s3-checksum. Use another encryption, \
             or omit these flags",
        ));
    }
    builder = match flags.s3_sse {
        Some(S3Sse::Customer) => builder.with_ssec_encryption(customer_key(flags)?),
        Some(sse @ (S3Sse::Aes256 | S3Sse::AwsKms)) => {
            builder.with_config(config_key("aws_server_side_encryption")?, sse.as_str())
        }
        None => builder,
    };
    if let Some(id) = &flags.s3_sse_kms_key_id {
        if flags.s3_sse.is_none_or(|sse| !sse.has_keys()) {
            return Err(Error::config("--s3-sse-kms-key-id needs --s3-sse=aws:kms"));
        }
        // A header's value: an invalid one would give an error without a name.
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Error::config(format!("--s3-sse-kms-key-id={id:?} is no key's ID, ARN or alias")));
        }
        builder = builder.with_config(config_key("aws_sse_kms_key_id")?, id);
    }
    Ok(match flags.s3_checksum {
        Some(S3Checksum::Crc64nvme) => builder.with_checksum_algorithm(Checksum::CRC64NVME),
        Some(S3Checksum::Sha256) => builder.with_checksum_algorithm(Checksum::SHA256),
        // S3 requires a checksum for a locked object (PutObject, "Object Lock").
        None if flags.s3_object_lock.is_some() => builder.with_checksum_algorithm(Checksum::SHA256),
        Some(S3Checksum::WhenRequired) | None => builder,
    })
}

/// Returns the key with which the store encrypts and which it does not keep. Errors never contain the key.
fn customer_key(flags: &StoreFlags) -> Result<String> {
    /// Length of an AES-256 key.
    const BYTES: usize = 32;
    let Some(folder) = &flags.credentials_dir else {
        return Err(Error::config("--s3-sse=SSE-C needs --credentials-dir with the file sseCustomerKey"));
    };
    if http::plain(flags.s3_endpoint.as_ref()) && !flags.s3_endpoint.as_deref().is_some_and(loopback) {
        return Err(Error::config("--s3-sse=SSE-C needs an https endpoint: the key goes with every request"));
    }
    let key = http::required(folder, "sseCustomerKey")?;
    match BASE64_STANDARD.decode(&key) {
        Ok(bytes) if bytes.len() == BYTES => Ok(key),
        Ok(_) | Err(_) => Err(Error::config(format!(
            "the credentials' sseCustomerKey is no key: {BYTES} bytes in base64 are needed (openssl rand -base64 {BYTES})"
        ))),
    }
}

/// Whether the endpoint is on this machine.
fn loopback(endpoint: &str) -> bool {
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/');
    host.parse::<SocketAddr>().map(|at| at.ip()).or_else(|_| host.parse()).is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Returns the requested lock.
fn lock(flags: &StoreFlags) -> Result<Option<Term>> {
    match (flags.s3_object_lock, flags.s3_object_lock_days) {
        (None, None) => Ok(None),
        (Some(_), _) if flags.s3_checksum == Some(S3Checksum::WhenRequired) => {
            Err(Error::config("--s3-object-lock needs a checksum. Omit --s3-checksum, or choose another checksum"))
        }
        (Some(mode), Some(days @ 1..=MOST_DAYS)) => Ok(Some(Term { mode, seconds: days.saturating_mul(86_400) })),
        (_, Some(days)) => Err(Error::config(format!(
            "--s3-object-lock-days={days} needs --s3-object-lock, and is from 1 to {MOST_DAYS}"
        ))),
        (Some(_), None) => Err(Error::config("--s3-object-lock needs --s3-object-lock-days")),
    }
}

/// Parses a key of object_store, which hides the type of these keys.
fn config_key(name: &str) -> Result<AmazonS3ConfigKey> {
    name.parse().map_err(|error| classify("opening the store", &error))
}

/// Returns the options of objects, and the flags that a store may refuse.
fn options(flags: &StoreFlags) -> Result<Options> {
    if flags.s3_tag.len() > MOST_TAGS {
        return Err(Error::config(format!("--s3-tag is given {} times, more than {MOST_TAGS}", flags.s3_tag.len())));
    }
    let mut tags = TagSet::default();
    for tag in &flags.s3_tag {
        let (key, value) = tag
            .split_once('=')
            .filter(|(key, value)| is_tag(key, 1, 128) && is_tag(value, 0, 256))
            .ok_or_else(|| {
                Error::config(format!(
                    "--s3-tag={tag:?} is no tag: key=value of letters, digits, spaces and any of +-=._:/@, at most 128 \
                     in the key and 256 in the value"
                ))
            })?;
        tags.push(key, value);
    }
    if let Some(class) = &flags.s3_storage_class {
        storage_class(class, flags.s3_endpoint.is_some())?;
    }
    let given = [
        ("--s3-object-lock", flags.s3_object_lock.is_some()),
        ("--s3-sse", flags.s3_sse.is_some()),
        ("--s3-sse-kms-key-id", flags.s3_sse_kms_key_id.is_some()),
        ("--s3-storage-class", flags.s3_storage_class.is_some()),
        ("--s3-tag", !flags.s3_tag.is_empty()),
        ("--s3-checksum", flags.s3_checksum.is_some_and(|checksum| checksum != S3Checksum::WhenRequired)),
    ];
    let flags_given = given.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect();
    Ok(Options { tags, storage_class: flags.s3_storage_class.clone(), lock: None, flags: flags_given })
}

/// Whether this text has only S3's characters for tags (AWS: "Object key and value naming", those of all services).
fn is_tag(text: &str, least: usize, most: usize) -> bool {
    (least..=most).contains(&text.chars().count())
        && text.chars().all(|c| c.is_alphanumeric() || " +-=._:/@".contains(c))
}

/// Checks a storage class. A store that is not AWS may have classes of its own.
fn storage_class(class: &str, elsewhere: bool) -> Result<()> {
    if ARCHIVES.contains(&class) {
        return Err(Error::config(format!(
            "--s3-storage-class={class} is an archive: a restore would wait for hours. Use GLACIER_IR, and move older \
             snapshots with a lifecycle rule of the bucket"
        )));
    }
    let word = !class.is_empty()
        && class.len() <= 64
        && class.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if STORAGE_CLASSES.contains(&class) || (elsewhere && word) {
        return Ok(());
    }
    Err(Error::config(format!("--s3-storage-class={class:?} is not one of {}", STORAGE_CLASSES.join(", "))))
}

#[cfg(test)]
mod tests;
