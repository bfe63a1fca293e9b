//! Makes certificates.
//!
//! Decides lifetime and extensions of certificates that are no CA. `act/certificates.rs` writes them, `probe.rs` shows one to a member.

use std::time::Duration;

use holdfast_plan::certificate::{Files, Leaf};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use time::OffsetDateTime;

use super::{Data, entry};
use crate::clock;

/// Lifetime of every certificate that is no CA.
const LEAF_LIFE: Duration = Duration::from_hours(24 * 90);
/// Certificates are valid from this long before their issue, for clocks that are behind.
const BACKDATED: Duration = Duration::from_hours(1);

/// Reads a CA that signs.
pub(crate) fn signing(data: &Data, files: Files) -> Result<Issuer<'static, KeyPair>, rcgen::Error> {
    let text = |file: &str| String::from_utf8_lossy(entry(data, file)).into_owned();
    Issuer::from_ca_cert_pem(&text(files.certificate), KeyPair::from_pem(&text(files.key))?)
}

/// Makes a certificate and its key, both as PEM.
pub(crate) fn sign(leaf: &Leaf, issuer: &Issuer<'static, KeyPair>) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = params(leaf.names.clone(), LEAF_LIFE)?;
    if let Some(name) = &leaf.common_name {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Each server is a client too: of its peers, and of itself through the gateway.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Parameters of a certificate that is valid from now on.
pub(crate) fn params(names: Vec<String>, life: Duration) -> Result<CertificateParams, rcgen::Error> {
    let now = OffsetDateTime::from_unix_timestamp(clock::now().as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.not_before = now - BACKDATED;
    params.not_after = now + life;
    Ok(params)
}
