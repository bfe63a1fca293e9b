//! Answers of every provider, as object_store reports them.

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

/// AWS's token service and the nodes' services, which object_store names with or without the address.
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
             <HostId>canary</HostId></Error>"
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

/// The object is neither missing nor damaged, and no key opens it.
#[test]
fn what_is_archived_is_told_as_that() {
    let (path, body) = ("x".to_owned(), "<HostId>canary</HostId><StorageClass>DEEP_ARCHIVE</StorageClass>");
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
        assert!(error.is_archived() && error.clone().context("reading the manifest").is_archived());
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
        with_options("putting", &object_store::Error::Generic { store: "S3", source: text.to_owned().into() }, flags)
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
    // A transient failure is not the option's fault.
    for code in ["KMS.ThrottlingException", "KMS.InternalException", "RequestTimeout", "IncompleteBody"] {
        let error = says(&format!("status code: 400 X: <Code>{code}</Code>"), &given);
        assert_eq!((error.class(), error.message().contains("--s3")), (ExitClass::Transient, false), "{error}");
    }
    // No options were given, or the answer is about another cause.
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

/// As the HTTP client wraps it: an operating system's error around the TLS library's.
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
    assert_eq!(wrapped(rustls::Error::DecryptError).class(), ExitClass::Transient, "a broken record is the network's");
    let refused = io::Error::from_raw_os_error(111);
    assert!(tls(&refused).is_none());
}

#[test]
fn the_stores_own_sentence_is_told_in_one_line_and_without_keys() {
    let told = |code: &str, said: &str| {
        generic(&format!("status code: 400 Bad Request: <Error><Code>{code}</Code><Message>{said}</Message></Error>"))
    };
    let says = |said: &str| {
        told("InvalidArgument", said).message().rsplit_once("the store says: ").map(|(_, said)| said.to_owned())
    };
    assert_eq!(says("Tag &quot;a&quot; is &lt;no&gt; tag").as_deref(), Some("Tag \"a\" is <no> tag"));
    assert_eq!(says("first\nRequestId:1\nTime:2").as_deref(), Some("first"));
    assert_eq!(says("\u{1b}[2Jx").as_deref(), Some("[2Jx"));
    assert_eq!((says(""), says("  \n")), (None, None));
    assert!(says(&"word ".repeat(1000)).is_some_and(|said| said.len() <= 240));
    for secret in [
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592",
        "FwoGZXIvYXdzEBYaDKq0Zm2vY3JlZHMx==",
    ] {
        let said = says(&format!("the key {secret} is not known")).unwrap();
        assert_eq!(said, "the key *** is not known");
    }
    let user =
        "User: arn:aws:iam::123456789012:user/backup is not authorized to perform: s3:PutObject on etcd-backups/site-a";
    assert_eq!(says(user).as_deref(), Some(user));
    for said in [
        "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters",
        "Missing required header for this request: Content-MD5",
    ] {
        let error = told("InvalidRequest", said);
        assert!(error.class() == ExitClass::Config && error.message().contains("checksum: SHA256"), "{error}");
        let text = format!("status code: 400 X: <Code>InvalidRequest</Code><Message>{said}</Message>");
        let error = object_store::Error::Generic { store: "S3", source: text.into() };
        assert!(!with_options("putting", &error, &["--s3-tag"]).message().contains("--s3-tag"));
    }
}

/// A wrong checksum is no missing checksum, although the store names the same headers.
#[test]
fn a_checksum_that_does_not_match_is_the_networks_doing() {
    for (code, said) in [
        ("XAmzContentChecksumMismatch", "The provided 'x-amz-checksum' header does not match what was computed."),
        ("BadDigest", "The Content-MD5 you specified did not match what we received."),
    ] {
        let text = format!("status code: 400 Bad Request: <Error><Code>{code}</Code><Message>{said}</Message></Error>");
        let error = generic(&text);
        assert!(error.class() == ExitClass::Transient && !error.message().contains("SHA256"), "{error}");
        let error = object_store::Error::Generic { store: "S3", source: text.into() };
        assert_eq!(with_options("putting", &error, &["--s3-checksum"]).class(), ExitClass::Transient, "{code}");
    }
}

#[test]
fn a_refusal_that_names_the_region_is_told_with_it() {
    for (text, class, says) in [
        (
            "status code: 400 X: <Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region>",
            ExitClass::Config,
            "--s3-region) to eu-west-1",
        ),
        ("status code: 301 Moved Permanently: <Region>cn-north-1</Region>", ExitClass::Config, "to cn-north-1"),
        ("status code: 301 X: <Region>\" x</Region>", ExitClass::Config, "in another region, or behind"),
        ("status code: 400 Bad Request: <Region>eu-west-1</Region>", ExitClass::Config, "names eu-west-1 as"),
        ("status code: 413 Request Entity Too Large: <html>", ExitClass::Config, "client_max_body_size"),
        (
            "Generic S3 error: Failed to read token file '/var/run/token': No such file or directory",
            ExitClass::Config,
            "AWS_WEB_IDENTITY_TOKEN_FILE",
        ),
    ] {
        let error = generic(text);
        assert!(error.class() == class && error.message().contains(says), "{error}");
    }
}

#[test]
fn a_body_does_not_reach_the_message() {
    let error = generic("status code: 403: <Code>SignatureDoesNotMatch</Code><StringToSign>canary</StringToSign>");
    assert!(!error.message().contains("canary"), "{error}");
    assert!(error.message().contains("SignatureDoesNotMatch"));
}
