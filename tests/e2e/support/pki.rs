//! A public key infrastructure as a company has it: a root, an intermediate CA, and certificates by hand in Secrets.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

/// A root, and the intermediate CA that signs.
pub struct Pki {
    root: String,
    intermediate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Purpose of a certificate.
#[derive(Clone, Copy)]
pub enum For {
    Server,
    Client,
    Peer,
}

impl Pki {
    pub fn new() -> Result<Self> {
        let root_key = KeyPair::generate()?;
        let root_params = ca("root of the house")?;
        let root = root_params.self_signed(&root_key)?.pem();
        let root_issuer = Issuer::new(root_params, root_key);
        let key = KeyPair::generate()?;
        let params = ca("servers of the house")?;
        let intermediate = params.signed_by(&key, &root_issuer)?.pem();
        Ok(Self { root, intermediate, issuer: Issuer::new(params, key) })
    }

    /// Returns a Secret with a certificate for these names that is valid for `days` days, and the certificate.
    pub fn secret(&self, name: &str, names: &[String], purpose: For, days: i64) -> Result<(Value, String)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.not_before = OffsetDateTime::now_utc() - Duration::days(30);
        params.not_after = OffsetDateTime::now_utc() + Duration::days(days);
        params.extended_key_usages = match purpose {
            For::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            // etcd's gateway dials its own member with the server's certificate.
            For::Server | For::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.distinguished_name.push(DnType::CommonName, name);
        let leaf = params.signed_by(&key, &self.issuer)?.pem();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name},
            "stringData": {
                "tls.crt": format!("{leaf}{}", self.intermediate), "tls.key": key.serialize_pem(), "ca.crt": self.root,
            },
        });
        Ok((secret, leaf))
    }
}

fn ca(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = OffsetDateTime::now_utc() - Duration::days(40);
    params.not_after = OffsetDateTime::now_utc() + Duration::days(4000);
    Ok(params)
}
