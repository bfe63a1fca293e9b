//! Classifies the errors of all providers: the class and the message of an answer.
//!
//! This file alone reads status, code and region back out of object_store's texts: object_store keeps them in a type that it
//! does not export, and decides by a response's status which requests it repeats and which errors are `NotFound`,
//! `AlreadyExists` or `Precondition`. An `HttpError` with a typed source would lose both, and an answer that object_store
//! repeats has to stay a response.
//!
//! A message gets only the body's `<Code>` and the first line of its `<Message>`, bounded and without text that looks like a
//! key: bodies can hold text that must not reach a custom resource's status.

use std::error::Error as StdError;

use holdfast_contract::ExitClass;
use holdfast_contract::error::Error;
use holdfast_io::net::dns_error::NameError;
use holdfast_io::net::refusal;
use object_store::client::{HttpError, HttpErrorKind};

use super::bucket::address::NoStore;
use super::bucket::listing::{NoListing, WebPage};
pub(super) use holdfast_contract::error::beneath;

/// Answer of Go servers to plain HTTP on an HTTPS port.
const TO_HTTPS: &str = "HTTP request to an HTTPS server";

/// Converts a store's error.
pub(super) fn classify(doing: &str, error: &object_store::Error) -> Error {
    let text = error.to_string();
    let code = code(&text);
    let (class, what) = judge(error, &text, code);
    let hint = code.map(|code| match element(&text, "StorageClass") {
        Some(stored_as) => format!(" ({code}, storage class {stored_as})"),
        None => format!(" ({code})"),
    });
    if let Some(name) = beneath::<NameError>(error) {
        return name.to_error().context(doing);
    }
    let message = sentence(&text).map(|message| format!("; the store says: {message}"));
    Error::new(class, format!("{doing}: {what}{}{}", hint.unwrap_or_default(), message.unwrap_or_default()))
        .in_archive(code.is_some_and(|code| ARCHIVED.contains(&code)))
}

/// Codes of an archived object: S3's with status 403, and Azure's with 409. The object exists and is complete, and can be restored.
const ARCHIVED: &[&str] = &["InvalidObjectState", "BlobArchived", "BlobBeingRehydrated"];

/// Returns the store's message from the text: its first line, bounded, without text that looks like a key or a token.
fn sentence(text: &str) -> Option<String> {
    /// Longer than any helpful sentence.
    const MAX: usize = 240;
    let (message, _) = text.split_once("<Message>")?.1.split_once("</Message>")?;
    let references = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&#34;", "\"")];
    let plain = references
        .iter()
        .fold(message.to_owned(), |message, (name, is)| message.replace(name, is))
        .replace("&amp;", "&");
    let line = plain.trim().lines().next()?.chars().filter(|c| !c.is_control()).take(MAX).collect::<String>();
    let line = mask_keys(line.trim());
    (!line.is_empty()).then_some(line)
}

/// Masks runs of letters and digits that are as long as keys: access keys have at least 16 characters with capitals and digits,
/// and no word is as long as a hash or a token.
fn mask_keys(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let is_key = |run: &str| {
        let mixed = run.contains(|c: char| c.is_ascii_digit()) && run.contains(|c: char| c.is_ascii_uppercase());
        // A path consists of separate words.
        run.split('/').any(|part| part.len() >= 32) || (run.len() >= 16 && mixed)
    };
    let (mut masked, mut rest) = (String::new(), text);
    while let Some(begins) = rest.find(is_part) {
        let (before, from) = rest.split_at(begins);
        let (run, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        masked.push_str(before);
        masked.push_str(if is_key(run) { "***" } else { run });
        rest = after;
    }
    masked + rest
}

/// Error of a bucket that requires a checksum, as a default retention does.
const WANTS_CHECKSUM: &str = "the bucket takes no object without a checksum, as a bucket with a default retention does: \
                              set checksum: SHA256 (--s3-checksum=sha256)";

/// Whether the refusal is about a missing checksum: stores have several codes for this, and name the headers in the message.
fn wants_checksum(text: &str) -> bool {
    let message = sentence(text).unwrap_or_default().to_ascii_lowercase();
    status(text) == Some(400) && (message.contains("content-md5") || message.contains("x-amz-checksum"))
}

/// Describes the bucket's region, if the store names it.
fn elsewhere(text: &str) -> String {
    match named_region(text) {
        Some(region) => format!("the bucket is in the region {region}: set s3.region (--s3-region) to {region}"),
        None => "the bucket is in another region, or behind another endpoint".to_owned(),
    }
}

/// Returns the region that a refusal names.
fn named_region(text: &str) -> Option<&str> {
    let (region, _) = text.split_once("<Region>")?.1.split_once("</Region>")?;
    let is_one = (1..=64).contains(&region.len()) && region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_one.then_some(region)
}

/// Like [`classify`], for requests with special options: a refusal names these flags.
pub(super) fn with_options(doing: &str, error: &object_store::Error, flags: &[&'static str]) -> Error {
    if let Some(foreign) = foreign(doing, error) {
        return foreign;
    }
    let judged = classify(doing, error);
    // A transient error is not about the options.
    if judged.class() == ExitClass::Transient {
        return judged;
    }
    let text = error.to_string();
    if wants_checksum(&text) {
        return judged;
    }
    // A request to the wrong port is not about the options.
    let status = status(&text).filter(|_| !text.contains(TO_HTTPS));
    let Some(named) = refused_options(code(&text), status, flags) else { return judged };
    // Without a code the cause is a guess, and the agent must not advise to drop an encryption on a guess.
    let sure = if code(&text).is_some() { "the store does not support" } else { "perhaps the store does not support" };
    Error::config(format!("{}: {sure} {named}. Omit the flag, or use another store", judged.message()))
}

/// Returns the flags that the store refuses with this answer.
fn refused_options(code: Option<&str>, status: Option<u16>, flags: &[&'static str]) -> Option<String> {
    let own = match code {
        Some("InvalidStorageClass") => &["--s3-storage-class"][..],
        Some(code) if code.starts_with("KMS") => &["--s3-sse-kms-key-id", "--s3-sse"],
        Some("InvalidEncryptionAlgorithmError" | "InvalidEncryptionMethod") => &["--s3-sse"],
        Some("InvalidTag") => &["--s3-tag"],
        // Only the message in the store's own words names the cause: one of the given flags.
        Some("NotImplemented" | "InvalidArgument" | "InvalidRequest" | "InvalidDigest" | "UnsupportedOperation") => {
            flags
        }
        None if matches!(status, Some(400 | 501)) => flags,
        _ => return None,
    };
    let named: Vec<_> = own.iter().copied().filter(|flag| flags.contains(flag)).collect();
    (!named.is_empty()).then(|| named.join(" or "))
}

/// Whether the code is more exact than the status, which object_store uses: Azure has one status for an existing object and for
/// other errors, and all providers have one for a missing object and a missing bucket.
pub(super) fn says_more(error: &object_store::Error) -> bool {
    code(&error.to_string()).and_then(by_code).is_some()
}

/// Whether the store reports a missing object, and only that.
pub(super) fn is_absent(error: &object_store::Error) -> bool {
    let missing = matches!(error, object_store::Error::NotFound { .. });
    missing && code(&error.to_string()).is_some_and(|code| by_code(code).is_none())
}

/// Returns the error of a 404 that no store has sent: each store has a code for a missing object, and a proxy without a backend
/// has its own page (`404 page not found`). Unknown is not absent (I18). Not for answers to HEAD, which have no body.
pub(super) fn foreign(doing: &str, error: &object_store::Error) -> Option<Error> {
    let missing = matches!(error, object_store::Error::NotFound { .. });
    (missing && code(&error.to_string()).is_none()).then(|| {
        Error::transient(format!(
            "{doing}: the answer has status 404 and no error code of a store. Check the endpoint, and every proxy and \
             load balancer before the store"
        ))
    })
}

/// Whether object_store had sent the request before this answer: the first one may have been carried out.
pub(super) fn repeated(error: &object_store::Error) -> bool {
    error.to_string().contains(" retries, max_retries: ")
}

/// Whether an answer did not arrive in time.
pub(super) fn timed_out(error: &object_store::Error) -> bool {
    transport(error) == Some(HttpErrorKind::Timeout)
}

fn judge(error: &object_store::Error, text: &str, code: Option<&str>) -> (ExitClass, String) {
    use object_store::Error as E;
    if let Some(judged) = tls(error).and_then(by_tls) {
        return judged;
    }
    if let Some(elsewhere) = beneath::<NoStore>(error) {
        return (ExitClass::Config, elsewhere.to_string());
    }
    if let Some(none) = beneath::<NoListing>(error) {
        return (ExitClass::Transient, none.to_string());
    }
    if let Some(page) = beneath::<WebPage>(error) {
        return (ExitClass::Transient, page.to_string());
    }
    if let Some(judged) = identity(error, text, code) {
        return judged;
    }
    if matches!(
        code,
        Some(
            "AuthorizationHeaderMalformed"
                | "PermanentRedirect"
                | "TemporaryRedirect"
                | "IllegalLocationConstraintException"
        )
    ) {
        return (ExitClass::Config, elsewhere(text));
    }
    if let Some(judged) = code.and_then(by_code) {
        return judged;
    }
    // After the known codes: for a wrong checksum the store names the same headers.
    if wants_checksum(text) {
        return (ExitClass::Config, WANTS_CHECKSUM.to_owned());
    }
    match error {
        E::NotFound { .. } => (ExitClass::NotFound, "the store has no such object".to_owned()),
        E::PermissionDenied { .. } => (
            ExitClass::Denied,
            "the store does not allow this with these credentials: check the keys, and the policy on this bucket and \
             prefix"
                .to_owned(),
        ),
        E::Unauthenticated { .. } => (ExitClass::Denied, "the store does not know these credentials".to_owned()),
        E::AlreadyExists { .. } => (ExitClass::Transient, "an object of this name exists already".to_owned()),
        E::Precondition { .. } | E::NotModified { .. } => {
            (ExitClass::Corrupt, "the object was replaced during the read".to_owned())
        }
        E::InvalidPath { .. } => (
            ExitClass::Config,
            format!("{}: remove that object, or choose a prefix below which only Holdfast writes", first_line(text)),
        ),
        E::UnknownConfigurationKey { .. } => (ExitClass::Config, first_line(text)),
        // All other errors hold an HTTP status or a transport error, or are unknown.
        _ => match (status(text), transport(error)) {
            (Some(301 | 302 | 307 | 308), _) => (ExitClass::Config, elsewhere(text)),
            (Some(401 | 403), _) => (ExitClass::Denied, "the store does not know these credentials".to_owned()),
            (Some(501), _) => (ExitClass::Config, "the store does not know this request".to_owned()),
            (Some(413), _) => (ExitClass::Config, TOO_LARGE.to_owned()),
            (Some(507), _) => (ExitClass::Full, "the store has no space left".to_owned()),
            (Some(400), _) if text.contains(TO_HTTPS) => {
                (ExitClass::Config, "the endpoint speaks https: begin the endpoint with https://".to_owned())
            }
            (Some(status @ 400..=499), _) if status != 408 && status != 429 => {
                let region = named_region(text).filter(|_| code.is_none());
                let region = region.map(|region| format!(", and names {region} as the bucket's region"));
                let what = format!("the store refuses the request with status {status}{}", region.unwrap_or_default());
                (ExitClass::Config, what)
            }
            (Some(status), _) => (ExitClass::Transient, format!("the store answers with status {status}")),
            (None, Some(kind)) => transport_text(kind, error),
            (None, None) if text.contains("incorrectly configured region") => {
                (ExitClass::Config, "the bucket is in another region, or behind another endpoint".to_owned())
            }
            (None, None) => (ExitClass::Transient, first_line(text)),
        },
    }
}

/// Error of a proxy with a limit, or of a store with a smaller limit than S3.
const TOO_LARGE: &str = "the request is larger than the store, or a proxy before the store, accepts. The agent sends parts of \
                         8 MiB and more: raise the body limit of that proxy (nginx: client_max_body_size)";

/// Sources of credentials without --credentials-dir: addresses of the node, and the providers' token services.
const IDENTITY_SERVICES: &[&str] = &[
    "://169.254.169.254",
    "://169.254.170.2",
    "://metadata.google.internal",
    "://metadata/",
    "://login.microsoftonline.",
    "token request",
    "AssumeRoleWithWebIdentity",
];

/// Part of every answer of AWS's token service (STS API reference).
const STS_ANSWERS: &str = "sts.amazonaws.com/doc/";

/// Text of object_store for a token request; it redacts no other POST to a store.
const TOKEN_POST: &str = "performing POST REDACTED";

/// Classifies errors of the environment's identity.
fn identity(error: &object_store::Error, text: &str, code: Option<&str>) -> Option<(ExitClass, String)> {
    let line = first_line(text);
    if line.contains("token file") {
        return Some((
            ExitClass::Config,
            format!(
                "the token of the workload identity cannot be read: mount the token file that the environment names \
                 (AWS_WEB_IDENTITY_TOKEN_FILE, AZURE_FEDERATED_TOKEN_FILE), or give --credentials-dir ({})",
                line.rsplit("Failed to read ").next().unwrap_or(&line)
            ),
        ));
    }
    // object_store redacts the address of a request with a token.
    let tokens = text.contains(STS_ANSWERS) || line.contains(TOKEN_POST);
    if !tokens && !IDENTITY_SERVICES.iter().any(|service| line.contains(service)) {
        return None;
    }
    // Transient failures: by status (Azure: "Managed identities, retry guidance"), or by AWS's code with a 400.
    let passes = |status: u16, code: Option<&str>| {
        matches!(status, 408 | 410 | 429)
            || matches!(
                code,
                Some("Throttling" | "ThrottlingException" | "RequestLimitExceeded" | "IDPCommunicationError")
            )
    };
    let remedy = "give --credentials-dir, or bind an identity to the service account";
    Some(match (status(text), transport(error)) {
        (Some(status @ 400..=499), _) if !passes(status, code) => {
            (ExitClass::Denied, format!("the environment's identity service gives no credentials: {remedy}"))
        }
        // In a Pod's first seconds the service may only be slow or busy.
        (_, Some(_)) | (Some(_), None) => {
            (ExitClass::Transient, format!("the environment's identity service does not answer: {remedy}"))
        }
        (None, None) => (ExitClass::Denied, format!("the environment has no usable identity: {remedy}")),
    })
}

/// Classifies by error code, where that is more exact than the status. The providers' codes differ, except that S3's and
/// Google's share codes with the same meaning.
fn by_code(code: &str) -> Option<(ExitClass, String)> {
    let (class, what) = match code {
        // Completed with a lost answer; or another run took the upload for a dead run's and removed it.
        "NoSuchUpload" => (ExitClass::Transient, "the store does not know this upload any more"),
        "NoSuchBucket" => (ExitClass::NotFound, "the bucket does not exist"),
        "ContainerNotFound" => (ExitClass::NotFound, "the container does not exist"),
        // The second is versitygw's, with status 404.
        "InvalidAccessKeyId" | "XAdminUserNotFound" => (ExitClass::Denied, "the store does not know this access key"),
        "AccessDenied" => (
            ExitClass::Denied,
            "the store does not allow this with these credentials: check the keys, and the policy on this bucket and prefix",
        ),
        "SignatureDoesNotMatch" => {
            let what = "the store computes another signature: the secret key is not that of this access key, the region is wrong, \
                        or a proxy before the store changes the request (its Host, its path or a header)";
            (ExitClass::Denied, what)
        }
        // Azure's only code for a wrong key, a wrong or expired signature, and a wrong clock.
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            (ExitClass::Denied, "the store does not know these credentials, or they have expired")
        }
        "AuthorizationFailure"
        | "AuthorizationPermissionMismatch"
        | "AuthorizationProtocolMismatch"
        | "AuthorizationResourceTypeMismatch"
        | "AuthorizationServiceMismatch"
        | "AuthorizationSourceIPMismatch"
        | "InsufficientAccountPermissions"
        | "KeyBasedAuthenticationNotPermitted"
        | "UnauthorizedBlobOverwrite"
        | "AuthenticationRequired" => {
            (ExitClass::Denied, "the store does not allow this with these credentials: check the rights on this place")
        }
        "AccountIsDisabled" | "UserProjectAccountProblem" | "AccountProblem" => {
            (ExitClass::Denied, "the account is disabled: ask the provider for the cause")
        }
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
            (ExitClass::Denied, "the session token has expired or is invalid")
        }
        "RequestTimeTooSkewed" => (ExitClass::Transient, "this node's clock and the store's differ too much"),
        "InvalidBucketName" | "InvalidResourceName" => (ExitClass::Config, "the store refuses this name"),
        "NotImplemented" => (ExitClass::Config, "the store does not know this request"),
        "UserProjectMissing" => {
            (ExitClass::Config, "the bucket needs Requester Pays, which Holdfast does not support: use another bucket")
        }
        "BlobImmutableDueToPolicy" | "ObjectLocked" | "RetentionPolicyNotMet" => {
            (ExitClass::Denied, "the object is held by a retention rule")
        }
        // The third is MinIO's.
        "BadDigest" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch" | "Md5Mismatch" | "Crc64Mismatch" => {
            (ExitClass::Transient, "bytes were changed on their way to the store")
        }
        // Both with status 400.
        "RequestTimeout" | "IncompleteBody" => {
            (ExitClass::Transient, "the request did not reach the store whole, or not in time")
        }
        // Codes of AWS's key service about itself; other codes are about the key. Some have status 400.
        "KMS.ThrottlingException"
        | "KMS.InternalException"
        | "KMS.InternalFailureException"
        | "KMS.KMSInternalException"
        | "KMS.DependencyTimeoutException"
        | "KMS.KeyUnavailableException" => (ExitClass::Transient, "the store's key service is busy or broken"),
        code if ARCHIVED.contains(&code) => {
            (ExitClass::Config, "the object is archived: restore the object in the store first, then try again")
        }
        "ContainerBeingDeleted" | "ContainerDisabled" | "AccountBeingCreated" | "OperationAborted" => {
            (ExitClass::Transient, "the bucket, container or account is being created or removed")
        }
        "QuotaExceeded"
        | "XMinioStorageFull"
        | "XMinioAdminBucketQuotaExceeded"
        | "InsufficientCapacity"
        | "StorageFull" => (ExitClass::Full, "the store has no space left"),
        "SlowDown" | "RequestLimitExceeded" | "ThrottlingException" | "ServiceUnavailable" | "ServerBusy" => {
            (ExitClass::Transient, "the store asks to slow down")
        }
        _ => return None,
    };
    Some((class, what.to_owned()))
}

/// Returns the `<Code>` of an error body: all three providers have it.
fn code(text: &str) -> Option<&str> {
    element(text, "Code")
}

/// Returns an element of an error body, if it is a single word.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (word, _) = rest.split_once(&format!("</{name}>"))?;
    (word.len() <= 64 && word.chars().all(|c| c.is_ascii_alphanumeric() || ['.', '_'].contains(&c))).then_some(word)
}

/// Returns the HTTP status from object_store's text.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Returns the transport error beneath, if any.
fn transport(error: &object_store::Error) -> Option<HttpErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        source = error.source();
    }
    None
}

fn transport_text(kind: HttpErrorKind, error: &object_store::Error) -> (ExitClass, String) {
    // The last source is the operating system's or the TLS library's own error.
    let mut deepest: &dyn StdError = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let word = first_line(&deepest.to_string());
    if word.contains("invalid HTTP") {
        let what = format!("the endpoint does not speak HTTP ({word}): use https://, or correct the endpoint");
        return (ExitClass::Config, what);
    }
    let what = match kind {
        HttpErrorKind::Connect => "the store cannot be reached",
        HttpErrorKind::Timeout => "the store does not answer in time",
        HttpErrorKind::Request | HttpErrorKind::Interrupted => {
            "the connection to the store broke; if the endpoint speaks https, begin the endpoint with https://"
        }
        HttpErrorKind::Unknown | HttpErrorKind::Decode | _ => "the store's answer cannot be used",
    };
    (ExitClass::Transient, format!("{what} ({word})"))
}

/// Returns the TLS library's error beneath, if any.
pub(super) fn tls<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    beneath(error)
}

/// Classifies TLS errors that a repetition does not change.
fn by_tls(error: &rustls::Error) -> Option<(ExitClass, String)> {
    use rustls::Error as E;
    let what = match error {
        E::InvalidCertificate(why) => {
            let why = refusal::describe(why, "a CA that is trusted for stores", "this endpoint");
            return Some((ExitClass::Config, format!("the store's certificate is not accepted: {why}")));
        }
        E::InvalidMessage(_) => "the endpoint does not speak TLS: correct the endpoint, or use http://",
        E::AlertReceived(_) | E::PeerIncompatible(_) | E::NoApplicationProtocol => {
            "the store refuses the TLS handshake"
        }
        _ => return None,
    };
    Some((ExitClass::Config, format!("{what} ({})", first_line(&error.to_string()))))
}

fn first_line(text: &str) -> String {
    /// Longer than any helpful sentence, shorter than an unhelpful body.
    const MAX: usize = 300;
    text.lines().next().unwrap_or_default().chars().take(MAX).collect()
}

#[cfg(test)]
mod tests;
