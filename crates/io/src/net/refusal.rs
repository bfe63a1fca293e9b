//! Describes a refused certificate for users: one sentence of cause, one of remedy, and never a byte of the certificate.

use rustls::{CertificateError, OtherError};

use super::trust::ShortKey;

/// Returns cause and remedy; `trusted` names the trusted CA, `name` the server.
pub fn describe(error: &CertificateError, trusted: &str, name: &str) -> String {
    use CertificateError as C;
    match error {
        // Two CAs with the same name differ only in their signatures.
        C::UnknownIssuer | C::BadSignature => {
            format!("the certificate is not signed by {trusted}. Trust the CA that signed the certificate")
        }
        C::NotValidForName | C::NotValidForNameContext { .. } => {
            format!("the certificate is not for {name} ({error}). Use a name of the certificate, or issue it for this name too")
        }
        C::Expired | C::ExpiredContext { .. } => {
            format!("the certificate has expired ({error}). Renew the certificate, or correct this machine's clock")
        }
        C::NotValidYet | C::NotValidYetContext { .. } => {
            format!("the certificate is not valid yet ({error}). Check this machine's clock")
        }
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            "the certificate is not for servers. Issue it with the extended key usage serverAuth".to_owned()
        }
        C::Revoked => "the certificate is revoked. Issue another one".to_owned(),
        C::BadEncoding => "the certificate breaks the rules of X.509. Issue it as version 3 with a common tool".to_owned(),
        C::UnhandledCriticalExtension => {
            "the certificate has a critical extension that Holdfast does not know. Issue it without that extension".to_owned()
        }
        C::Other(OtherError(inner)) => other(inner.as_ref()),
        error if format!("{error:?}").starts_with("UnsupportedSignatureAlgorithm") => {
            "the certificate, or a CA above it, has a kind of key or of signature that Holdfast does not verify. Sign with \
             RSA of 2048 bits or more, ECDSA on P-256, P-384 or P-521, or Ed25519, and SHA-256 or longer"
                .to_owned()
        }
        _ => "the certificate cannot be accepted. Issue it again with a common tool".to_owned(),
    }
}

/// Returns the refusal in an error's chain of sources, if any.
pub fn beneath<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a CertificateError> {
    match holdfast_contract::error::beneath(error)? {
        rustls::Error::InvalidCertificate(why) => Some(why),
        _ => None,
    }
}

fn other(inner: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    use webpki::Error as E;
    if let Some(short) = inner.downcast_ref::<ShortKey>() {
        return format!("{short}. Issue with a key of 2048 bits or more");
    }
    match inner.downcast_ref::<E>() {
        Some(E::CaUsedAsEndEntity) => {
            "the certificate is a CA's own (CA:TRUE). Trust this very certificate, or issue a certificate for the server"
        }
        Some(E::EndEntityUsedAsCa) => {
            "a certificate without CA:TRUE has signed the certificate. Sign with a CA, or trust this very certificate"
        }
        Some(E::UnsupportedCertVersion) => "the certificate is not X.509 version 3. Issue it as version 3",
        Some(E::PathLenConstraintViolated) => {
            "there are more CAs between the certificate and the trusted one than pathlen allows. Issue with a shorter chain"
        }
        Some(E::NameConstraintViolation) => {
            "the certificate has a name that the name constraints of its CA exclude. Issue it with an allowed name"
        }
        _ => "the certificate cannot be accepted. Issue it again with a common tool",
    }
    .to_owned()
}
