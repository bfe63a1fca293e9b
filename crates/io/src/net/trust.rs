//! Verifies servers' certificates: rustls' verdict, and two cases in which rustls is too strict or too vague.
//!
//! A server's certificate that is a CA's own (`openssl req -x509` makes one) is accepted if it equals a trusted certificate
//! byte for byte; name and dates are still checked. An RSA key that is too short gives an error of its own instead of a wrong
//! signature.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

/// A certificate chain with the key of its first certificate.
pub type Login = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the client side of TLS: trusts these certificates, and presents this login if a server asks.
///
/// # Errors
///
/// No usable certificate, or a key that does not fit.
pub fn client(anchors: Vec<CertificateDer<'static>>, login: Option<Login>) -> Result<ClientConfig, Error> {
    crate::crypto::install_crypto();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(anchors.iter().cloned());
    let usual = WebPkiServerVerifier::builder(Arc::new(roots));
    let usual = usual.build().map_err(|error| Error::General(error.to_string()))?;
    let builder =
        ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Judge { anchors, usual }));
    match login {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// An RSA key with fewer than 2048 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShortKey {
    /// Of a CA's certificate.
    #[error("the RSA key of a CA is shorter than 2048 bits")]
    OfCa,
    /// Of the server's certificate.
    #[error("the certificate's RSA key is shorter than 2048 bits")]
    OfServer,
}

#[derive(Debug)]
struct Judge {
    anchors: Vec<CertificateDer<'static>>,
    usual: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let short = |key| Err(CertificateError::Other(OtherError(Arc::new(key))).into());
        if is_short(shown) {
            return short(ShortKey::OfServer);
        }
        match self.usual.verify_server_cert(shown, above, name, ocsp, now) {
            // webpki has checked the dates before.
            Err(error) if is_ca(&error) && self.anchors.iter().any(|anchor| anchor == shown) => {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            Err(Error::InvalidCertificate(CertificateError::BadSignature | CertificateError::UnknownIssuer))
                if self.anchors.iter().chain(above).any(is_short) =>
            {
                short(ShortKey::OfCa)
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, shown, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// Whether webpki's only objection is that the certificate is a CA's own.
fn is_ca(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) = error else { return false };
    matches!(inner.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// The object identifier of RSA keys.
const RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";

/// A key of 2048 bits has 290 bytes with its frame, a key of 1536 bits has 226.
const SHORTEST: usize = 280;

fn is_short(certificate: &CertificateDer<'_>) -> bool {
    let Ok(anchor) = webpki::anchor_from_trusted_cert(certificate) else { return false };
    let key = &anchor.subject_public_key_info;
    key.len() < SHORTEST && key.windows(RSA.len()).any(|part| part == RSA)
}
