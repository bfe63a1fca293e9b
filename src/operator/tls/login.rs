//! What the operator shows to etcd, and whom it trusts there.
//!
//! Decides that two logins are the same when their certificates are. A key is forgotten with its last user.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::{Data, entry};
use crate::plan::certificate::files::CLIENT;

/// The client certificate of the operator, with its key and the CA that signs the servers'.
#[derive(Clone)]
pub(in crate::operator) struct Login(Arc<Parts>);

struct Parts {
    digest: String,
    config: ClientTlsConfig,
}

impl Login {
    /// From the data of the operator's Secret; `digest` is of the certificates in it.
    pub(in crate::operator) fn of(data: &Data, digest: String) -> Self {
        let config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(entry(data, CLIENT.ca)))
            .identity(Identity::from_pem(entry(data, CLIENT.certificate), entry(data, CLIENT.key)));
        Self(Arc::new(Parts { digest, config }))
    }

    /// For a connection to a server whose certificate is for this host.
    pub(in crate::operator) fn towards(&self, host: &str) -> ClientTlsConfig {
        self.0.config.clone().domain_name(host)
    }
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
