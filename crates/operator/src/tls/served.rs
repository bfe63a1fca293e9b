//! The certificate that a server shows, from a handshake that is not finished.
//!
//! Decides nothing about the certificate: no name and no CA is judged, and no data is sent over the connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::handshake::{self, Read};
use super::parse::fingerprint;
use crate::clock;

/// Returns the fingerprint of the certificate that a server shows; `None` where the handshake fails.
pub(crate) async fn shown(ip: IpAddr, port: u16) -> Option<String> {
    clock::within(handshake::DEADLINE, shake(SocketAddr::new(ip, port))).await?.ok()?
}

async fn shake(at: SocketAddr) -> std::io::Result<Option<String>> {
    let seen = Arc::new(Seen::default());
    let config =
        ClientConfig::builder().dangerous().with_custom_certificate_verifier(seen.clone()).with_no_client_auth();
    // The verifier refuses the certificate that it has remembered, so the handshake fails.
    let over = |read: Read| (read.failed || read.was_over || seen.get().is_some()).then_some(());
    handshake::shake(at, Arc::new(config), over).await?;
    Ok(seen.get())
}

/// Remembers the certificate, and ends the handshake.
#[derive(Debug, Default)]
struct Seen(Mutex<Option<String>>);

impl Seen {
    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint(end_entity));
        // The certificate is enough: the connection has no other use.
        Err(rustls::Error::General("seen".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("seen".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("seen".to_owned()))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
