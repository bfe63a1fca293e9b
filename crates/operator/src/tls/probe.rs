//! Whether a server accepts a client's certificate, from a handshake.
//!
//! Decides nothing about the server's certificate, and sends no data over the connection. In TLS 1.3 a client ends its handshake
//! before the server has judged the client's certificate: the first record after it is a session ticket or an alert.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, version};

use super::handshake::{self, Read};
use crate::clock;

/// A client's certificate with its key.
#[derive(Clone)]
pub(crate) struct Shown(Arc<ClientConfig>);

impl Shown {
    /// Reads a certificate, the certificates between it and its CA, and its key.
    pub(crate) fn read(certificate: &[u8], key: &[u8]) -> Option<Self> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let key = PrivateKeyDer::from_pem_slice(key).ok()?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Arc::new(AnyServer(provider.signature_verification_algorithms));
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS13]).ok()?;
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        Some(Self(Arc::new(config.with_client_auth_cert(chain.ok()?, key).ok()?)))
    }
}

/// Whether a server accepts this certificate. `false` also where the handshake fails for another reason.
pub(crate) async fn accepts(ip: IpAddr, port: u16, shown: &Shown) -> bool {
    let over = |read: Read| if read.failed { Some(false) } else { read.was_over.then_some(true) };
    let answer = handshake::shake(SocketAddr::new(ip, port), shown.0.clone(), over);
    matches!(clock::within(handshake::DEADLINE, answer).await, Some(Ok(Some(true))))
}

/// Takes every certificate of a server, with a good signature of the handshake.
#[derive(Debug)]
struct AnyServer(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
