//! Amazon S3, and everything that speaks its protocol: address, credentials, and what may be asked for beyond the bytes.
//!
//! Every request is signed, and so is its payload but for what is read back and compared. Options are checked as far
//! as they can be without the store; what the store does not take, it says at the first request, and the flag is named.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::{ClientOptions, TagSet};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::bucket::http::{self, Clients, Connector};
use super::bucket::proxy::through;
use super::bucket::{Bucket, Options, Protocol, address};
use super::location::{Place, is_host_name, needs_path_style};
use crate::contract::{LockMode, S3Checksum, S3Sse, StoreFlags};
use crate::error::{Error, Result};
use crate::store::error_class::classify;
use crate::util::clock;

/// S3's limit for one upload.
const PROTOCOL: Protocol = Protocol { scheme: "s3", most_parts: 10_000, parts_stay: false };

/// Classes that AWS reads at once.
const STORAGE_CLASSES: &[&str] =
    &["STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY"];

/// Classes that are read hours after somebody has asked for it.
const ARCHIVES: &[&str] = &["GLACIER", "DEEP_ARCHIVE"];

/// S3's limit: a hundred years.
const MOST_DAYS: u32 = 36_500;

/// S3's limit for one object.
const MOST_TAGS: usize = 10;

/// Reads the credentials and contacts nobody.
pub(super) fn open(flags: &StoreFlags, place: Place) -> Result<Bucket> {
    let lock = lock(flags)?;
    let until = lock.map(|(_, days)| locked_for(days.saturating_mul(86_400))).transpose()?;
    open_until(flags, place, lock.map(|(mode, _)| mode).zip(until))
}

/// With everything that stays locked until then.
pub(super) fn open_until(flags: &StoreFlags, place: Place, lock: Option<(LockMode, Timestamp)>) -> Result<Bucket> {
    let builder = builder(flags, &place.name)?;
    let connector = Connector::trusting(flags.s3_ca_file.as_deref(), None)?;
    let build = |builder: AmazonS3Builder, headers: &[(&str, &str)]| {
        let mut client = ClientOptions::new().with_allow_http(http::plain(flags.s3_endpoint.as_ref()));
        let headers: Option<HeaderMap> = headers
            .iter()
            .map(|(name, value)| HeaderName::try_from(*name).ok().zip(HeaderValue::try_from(*value).ok()))
            .collect();
        client = client.with_default_headers(headers.ok_or_else(|| Error::config("a request header is not valid"))?);
        let store = builder.with_client_options(client).with_http_connector(connector.clone()).build();
        store.map_err(|error| classify("opening the store", &error))
    };
    let mut clients = Clients::of(build(builder.clone(), &[])?);
    if !has_checksum(flags) {
        let unsigned = builder.clone().with_unsigned_payload(true);
        clients.unsigned = Some(Arc::new(build(unsigned, &[])?));
    }
    if let Some((mode, until)) = lock {
        let until = until.to_string();
        let headers = [("x-amz-object-lock-mode", mode.as_str()), ("x-amz-object-lock-retain-until-date", &until)];
        // On what makes an object and on nothing else: S3 knows these headers there alone.
        clients.sealer = Arc::new(build(builder, &headers)?);
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
        // In a path a colon is written so where it is signed, too.
        .with_bucket_name(bucket.replace(':', "%3A"))
        .with_skip_signature(false)
        .with_unsigned_payload(false)
        // One DELETE is understood by every store; the bulk call is not.
        .with_disable_bulk_delete(true)
        .with_retry(http::retry()))
}

/// The region that is asked for: by the flag, or by the environment as AWS's own programs read it.
fn region(flags: &StoreFlags) -> Result<String> {
    region_by(flags, |name| std::env::var(name).ok())
}

fn region_by(flags: &StoreFlags, env: impl Fn(&str) -> Option<String>) -> Result<String> {
    let named = |name: &'static str| env(name).filter(|region| !region.is_empty()).map(|region| (name, region));
    let by_flag = flags.s3_region.clone().map(|region| ("--s3-region", region));
    let (name, region) = by_flag
        .or_else(|| named("AWS_REGION"))
        .or_else(|| named("AWS_DEFAULT_REGION"))
        .unwrap_or_else(|| ("--s3-region", "us-east-1".to_owned()));
    // It becomes a part of headers and host names.
    if region.is_empty() || !region.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(Error::config(format!("{name}={region:?} is no region: letters, digits, and any of -_.")));
    }
    Ok(region)
}

/// The domain of AWS' services in this region (AWS: "Partitions").
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

/// Keys from a mounted Secret, or what the environment provides (a service account's role).
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

/// A credential that goes into a header as it is; object_store would panic at what no header takes.
fn sendable(name: &str, value: String) -> Result<String> {
    if value.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(value);
    }
    Err(Error::config(format!(
        "the credentials' {name} holds a line break, a space or another invalid character. Correct the key in the \
         Secret"
    )))
}

/// Whether the bucket is in the path. AWS wants it in the host name, and its certificate is for the names right below its
/// own, not for those below them (RFC 9525, 6.3). Servers of one's own rarely have a name for each bucket in DNS, and an
/// address has no names below it.
fn in_path(flags: &StoreFlags, bucket: &str) -> bool {
    let endpoint = flags.s3_endpoint.as_deref();
    let host =
        endpoint.and_then(|endpoint| Url::parse(endpoint).ok()).and_then(|url| url.host_str().map(str::to_owned));
    let address = host.as_ref().is_some_and(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok());
    let aws = host.is_none_or(|host| host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn"));
    address || flags.s3_force_path_style.unwrap_or(!aws || bucket.contains('.'))
}

/// Region, endpoint, and whether the bucket is in the host name or in the path.
fn reached(builder: AmazonS3Builder, flags: &StoreFlags, bucket: &str) -> Result<AmazonS3Builder> {
    // Where no flag says it, the environment of AWS's own programs may (`AmazonS3Builder::from_env`), without the bucket.
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
    // object_store knows the services of AWS' first partition alone.
    let other = domain != "amazonaws.com";
    if other && builder.get_config_value(&sts).is_none() {
        builder = builder.with_config(sts, format!("https://sts.{region}.{domain}"));
    }
    let aws = (flags.s3_endpoint.is_none() && other).then(|| format!("https://s3.{region}.{domain}"));
    let Some(endpoint) = flags.s3_endpoint.as_ref().or(aws.as_ref()) else { return Ok(builder) };
    let (scheme, host) = http::endpoint("--s3-endpoint", endpoint, false)?;
    // object_store takes the endpoint of the virtual-hosted style with the bucket in it.
    let whole = if in_path { format!("{scheme}://{host}") } else { format!("{scheme}://{bucket}.{host}") };
    Url::parse(&whole).map_err(|why| {
        Error::config(format!(
            "--s3-endpoint={endpoint:?} takes no bucket in front of its name ({why}): leave out \
             --s3-force-path-style=false (s3.forcePathStyle)"
        ))
    })?;
    // The bucket's name may be what makes an address of it.
    address::check("--s3-endpoint", &whole)?;
    // Both: what the environment says of S3 alone would win over the other.
    Ok(builder.with_config(config_key("aws_endpoint_url_s3")?, &whole).with_endpoint(whole))
}

/// Whether every request that carries data has a checksum beside it.
fn has_checksum(flags: &StoreFlags) -> bool {
    flags.s3_object_lock.is_some() || !matches!(flags.s3_checksum, None | Some(S3Checksum::WhenRequired))
}

/// Encryption and checksums: object_store puts these on every request that needs them.
fn asked_for(mut builder: AmazonS3Builder, flags: &StoreFlags) -> Result<AmazonS3Builder> {
    if flags.s3_sse == Some(S3Sse::Customer) && has_checksum(flags) {
        // S3 then wants the key once more, at the end of an upload (CompleteMultipartUpload), and object_store keeps it
        // back there.
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
        // A header's value: what is no word there would be an error without a name.
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Error::config(format!("--s3-sse-kms-key-id={id:?} is no key's ID, ARN or alias")));
        }
        builder = builder.with_config(config_key("aws_sse_kms_key_id")?, id);
    }
    Ok(match flags.s3_checksum {
        Some(S3Checksum::Crc64nvme) => builder.with_checksum_algorithm(Checksum::CRC64NVME),
        Some(S3Checksum::Sha256) => builder.with_checksum_algorithm(Checksum::SHA256),
        // S3 takes no put of a locked object without one (PutObject, "Object Lock").
        None if flags.s3_object_lock.is_some() => builder.with_checksum_algorithm(Checksum::SHA256),
        Some(S3Checksum::WhenRequired) | None => builder,
    })
}

/// The key that the store encrypts with and forgets. It never shows in an error.
fn customer_key(flags: &StoreFlags) -> Result<String> {
    /// AES-256's.
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

/// Whether nothing that is sent there leaves the machine.
fn loopback(endpoint: &str) -> bool {
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/');
    host.parse::<SocketAddr>().map(|at| at.ip()).or_else(|_| host.parse()).is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// How locks are asked for.
fn lock(flags: &StoreFlags) -> Result<Option<(LockMode, u32)>> {
    match (flags.s3_object_lock, flags.s3_object_lock_days) {
        (None, None) => Ok(None),
        (Some(_), _) if flags.s3_checksum == Some(S3Checksum::WhenRequired) => {
            Err(Error::config("--s3-object-lock needs a checksum. Omit --s3-checksum, or choose another checksum"))
        }
        (Some(mode), Some(days @ 1..=MOST_DAYS)) => Ok(Some((mode, days))),
        (_, Some(days)) => Err(Error::config(format!(
            "--s3-object-lock-days={days} needs --s3-object-lock, and is from 1 to {MOST_DAYS}"
        ))),
        (Some(_), None) => Err(Error::config("--s3-object-lock needs --s3-object-lock-days")),
    }
}

/// So many seconds from now, whole ones: stores round.
pub(super) fn locked_for(seconds: u32) -> Result<Timestamp> {
    let until = clock::later(clock::now(), seconds)?;
    Timestamp::from_second(until.as_second()).map_err(|_| Error::config("the lock's end is out of range"))
}

/// object_store hides the type of these keys, and takes their names.
fn config_key(name: &str) -> Result<AmazonS3ConfigKey> {
    name.parse().map_err(|error| classify("opening the store", &error))
}

/// What is asked for object by object, and the flags a store may refuse.
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

/// S3's characters for tags (AWS: "Object key and value naming", what all services take).
fn is_tag(text: &str, least: usize, most: usize) -> bool {
    (least..=most).contains(&text.chars().count())
        && text.chars().all(|c| c.is_alphanumeric() || " +-=._:/@".contains(c))
}

/// A store that is not AWS may have classes of its own.
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
mod tests {
    use std::fs;

    use super::*;
    use crate::contract::ExitClass;

    fn place() -> Place {
        Place { name: "bkt".to_owned(), prefix: None }
    }

    fn refused(change: impl FnOnce(&mut StoreFlags)) -> Error {
        let mut flags = StoreFlags { url: "s3://bkt/p".to_owned(), ..StoreFlags::default() };
        change(&mut flags);
        open(&flags, place()).expect_err("was taken")
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
        assert!(error.message().contains("accessKeyID") && error.message().contains("the Secret"), "{error}");
        fs::write(folder.path().join("accessKeyID"), "key\n").unwrap();
        fs::write(folder.path().join("secretAccessKey"), "\n").unwrap();
        let error = refused(|flags| flags.credentials_dir = Some(folder.path().to_owned()));
        assert!(error.message().contains("secretAccessKey"), "{error}");
        let error = refused(|flags| flags.s3_ca_file = Some(folder.path().join("accessKeyID")));
        assert_eq!(error.class(), ExitClass::Config);
        let error = refused(|flags| flags.s3_ca_file = Some(folder.path().join("none")));
        // Not the store's fault: nothing that is asked for is missing there.
        assert_eq!(error.class(), ExitClass::Config);
        assert!(error.message().contains("/none: the Secret"), "{error}");
    }

    /// What object_store would panic at, with the first request.
    #[test]
    fn an_address_that_cannot_be_is_refused_by_name() {
        for endpoint in ["https://h:90000", "https://a:b:c", "https://h:port", "http://1.2.3.4.5:9000", "https://[::1"]
        {
            for s3_force_path_style in [None, Some(false), Some(true)] {
                let error = refused(|flags| {
                    flags.s3_endpoint = Some(endpoint.to_owned());
                    flags.s3_force_path_style = s3_force_path_style;
                });
                assert_eq!(error.class(), ExitClass::Config, "{endpoint}");
                assert!(error.message().starts_with("--s3-endpoint"), "{endpoint}: {error}");
            }
        }
        for region in ["", "eu west", "eu\nwest", "é", "a/b"] {
            let error = refused(|flags| flags.s3_region = Some(region.to_owned()));
            assert!(error.message().starts_with("--s3-region"), "{region:?}: {error}");
        }
    }

    #[test]
    fn a_bucket_whose_name_is_no_host_name_needs_the_path_style() {
        for bucket in ["Old_Bucket", "tenant:bucket", &"b".repeat(64)] {
            let open = |endpoint: Option<&str>, path_style: Option<bool>| {
                let flags = StoreFlags {
                    s3_endpoint: endpoint.map(str::to_owned),
                    s3_force_path_style: path_style,
                    ..StoreFlags::default()
                };
                super::open(&flags, Place { name: bucket.to_owned(), prefix: None })
            };
            for (endpoint, path_style) in [(None, None), (Some("https://h"), Some(false)), (None, Some(false))] {
                let error = open(endpoint, path_style).unwrap_err();
                assert!(error.class() == ExitClass::Config && error.message().contains("forcePathStyle"), "{error}");
            }
            for (endpoint, path_style) in [(None, Some(true)), (Some("https://h"), None), (Some("https://h"), Some(true))] {
                open(endpoint, path_style).unwrap();
            }
        }
    }

    #[test]
    fn the_region_is_the_flags_or_the_environments() {
        let by = |flag: Option<&str>, env: &[(&str, &str)]| {
            let flags = StoreFlags { s3_region: flag.map(str::to_owned), ..StoreFlags::default() };
            region_by(&flags, |name| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        let both = [("AWS_REGION", "eu-west-1"), ("AWS_DEFAULT_REGION", "eu-west-2")];
        assert_eq!(by(Some("eu-central-1"), &both).unwrap(), "eu-central-1");
        assert_eq!(by(None, &both).unwrap(), "eu-west-1");
        assert_eq!(by(None, &[("AWS_REGION", ""), both[1]]).unwrap(), "eu-west-2");
        assert_eq!(by(None, &[]).unwrap(), "us-east-1");
        assert!(by(None, &[("AWS_REGION", "eu west")]).unwrap_err().message().starts_with("AWS_REGION="));
    }

    #[test]
    fn aws_services_are_in_the_domain_of_their_partition() {
        for (region, s3, sts) in [
            ("eu-west-1", None, None),
            (
                "cn-north-1",
                Some("https://bkt.s3.cn-north-1.amazonaws.com.cn"),
                Some("https://sts.cn-north-1.amazonaws.com.cn"),
            ),
            ("us-gov-west-1", None, None),
        ] {
            let flags = StoreFlags { s3_region: Some(region.to_owned()), ..StoreFlags::default() };
            let builder = reached(AmazonS3Builder::new(), &flags, "bkt").unwrap();
            let at = |key| builder.get_config_value(&config_key(key).unwrap());
            assert_eq!(at("aws_endpoint_url_s3").as_deref(), s3, "{region}");
            assert_eq!(at("aws_endpoint_url_sts").as_deref(), sts, "{region}");
        }
    }

    #[test]
    fn the_bucket_is_in_the_path_where_no_name_can_have_it() {
        let path = |endpoint: Option<&str>, bucket: &str| {
            let flags = StoreFlags { s3_endpoint: endpoint.map(str::to_owned), ..StoreFlags::default() };
            let said = AmazonS3Builder::new().with_config(config_key("aws_endpoint_url_s3").unwrap(), "https://other");
            let reached = endpoint.map(|_| reached(said, &flags, bucket).unwrap());
            let at = |key| reached.as_ref().and_then(|builder| builder.get_config_value(&config_key(key).unwrap()));
            assert_eq!(at("aws_endpoint_url_s3"), at("aws_endpoint_url"), "the environment wins over the flag");
            in_path(&flags, bucket)
        };
        for (endpoint, bucket, expected) in [
            (None, "bkt", false),
            (None, "backups.example.com", true),
            (Some("https://s3.example.com"), "bkt", true),
            (Some("http://s3:7070"), "bkt", true),
            (Some("https://s3.eu-west-1.amazonaws.com"), "bkt", false),
            (Some("https://s3.eu-west-1.amazonaws.com"), "a.b", true),
            (Some("https://bucket.vpce-1a2b.s3.eu-west-1.vpce.amazonaws.com"), "bkt", false),
            (Some("http://10.0.0.5:9000"), "bkt", true),
            (Some("https://[fd00::1]:9000"), "bkt", true),
        ] {
            assert_eq!(path(endpoint, bucket), expected, "{endpoint:?}, {bucket}");
        }
        for (path_style, endpoint, expected) in [
            (true, "https://s3.eu-west-1.amazonaws.com", true),
            (false, "https://oss.example.com", false),
            (false, "http://10.0.0.5:9000", true),
        ] {
            let flags = StoreFlags {
                s3_endpoint: Some(endpoint.to_owned()),
                s3_force_path_style: Some(path_style),
                ..StoreFlags::default()
            };
            assert_eq!(in_path(&flags, "bkt"), expected, "{path_style}, {endpoint}");
        }
        let flags = StoreFlags::default();
        let said =
            AmazonS3Builder::new().with_config(config_key("aws_endpoint_url").unwrap(), "https://minio.example.com");
        let error = reached(said, &flags, "bkt").unwrap_err();
        assert!(error.message().contains("--s3-endpoint"), "{error}");
    }

    /// A bucket whose own rule locks what is put into it takes nothing without a checksum, not even what is to go again.
    #[test]
    fn what_is_not_locked_itself_still_has_the_checksum_of_what_is() {
        let locked = StoreFlags {
            s3_object_lock: Some(LockMode::Governance),
            s3_object_lock_days: Some(1),
            ..StoreFlags::default()
        };
        let plain = crate::store::unlocked(&locked);
        assert_eq!((plain.s3_object_lock, plain.s3_object_lock_days), (None, None));
        assert!(has_checksum(&plain));
        assert_eq!(crate::store::unlocked(&StoreFlags::default()), StoreFlags::default());
    }

    #[test]
    fn a_credential_that_no_header_takes_is_refused_by_name() {
        for name in ["accessKeyID", "sessionToken"] {
            for value in ["canary\ncanary", "canary\u{1}", "canaryé", "canary canary"] {
                let folder = tempfile::tempdir().unwrap();
                for name in ["accessKeyID", "secretAccessKey"] {
                    fs::write(folder.path().join(name), "key").unwrap();
                }
                fs::write(folder.path().join(name), value).unwrap();
                let error = refused(|flags| flags.credentials_dir = Some(folder.path().to_owned()));
                assert_eq!(error.class(), ExitClass::Config);
                assert!(error.message().contains(name) && !error.message().contains("canary"), "{error}");
            }
        }
    }

    #[test]
    fn an_option_that_cannot_be_is_refused_by_name() {
        let class = |class: &str, endpoint: Option<&str>| {
            open(
                &StoreFlags {
                    s3_storage_class: Some(class.to_owned()),
                    s3_endpoint: endpoint.map(str::to_owned),
                    ..StoreFlags::default()
                },
                place(),
            )
            .map(|bucket| bucket.options().storage_class.clone())
        };
        assert_eq!(class("STANDARD_IA", None).unwrap().as_deref(), Some("STANDARD_IA"));
        assert_eq!(class("COLD", Some("https://h")).unwrap().as_deref(), Some("COLD"));
        for (name, endpoint) in
            [("COLD", None), ("", None), ("standard", None), ("GLACIER", Some("https://h")), ("A B", Some("https://h"))]
        {
            let error = class(name, endpoint).unwrap_err();
            assert_eq!(error.class(), ExitClass::Config);
            assert!(error.message().contains("--s3-storage-class"), "{error}");
        }
        for tag in ["", "novalue", "=v", "k=\n", "k=<", &format!("{}=v", "k".repeat(129))] {
            let error = refused(|flags| flags.s3_tag = vec![tag.to_owned()]);
            assert!(error.message().starts_with("--s3-tag"), "{error}");
        }
        let error = refused(|flags| flags.s3_tag = vec!["k=v".to_owned(); 11]);
        assert!(error.message().starts_with("--s3-tag"), "{error}");
        for sse in [None, Some(S3Sse::Aes256)] {
            let error = refused(|flags| {
                flags.s3_sse = sse;
                flags.s3_sse_kms_key_id = Some("alias/x".to_owned());
            });
            assert!(error.message().contains("--s3-sse=aws:kms"), "{error}");
        }
        let error = refused(|flags| {
            flags.s3_sse = Some(S3Sse::AwsKms);
            flags.s3_sse_kms_key_id = Some("a\nb".to_owned());
        });
        assert!(error.message().starts_with("--s3-sse-kms-key-id"), "{error}");
    }

    #[test]
    fn every_option_given_is_one_that_a_refusal_names() {
        let flags = StoreFlags {
            s3_sse: Some(S3Sse::AwsKms),
            s3_sse_kms_key_id: Some("alias/x".to_owned()),
            s3_storage_class: Some("STANDARD_IA".to_owned()),
            s3_tag: vec!["a=b=c".to_owned()],
            s3_checksum: Some(S3Checksum::Sha256),
            ..StoreFlags::default()
        };
        let bucket = open(&flags, place()).unwrap();
        assert_eq!(
            bucket.options().flags,
            ["--s3-sse", "--s3-sse-kms-key-id", "--s3-storage-class", "--s3-tag", "--s3-checksum"]
        );
        assert_eq!(bucket.options().tags.encoded(), "a=b%3Dc");
        let plain = StoreFlags { s3_checksum: Some(S3Checksum::WhenRequired), ..StoreFlags::default() };
        assert!(open(&plain, place()).unwrap().options().flags.is_empty());
    }

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["accessKeyID", "secretAccessKey", "sessionToken"] {
            fs::write(folder.path().join(name), "canary").unwrap();
        }
        let flags = StoreFlags { credentials_dir: Some(folder.path().to_owned()), ..StoreFlags::default() };
        assert!(!format!("{:?}", open(&flags, place()).unwrap()).contains("canary"));
    }
}
