//! The operator's client certificate for etcd, and the CA that it trusts there.
//!
//! Decides that two logins are equal when their certificates are. The last user of a key drops it from memory.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use holdfast_io::net::connector::{H2, Secure};
use holdfast_io::net::trust;
use holdfast_plan::certificate::files::CLIENT;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::{Data, entry};

/// The operator's client certificate, with its key and the CA of the servers.
#[derive(Clone)]
pub(crate) struct Login(Arc<Parts>);

struct Parts {
    digest: String,
    /// The client's configuration, or the reason why these certificates cannot be used.
    config: Result<Arc<ClientConfig>, String>,
}

impl Login {
    /// Reads the data of the operator's Secret; `digest` is of the certificates in it.
    pub(crate) fn read(data: &Data, digest: String) -> Self {
        Self(Arc::new(Parts { digest, config: config(data).map(Arc::new) }))
    }

    /// Configures a connection to a server whose certificate is for this host.
    pub(crate) fn towards(&self, host: &str) -> Result<Secure, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is no name of a host"))?;
        Ok(Secure { config: self.0.config.clone()?, name })
    }
}

fn config(data: &Data) -> Result<ClientConfig, String> {
    let all = |file| {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(entry(data, file)).collect();
        read.map_err(|_| format!("{file} of the operator's Secret holds no PEM certificate"))
    };
    let key = PrivateKeyDer::from_pem_slice(entry(data, CLIENT.key))
        .map_err(|_| format!("{} of the operator's Secret holds no PEM private key", CLIENT.key))?;
    let mut config = trust::client(all(CLIENT.ca)?, Some((all(CLIENT.certificate)?, key)))
        .map_err(|error| format!("the certificates of the operator's Secret cannot be used: {error}"))?;
    config.alpn_protocols.push(H2.to_vec());
    Ok(config)
}

impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest == other.0.digest
    }
}

impl Eq for Login {}

impl Hash for Login {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.digest.hash(state);
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.0.digest)
    }
}
