//! `certificate CLUSTER [--user NAME] [--out DIR]`: client files for etcdctl, and the environment to paste.
//!
//! Decides which Secret holds the certificate of a user, and the modes of the files. Holdfast issues a certificate without a user
//! for applications, one of root for itself, and those of EtcdUsers; this command issues none.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use holdfast_api::EtcdCluster;
use holdfast_api::name::{self, Scheme};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::access::{Access, Session};
use super::end::{DONE, print, wrong_use};
use holdfast_manifests::names::object;

/// Keys of a Secret of certificates, which are also the names of the files.
pub const FILES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// The user of a certificate, as etcd's authentication reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum User {
    /// No user: the certificate of applications. While etcd's authentication is off, every certificate may do everything.
    #[default]
    None,
    /// CN=root: the certificate of the operator.
    Root,
    /// The certificate of an `EtcdUser` of this name.
    Of(String),
}

/// Parses `none`, `root` or the name of an `EtcdUser`.
pub fn user(text: &str) -> Result<User, String> {
    match text {
        "none" => Ok(User::None),
        "root" => Ok(User::Root),
        other => object(other).map(User::Of),
    }
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Root => "root",
            Self::Of(user) => user,
        })
    }
}

/// Flags of `certificate`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CertificateFlags {
    /// `EtcdCluster`.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// User in the certificate: none, root, or the name of an `EtcdUser`.
    #[arg(long, value_parser = user, value_name = "NAME", default_value_t)]
    pub user: User,
    /// Folder of the files; made, if absent, for its owner alone. Default: CLUSTER-tls.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Writes the files.
pub async fn run(flags: CertificateFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let cluster = session.named::<EtcdCluster>(&flags.cluster).await?;
    let files = read(&session, &cluster, &flags.user).await?;
    let folder = flags.out.unwrap_or_else(|| PathBuf::from(format!("{}-tls", flags.cluster)));
    write(&folder, &files)?;
    let folder = folder.canonicalize().with_context(|| format!("finding {}", folder.display()))?;
    print(&environment(&folder, &endpoint(&cluster)))?;
    Ok(DONE)
}

/// The contents of the files, in the order of [`FILES`].
pub type Contents = [Vec<u8>; 3];

/// Reads the certificate of a user.
pub async fn read(session: &Session, cluster: &EtcdCluster, user: &User) -> anyhow::Result<Contents> {
    let secret = secret(cluster, user).map_err(wrong_use)?;
    let found = session.get::<Secret>(&secret).await?;
    let mut data = found.with_context(|| format!("the Secret {secret} does not exist yet"))?.data.unwrap_or_default();
    let mut take = |key: &str| match data.remove(key) {
        Some(value) => Ok(value.0),
        None => Err(anyhow::anyhow!("the Secret {secret} has no {key}")),
    };
    let [ca, certificate, key] = FILES;
    Ok([take(ca)?, take(certificate)?, take(key)?])
}

/// Returns the name of the Secret with the certificate of a user, or why there is none.
fn secret(cluster: &EtcdCluster, user: &User) -> Result<String, String> {
    let name = cluster.name_any();
    if cluster.scheme() == Scheme::Http {
        let endpoint = endpoint(cluster);
        return Err(format!("EtcdCluster {name} serves plaintext, so clients need no certificate: {endpoint}"));
    }
    let plane = cluster.spec.client_tls();
    let own = plane.and_then(|plane| plane.operator_client_secret_ref.as_ref());
    let is_managed = plane.is_some_and(|plane| plane.cert_manager.is_some());
    match (user, own, is_managed) {
        (User::Of(user), ..) => Ok(name::user_tls(user)),
        (User::Root, Some(own), _) => Ok(own.name.clone()),
        (User::Root, None, true) => Ok(name::operator_request(&name)),
        (User::Root, None, false) => Ok(name::operator_tls(&name)),
        (User::None, Some(_), _) | (User::None, None, true) => Err(format!(
            "Holdfast issues no certificates for clients of EtcdCluster {name}: ask your own CA for one, or take that of the \
             operator with --user root"
        )),
        (User::None, None, false) => Ok(name::client_tls(&name)),
    }
}

/// Returns the URL for clients.
fn endpoint(cluster: &EtcdCluster) -> String {
    let known = cluster.status.as_ref().and_then(|status| status.endpoint.clone());
    known.unwrap_or_else(|| {
        let namespace = cluster.namespace().unwrap_or_default();
        name::endpoint(cluster.scheme(), &cluster.name_any(), &namespace)
    })
}

/// Writes the files for their owner alone.
pub fn write(folder: &Path, contents: &Contents) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("making {}", folder.display()))?;
    for (file, bytes) in FILES.iter().zip(contents) {
        let path = folder.join(file);
        // A new file: an earlier one may have another mode, or be a link.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
        .and_then(|()| OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path))
        .and_then(|mut file| file.write_all(bytes))
        .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Returns the variables of etcdctl, to paste into a shell.
fn environment(folder: &Path, endpoint: &str) -> String {
    let file = |name: &str| format!("'{}'", folder.join(name).display().to_string().replace('\'', r"'\''"));
    let [ca, certificate, key] = FILES.map(file);
    format!(
        "export ETCDCTL_ENDPOINTS={endpoint}\nexport ETCDCTL_CACERT={ca}\nexport ETCDCTL_CERT={certificate}\n\
         export ETCDCTL_KEY={key}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn cluster(tls: serde_json::Value) -> EtcdCluster {
        let object = json!({
            "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": {"name": "alpha", "namespace": "prod"}, "spec": {"version": "3.6.16", "tls": tls},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn each_source_of_certificates_has_its_secret() {
        let auto = cluster(json!({}));
        assert_eq!(secret(&auto, &User::None).unwrap(), "alpha-client-tls");
        assert_eq!(secret(&auto, &User::Root).unwrap(), "alpha-operator-tls");
        assert_eq!(secret(&auto, &user("shop").unwrap()).unwrap(), "shop-etcd-tls");
        let own = cluster(json!({"client": {
            "serverSecretRef": {"name": "server"}, "operatorClientSecretRef": {"name": "mine"},
        }}));
        assert_eq!(secret(&own, &User::Root).unwrap(), "mine");
        assert!(secret(&own, &User::None).unwrap_err().contains("your own CA"));
        let managed = cluster(json!({"client": {"certManager": {"issuerRef": {"name": "pki"}}}}));
        assert_eq!(secret(&managed, &User::Root).unwrap(), "alpha-operator-cert");
        assert!(secret(&managed, &User::None).is_err());
        let plain = secret(&cluster(json!({"insecure": true})), &User::Root).unwrap_err();
        assert!(plain.contains("http://alpha-client.prod.svc:2379"), "{plain}");
    }

    #[test]
    fn files_are_their_owners_also_the_second_time() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("it's/tls");
        for round in [b"1", b"2"] {
            write(&out, &[round.to_vec(), round.to_vec(), round.to_vec()]).unwrap();
            for file in FILES {
                let mode = std::fs::metadata(out.join(file)).unwrap().permissions().mode() & 0o777;
                assert_eq!((mode, std::fs::read(out.join(file)).unwrap()), (0o600, round.to_vec()));
            }
        }
        assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o700);
        let text = environment(&out, "https://alpha-client.prod.svc:2379");
        assert!(text.starts_with("export ETCDCTL_ENDPOINTS=https://alpha-client.prod.svc:2379\n"), "{text}");
        assert!(text.contains(r"it'\''s/tls/ca.crt'"), "{text}");
    }
}
