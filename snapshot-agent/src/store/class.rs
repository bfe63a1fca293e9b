//! What a store's answer means for the run: S3 errors to classes and sentences.
//!
//! object_store keeps the status and body of an answer only as text, so that text is read here and nowhere else. Only
//! the `<Code>` of a body reaches a message: bodies can hold what should not be in a custom resource's status.

use std::error::Error as StdError;
use std::io;

use object_store::client::{HttpError, HttpErrorKind};

use crate::contract::ExitClass;
use crate::error::Error;

/// Turns a store's error into ours.
pub(super) fn classify(doing: &str, error: &object_store::Error) -> Error {
    let text = error.to_string();
    let code = code(&text);
    let (class, what) = judge(error, &text, code);
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    Error::new(class, format!("{doing}: {what}{code}"))
}

fn judge(error: &object_store::Error, text: &str, code: Option<&str>) -> (ExitClass, String) {
    use object_store::Error as E;
    if let Some(judged) = code.and_then(by_code).or_else(|| tls(error).and_then(by_tls)) {
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
        E::AlreadyExists { .. } => (ExitClass::Transient, "there is an object of that name already".to_owned()),
        E::Precondition { .. } | E::NotModified { .. } => {
            (ExitClass::Corrupt, "the object was exchanged while it was read".to_owned())
        }
        E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => (ExitClass::Config, first_line(text)),
        // Everything else carries an HTTP status or a transport error inside, or is new to us.
        _ => match (status(text), transport(error)) {
            (Some(301 | 302 | 307 | 308), _) => {
                (ExitClass::Config, "the bucket is in another region, or behind another endpoint".to_owned())
            }
            (Some(507), _) => (ExitClass::Full, "the store has no space left".to_owned()),
            (Some(400), _) if text.contains("HTTP request to an HTTPS server") => {
                (ExitClass::Config, "the endpoint speaks https: write https:// in front of it".to_owned())
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

/// What S3 error codes say more exactly than the status does.
fn by_code(code: &str) -> Option<(ExitClass, String)> {
    let (class, what) = match code {
        "NoSuchBucket" => (ExitClass::NotFound, "the bucket does not exist"),
        // The second is versitygw's, with status 404.
        "InvalidAccessKeyId" | "XAdminUserNotFound" => (ExitClass::Denied, "the store does not know this access key"),
        "SignatureDoesNotMatch" => {
            (ExitClass::Denied, "the secret key does not belong to this access key, or the region is wrong")
        }
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
            (ExitClass::Denied, "the session token has expired or is invalid")
        }
        "RequestTimeTooSkewed" => (ExitClass::Transient, "this node's clock and the store's differ too much"),
        "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException" => {
            (ExitClass::Config, "the bucket is in another region")
        }
        "InvalidBucketName" => (ExitClass::Config, "the store does not take this bucket name"),
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity" | "StorageFull" => {
            (ExitClass::Full, "the store has no space left")
        }
        "SlowDown" | "RequestLimitExceeded" | "ServiceUnavailable" => {
            (ExitClass::Transient, "the store asks to slow down")
        }
        _ => return None,
    };
    Some((class, what.to_owned()))
}

/// The `<Code>` of an S3 error body, if the text holds one.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric())).then_some(code)
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
    let mut name_unknown = false;
    while let Some(source) = deepest.source() {
        deepest = source;
        name_unknown |= deepest.to_string().starts_with("dns error");
    }
    let word = first_line(&deepest.to_string());
    if word.contains("invalid HTTP") {
        let what = format!("what answers there speaks no HTTP ({word}): is it https, or no S3 endpoint?");
        return (ExitClass::Config, what);
    }
    let what = match kind {
        HttpErrorKind::Connect if name_unknown => "the endpoint's name cannot be resolved",
        HttpErrorKind::Connect => "the store cannot be reached",
        HttpErrorKind::Timeout => "the store does not answer in time",
        HttpErrorKind::Request | HttpErrorKind::Interrupted => {
            "the connection to the store broke; if it speaks https, write https:// in front of it"
        }
        HttpErrorKind::Unknown | HttpErrorKind::Decode | _ => "the store's answer cannot be used",
    };
    (ExitClass::Transient, format!("{what} ({word})"))
}

/// The TLS library's error underneath, if there is one.
pub(super) fn tls<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref() {
            return Some(tls);
        }
        // An operating system's error hides what was put into it from `source`.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

/// What TLS will say again at the next try too.
fn by_tls(error: &rustls::Error) -> Option<(ExitClass, String)> {
    use rustls::Error as E;
    let what = match error {
        E::InvalidCertificate(_) => {
            "the store's certificate is not accepted: check the endpoint's name, and give the CA it is signed by"
        }
        E::InvalidMessage(_) => "what answers there speaks no TLS: is it http?",
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
        assert!(error.message().contains("UnknownIssuer"), "{error}");
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
