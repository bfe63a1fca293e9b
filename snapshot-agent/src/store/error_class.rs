//! What a store's answer means for the run: every provider's errors to classes and sentences.
//!
//! object_store keeps the status and body of an answer only as text, so that text is read here and nowhere else. Only
//! the `<Code>` of a body reaches a message: bodies can hold what should not be in a custom resource's status.

use std::error::Error as StdError;

use object_store::client::{HttpError, HttpErrorKind};

use super::bucket::address::NoStore;
use super::bucket::listing::NoListing;
use crate::contract::ExitClass;
use crate::error::Error;
pub(super) use crate::error::beneath;
use crate::net::dns_error::NameError;
use crate::net::refusal;

/// What servers of Go's say to who speaks http where https is spoken.
const TO_HTTPS: &str = "HTTP request to an HTTPS server";

/// Turns a store's error into ours.
pub(super) fn classify(doing: &str, error: &object_store::Error) -> Error {
    let text = error.to_string();
    let code = code(&text);
    let (class, what) = judge(error, &text, code);
    let told = code.map(|code| match element(&text, "StorageClass") {
        Some(stored_as) => format!(" ({code}, storage class {stored_as})"),
        None => format!(" ({code})"),
    });
    if let Some(name) = beneath::<NameError>(error) {
        return name.to_error().context(doing);
    }
    Error::new(class, format!("{doing}: {what}{}", told.unwrap_or_default()))
}

/// As [`classify`], for requests that asked for something special with these flags: a refusal names them.
pub(super) fn with_options(doing: &str, error: &object_store::Error, flags: &[&'static str]) -> Error {
    if let Some(foreign) = foreign(doing, error) {
        return foreign;
    }
    let judged = classify(doing, error);
    // What passes by itself is no word on options.
    if judged.class() == ExitClass::Transient {
        return judged;
    }
    let text = error.to_string();
    // What was sent to the wrong port is no word on options.
    let status = status(&text).filter(|_| !text.contains(TO_HTTPS));
    let Some(named) = refused_options(code(&text), status, flags) else { return judged };
    // Without a code it is a guess, and dropping an encryption is no advice to give on a guess.
    let sure = if code(&text).is_some() { "the store does not support" } else { "perhaps the store does not support" };
    Error::config(format!("{}: {sure} {named}. Omit the flag, or use another store", judged.message()))
}

/// Which of the flags given a store refuses with this answer.
fn refused_options(code: Option<&str>, status: Option<u16>, flags: &[&'static str]) -> Option<String> {
    let own = match code {
        Some("InvalidStorageClass") => &["--s3-storage-class"][..],
        Some(code) if code.starts_with("KMS") => &["--s3-sse-kms-key-id", "--s3-sse"],
        Some("InvalidEncryptionAlgorithmError" | "InvalidEncryptionMethod") => &["--s3-sse"],
        Some("InvalidTag") => &["--s3-tag"],
        // What these are about is only in the message, in the store's own words: one of those that were given.
        Some("NotImplemented" | "InvalidArgument" | "InvalidRequest" | "InvalidDigest" | "UnsupportedOperation") => {
            flags
        }
        None if matches!(status, Some(400 | 501)) => flags,
        _ => return None,
    };
    let named: Vec<_> = own.iter().copied().filter(|flag| flags.contains(flag)).collect();
    (!named.is_empty()).then(|| named.join(" or "))
}

/// Whether an answer says more than the status that object_store goes by: Azure has one for "it is there already" and for
/// others, and all of them have one for a missing object and a missing bucket.
pub(super) fn says_more(error: &object_store::Error) -> bool {
    code(&error.to_string()).and_then(by_code).is_some()
}

/// Whether a store says that an object is missing, and nothing but that.
pub(super) fn is_absent(error: &object_store::Error) -> bool {
    let missing = matches!(error, object_store::Error::NotFound { .. });
    missing && code(&error.to_string()).is_some_and(|code| by_code(code).is_none())
}

/// What it means that something is missing and no store says so: each has a code for that, and what stands before one that
/// is not there has a page of its own (a proxy without a backend: `404 page not found`). Unknown is not absent (I18). Not for
/// answers to HEAD, which have no body to tell by.
pub(super) fn foreign(doing: &str, error: &object_store::Error) -> Option<Error> {
    let missing = matches!(error, object_store::Error::NotFound { .. });
    (missing && code(&error.to_string()).is_none()).then(|| {
        Error::transient(format!(
            "{doing}: the answer has status 404 and no error code of a store. Check the endpoint, and every proxy and \
             load balancer before the store"
        ))
    })
}

/// Whether a request had been sent before, when this was answered to it: that time may have done what was asked.
pub(super) fn repeated(error: &object_store::Error) -> bool {
    error.to_string().contains(" retries, max_retries: ")
}

/// Whether an answer did not come in time.
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
    if let Some(judged) = identity(error, text, code).or_else(|| code.and_then(by_code)) {
        return judged;
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
        // Everything else carries an HTTP status or a transport error inside, or is new to us.
        _ => match (status(text), transport(error)) {
            (Some(301 | 302 | 307 | 308), _) => {
                (ExitClass::Config, "the bucket is in another region, or behind another endpoint".to_owned())
            }
            (Some(401 | 403), _) => (ExitClass::Denied, "the store does not know these credentials".to_owned()),
            (Some(501), _) => (ExitClass::Config, "the store does not know this request".to_owned()),
            (Some(507), _) => (ExitClass::Full, "the store has no space left".to_owned()),
            (Some(400), _) if text.contains(TO_HTTPS) => {
                (ExitClass::Config, "the endpoint speaks https: begin the endpoint with https://".to_owned())
            }
            (Some(status @ 400..=499), _) if status != 408 && status != 429 => {
                (ExitClass::Config, format!("the store refuses the request with status {status}"))
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

/// Where credentials come from when none are given: addresses of the node's own, and the providers' token services.
const IDENTITY_SERVICES: &[&str] = &[
    "://169.254.169.254",
    "://169.254.170.2",
    "://metadata.google.internal",
    "://metadata/",
    "://login.microsoftonline.",
    "token request",
    "AssumeRoleWithWebIdentity",
];

/// In every answer of AWS's token service (STS API reference).
const STS_ANSWERS: &str = "sts.amazonaws.com/doc/";

/// How object_store tells of a request for a token; to stores themselves it posts nothing that it keeps back.
const TOKEN_POST: &str = "performing POST REDACTED";

/// Errors of the identity that the environment was to provide.
fn identity(error: &object_store::Error, text: &str, code: Option<&str>) -> Option<(ExitClass, String)> {
    let line = first_line(text);
    // object_store keeps the address back of a request that carries a token in it.
    let tokens = text.contains(STS_ANSWERS) || line.contains(TOKEN_POST);
    if !tokens && !IDENTITY_SERVICES.iter().any(|service| line.contains(service)) {
        return None;
    }
    // Of a trouble that passes: by its status (Azure: "Managed identities, retry guidance"), or by AWS's word with a 400.
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
        // It may only be slow in a Pod's first seconds, or busy.
        (_, Some(_)) | (Some(_), None) => {
            (ExitClass::Transient, format!("the environment's identity service does not answer: {remedy}"))
        }
        (None, None) => (ExitClass::Denied, format!("the environment has no usable identity: {remedy}")),
    })
}

/// What error codes say more exactly than the status does. The providers' codes are distinct, and S3's and Google's
/// the same where they mean the same.
fn by_code(code: &str) -> Option<(ExitClass, String)> {
    let (class, what) = match code {
        // It was completed, and the answer lost; or another run has taken back what it took for a dead one's.
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
            (ExitClass::Denied, "the secret key does not belong to this access key, or the region is wrong")
        }
        // Azure's one word for a wrong key, a wrong or expired signature, and a clock that is off.
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
        "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException" => {
            (ExitClass::Config, "the bucket is in another region")
        }
        "InvalidBucketName" | "InvalidResourceName" => (ExitClass::Config, "the store refuses this name"),
        "NotImplemented" => (ExitClass::Config, "the store does not know this request"),
        "UserProjectMissing" => {
            (ExitClass::Config, "the bucket needs Requester Pays, which Holdfast does not support: use another bucket")
        }
        "BlobImmutableDueToPolicy" | "ObjectLocked" | "RetentionPolicyNotMet" => {
            (ExitClass::Denied, "the object is held by a retention rule")
        }
        "BadDigest" | "XAmzContentSHA256Mismatch" | "Md5Mismatch" | "Crc64Mismatch" => {
            (ExitClass::Transient, "bytes were changed on their way to the store")
        }
        // Both with status 400.
        "RequestTimeout" | "IncompleteBody" => {
            (ExitClass::Transient, "the request did not reach the store whole, or not in time")
        }
        // What AWS's key service says of itself; of a key it says others. Some of them come with status 400.
        "KMS.ThrottlingException"
        | "KMS.InternalException"
        | "KMS.InternalFailureException"
        | "KMS.KMSInternalException"
        | "KMS.DependencyTimeoutException"
        | "KMS.KeyUnavailableException" => (ExitClass::Transient, "the store's key service is busy or broken"),
        // S3's, with status 403, and Azure's, with 409. The object is there, whole, and may be read one day.
        "InvalidObjectState" | "BlobArchived" | "BlobBeingRehydrated" => {
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

/// The `<Code>` of an error body, if the text holds one: all three providers have it.
fn code(text: &str) -> Option<&str> {
    element(text, "Code")
}

/// An element of an error body, if the text holds it and it is one word.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (word, _) = rest.split_once(&format!("</{name}>"))?;
    (word.len() <= 64 && word.chars().all(|c| c.is_ascii_alphanumeric() || ['.', '_'].contains(&c))).then_some(word)
}

/// The HTTP status in object_store's text.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// The transport error underneath, if there is one.
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
    // The last source is the operating system's or the TLS library's own word.
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

/// The TLS library's error underneath, if there is one.
pub(super) fn tls<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    beneath(error)
}

/// What TLS will say again at the next try too.
fn by_tls(error: &rustls::Error) -> Option<(ExitClass, String)> {
    use rustls::Error as E;
    let what = match error {
        E::InvalidCertificate(why) => {
            let why = refusal::of(why, "a CA that is trusted for stores", "this endpoint");
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
    /// Longer than any sentence that helps, shorter than a body that does not.
    const MAX: usize = 300;
    text.lines().next().unwrap_or_default().chars().take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn generic(text: &str) -> Error {
        classify("putting", &object_store::Error::Generic { store: "S3", source: text.to_owned().into() })
    }

    #[test]
    fn codes_and_statuses_are_read_from_the_text() {
        let class = |text: &str| generic(text).class();
        assert_eq!(class("Server returned non-2xx status code: 503 Service Unavailable: x"), ExitClass::Transient);
        assert_eq!(class("Server returned non-2xx status code: 429 Too Many Requests"), ExitClass::Transient);
        assert_eq!(class("Server returned non-2xx status code: 400 Bad Request: "), ExitClass::Config);
        assert_eq!(class("Server returned non-2xx status code: 507 Insufficient Storage: "), ExitClass::Full);
        assert_eq!(class("status code: 400 Bad Request: <Error><Code>ExpiredToken</Code>"), ExitClass::Denied);
        assert_eq!(class("status code: 404 Not Found: <Code>NoSuchBucket</Code>"), ExitClass::NotFound);
        assert_eq!(class("something new"), ExitClass::Transient);
        assert_eq!(class("status code: 401 Unauthorized: <Code>AuthenticationRequired</Code>"), ExitClass::Denied);
        assert_eq!(class("status code: 501 Not Implemented: "), ExitClass::Config);
    }

    /// AWS's token service and the nodes' own, which object_store names without the address, or with it.
    #[test]
    fn an_identity_that_is_late_is_not_refused() {
        let sts = |status: u16, code: &str| {
            format!(
                "Error performing POST REDACTED in 1s - Server returned non-2xx status code: {status} X: <ErrorResponse \
                 xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Code>{code}</Code></Error></ErrorResponse>"
            )
        };
        let node = |status: u16| {
            format!(
                "Error performing GET http://169.254.169.254/metadata/identity in 1s - Server returned non-2xx status \
                 code: {status} X: canary"
            )
        };
        for (text, wanted) in [
            (sts(400, "Throttling"), ExitClass::Transient),
            (sts(400, "IDPCommunicationError"), ExitClass::Transient),
            (sts(403, "AccessDenied"), ExitClass::Denied),
            (sts(400, "InvalidIdentityToken"), ExitClass::Denied),
            (node(408), ExitClass::Transient),
            (node(410), ExitClass::Transient),
            (node(429), ExitClass::Transient),
            (node(404), ExitClass::Denied),
        ] {
            let error = generic(&text);
            assert_eq!(error.class(), wanted, "{text}: {error}");
            let says = ["identity service", "service account"];
            assert!(says.iter().all(|word| error.message().contains(word)), "{text}: {error}");
            assert!(!error.message().contains("canary"), "{error}");
        }
    }

    /// Bodies as Google's documents show them ("XML API error responses") and as Azurite answers.
    #[test]
    fn every_providers_codes_are_known() {
        for (status, code, wanted) in [
            (404, "NoSuchBucket", ExitClass::NotFound),
            (404, "ContainerNotFound", ExitClass::NotFound),
            (403, "AuthenticationFailed", ExitClass::Denied),
            (403, "AuthorizationFailure", ExitClass::Denied),
            (409, "ContainerBeingDeleted", ExitClass::Transient),
            (409, "BlobImmutableDueToPolicy", ExitClass::Denied),
            (401, "AuthenticationRequired", ExitClass::Denied),
            (400, "UserProjectMissing", ExitClass::Config),
            (400, "Md5Mismatch", ExitClass::Transient),
            (400, "RequestTimeout", ExitClass::Transient),
            (400, "IncompleteBody", ExitClass::Transient),
            (400, "KMS.ThrottlingException", ExitClass::Transient),
            (400, "KMS.InternalException", ExitClass::Transient),
            (500, "KMS.KeyUnavailableException", ExitClass::Transient),
            (400, "KMS.DisabledException", ExitClass::Config),
            (400, "XMinioAdminBucketQuotaExceeded", ExitClass::Full),
            (403, "AccessDenied", ExitClass::Denied),
            (503, "ServerBusy", ExitClass::Transient),
        ] {
            let error = generic(&format!(
                "Server returned non-2xx status code: {status} X: <?xml version='1.0'?><Error><Code>{code}</Code>\
                 <Message>canary</Message></Error>"
            ));
            assert_eq!(error.class(), wanted, "{code}");
            assert!(error.message().ends_with(&format!("({code})")), "{error}");
            assert!(!error.message().contains("canary"), "{error}");
        }
        let conflict = |code: &str| object_store::Error::AlreadyExists {
            path: "x".to_owned(),
            source: format!("status code: 409 Conflict: <Code>{code}</Code>").into(),
        };
        assert!(says_more(&conflict("ContainerBeingDeleted")) && !says_more(&conflict("BlobAlreadyExists")));
        assert!(says_more(&conflict("BlobArchived")));
    }

    /// It is neither gone nor damaged, and no key opens it.
    #[test]
    fn what_is_archived_is_told_as_that() {
        let (path, body) = ("x".to_owned(), "<Message>canary</Message><StorageClass>DEEP_ARCHIVE</StorageClass>");
        let source = format!("status code: 403 Forbidden: <Error><Code>InvalidObjectState</Code>{body}</Error>").into();
        let s3 = classify("reading", &object_store::Error::PermissionDenied { path: path.clone(), source });
        assert!(s3.message().ends_with("(InvalidObjectState, storage class DEEP_ARCHIVE)"), "{s3}");
        let azure = ["BlobArchived", "BlobBeingRehydrated"].map(|code| {
            let source = format!("status code: 409 Conflict: <Code>{code}</Code>").into();
            classify("reading", &object_store::Error::AlreadyExists { path: path.clone(), source })
        });
        for error in azure.iter().chain([&s3]) {
            assert_eq!(error.class(), ExitClass::Config, "{error}");
            assert!(error.message().contains("the object is archived: restore the object"), "{error}");
            assert!(!["keys", "already", "canary"].iter().any(|word| error.message().contains(word)), "{error}");
        }
    }

    #[test]
    fn what_was_asked_again_is_known() {
        let told = |text: &str| repeated(&object_store::Error::Generic { store: "S3", source: text.into() });
        let (asking, no) = ("Error performing PUT http://h/x in 1ms", " - Server returned non-2xx status code: 403 ");
        assert!(told(&format!("{asking}, after 1 retries, max_retries: 10, retry_timeout: 15s {no}")));
        assert!(!told(&format!("{asking}{no}")));
    }

    #[test]
    fn a_missing_identity_is_no_fault_of_the_stores() {
        let asking = "Error performing PUT http://169.254.169.254/latest/api/token in 1ms - Server returned non-2xx ";
        let error = generic(&format!("{asking}status code: 403 Forbidden: "));
        assert_eq!(error.class(), ExitClass::Denied);
        assert!(error.message().contains("--credentials-dir"), "{error}");
        assert_eq!(generic(&format!("{asking}status code: 500 X: ")).class(), ExitClass::Transient);
        let body = generic("status code: 400 X: \n<Code>X</Code><Message>http://169.254.169.254</Message>");
        assert!(!body.message().contains("identity"), "{body}");
    }

    #[test]
    fn a_refused_option_is_named() {
        let given = ["--s3-sse", "--s3-sse-kms-key-id", "--s3-storage-class", "--s3-tag", "--s3-checksum"];
        let says = |text: &str, flags: &[&'static str]| {
            with_options(
                "putting",
                &object_store::Error::Generic { store: "S3", source: text.to_owned().into() },
                flags,
            )
        };
        for (code, flag) in [
            ("InvalidStorageClass", "not support --s3-storage-class."),
            ("KMS.NotFoundException", "not support --s3-sse-kms-key-id or --s3-sse."),
            ("InvalidEncryptionAlgorithmError", "not support --s3-sse."),
            ("InvalidTag", "not support --s3-tag."),
            ("NotImplemented", "not support --s3-sse or --s3-sse-kms-key-id or"),
        ] {
            let error = says(&format!("status code: 400 X: <Code>{code}</Code>"), &given);
            assert_eq!(error.class(), ExitClass::Config, "{code}");
            assert!(error.message().contains(flag), "{error}");
        }
        // Trouble that passes by itself is not the option's fault.
        for code in ["KMS.ThrottlingException", "KMS.InternalException", "RequestTimeout", "IncompleteBody"] {
            let error = says(&format!("status code: 400 X: <Code>{code}</Code>"), &given);
            assert_eq!((error.class(), error.message().contains("--s3")), (ExitClass::Transient, false), "{error}");
        }
        // Nothing was asked for, or the answer is about something else.
        assert!(!says("status code: 400 X: <Code>InvalidArgument</Code>", &[]).message().contains("--s3"));
        let denied = says("status code: 403 X: <Code>SignatureDoesNotMatch</Code>", &given);
        assert_eq!((denied.class(), denied.message().contains("--s3")), (ExitClass::Denied, false));
        let one = says("status code: 501 X: ", &["--s3-tag"]);
        assert!(one.message().contains("not support --s3-tag."), "{one}");
        let bare = says("status code: 400 Bad Request: ", &["--s3-checksum"]);
        assert!(bare.message().contains("not support --s3-checksum."), "{bare}");
        let port = says("status code: 400 Bad Request: Client sent an HTTP request to an HTTPS server.", &given);
        assert!(port.message().contains("https") && !port.message().contains("--s3"), "{port}");
    }

    /// As the HTTP client wraps it: an operating system's error around the TLS library's own.
    fn wrapped(error: rustls::Error) -> Error {
        let inner = io::Error::other(io::Error::other(error));
        let http = HttpError::new(HttpErrorKind::Connect, inner);
        classify("putting", &object_store::Error::Generic { store: "S3", source: Box::new(http) })
    }

    #[test]
    fn what_tls_will_say_again_is_the_requests_fault() {
        let foreign = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert!(tls(&io::Error::other(foreign.clone())).is_some());
        let error = wrapped(foreign);
        assert_eq!(error.class(), ExitClass::Config);
        assert!(error.message().contains("not signed by a CA that is trusted for stores"), "{error}");
        assert_eq!(
            wrapped(rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure)).class(),
            ExitClass::Config
        );
        assert_eq!(
            wrapped(rustls::Error::DecryptError).class(),
            ExitClass::Transient,
            "a broken record is the network's"
        );
        let refused = io::Error::from_raw_os_error(111);
        assert!(tls(&refused).is_none());
    }

    #[test]
    fn a_body_does_not_reach_the_message() {
        let error = generic("status code: 403: <Code>SignatureDoesNotMatch</Code><StringToSign>canary</StringToSign>");
        assert!(!error.message().contains("canary"), "{error}");
        assert!(error.message().contains("SignatureDoesNotMatch"));
    }
}
