//! An EtcdCluster that restores a stored snapshot, built from the snapshot's manifest alone.
//!
//! PURE: values in, YAML out. Decides which fields the new cluster takes from the recorded spec, and the defaults without a
//! recorded spec. Names Secrets and never creates Secrets: a comment lists the contents of each Secret.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use holdfast_api::EtcdCluster;
use holdfast_api::name::LocalRef;
use holdfast_api::restore::RestorePoint;
use holdfast_api::store::{
    AzureLocation, GcsLocation, Location, PvcLocation, S3Encryption, S3Location, S3Sse, StoredSnapshot,
};
use holdfast_contract::StoreFlags;
use serde_json::{Map, Value, json};

/// Facts about the snapshot, and the user's flags.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Name of the new cluster.
    pub name: String,
    /// Namespace of the new cluster; absent: the namespace of `kubectl apply`.
    pub namespace: Option<String>,
    /// The `spec` in the manifest.
    pub spec: Option<Map<String, Value>>,
    /// etcd's version at the time of the save.
    pub etcd_version: String,
    /// Bytes of the database.
    pub db_bytes: u64,
    /// Whether the agent saved the snapshot without a quorum.
    pub without_quorum: bool,
    /// The snapshot's folder below the store's prefix.
    pub key: String,
    /// The snapshot's store.
    pub store: StoreFlags,
    /// Recipients of the encryption.
    pub recipients: Vec<String>,
    /// Claim of the volume, for a snapshot on a volume.
    pub claim: Option<String>,
    /// Secret with the bucket's credentials, if the flags have a folder of credentials; absent: a Secret named after the kind
    /// of store.
    pub credentials_secret: Option<String>,
    /// Names of the files in that folder.
    pub credential_files: Vec<String>,
    /// Secret with the CA of the bucket's endpoint; absent: a Secret named after the kind of store.
    pub ca_secret: Option<String>,
    /// Secret with the identities for decryption.
    pub identity_secret: String,
    /// Point in time up to which the log is added.
    pub at: Option<RestorePoint>,
}

/// Least size of each member's volume: the default of the custom resource.
const LEAST_GIB: u64 = 8;

/// Returns the YAML, with a comment that lists the objects to create first.
pub fn yaml(wanted: &Wanted) -> anyhow::Result<String> {
    let source = source(wanted)?;
    let mut spec = match &wanted.spec {
        Some(spec) => spec.clone(),
        None => minimal(wanted),
    };
    // A cluster in memory refuses a restore, so the new cluster has claims.
    if let Some(storage) = spec.get_mut("storage").and_then(Value::as_object_mut) {
        storage.remove("medium");
    }
    let mut restore = json!({"source": source});
    if !wanted.recipients.is_empty() {
        restore["identitySecretRefs"] = json!([{"name": wanted.identity_secret}]);
    }
    if let Some(at) = &wanted.at {
        restore["at"] = serde_json::to_value(at)?;
    }
    spec.insert("bootstrap".to_owned(), json!({"restore": restore}));
    let mut metadata = json!({"name": wanted.name});
    if let Some(namespace) = &wanted.namespace {
        metadata["namespace"] = json!(namespace);
    }
    let object =
        json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster", "metadata": metadata, "spec": spec});
    serde_json::from_value::<EtcdCluster>(object.clone())
        .context("the spec that the manifest records is none that this version understands: use a newer one")?;
    Ok(format!("{}{}", heading(wanted), super::yaml(&[object])?))
}

/// Returns a minimal spec for a snapshot without a recorded spec, saved by hand.
fn minimal(wanted: &Wanted) -> Map<String, Value> {
    let version = wanted.etcd_version.trim_start_matches('v');
    let spec = json!({
        "replicas": 3,
        "version": version,
        "storage": {"size": format!("{}Gi", size_gib(wanted.db_bytes))},
    });
    spec.as_object().cloned().unwrap_or_default()
}

/// Returns a volume size. The default quota is half of the volume beyond 1 GiB, and must be twice the database's size, so that
/// the database can double.
fn size_gib(db_bytes: u64) -> u64 {
    db_bytes.saturating_mul(4).div_ceil(1 << 30).saturating_add(1).max(LEAST_GIB)
}

fn source(wanted: &Wanted) -> anyhow::Result<StoredSnapshot> {
    let StoreFlags { url, s3_endpoint, s3_region, s3_force_path_style, .. } = &wanted.store;
    let StoreFlags { azure_account, azure_endpoint, gcs_endpoint, .. } = &wanted.store;
    let ca_ref = ca_file(&wanted.store).map(|_| LocalRef { name: ca_secret(wanted) });
    // Without a folder of credentials a role opens the bucket: the new cluster must not wait for a Secret that does not exist.
    let credentials = wanted.store.credentials_dir.as_ref();
    let credentials_secret_ref = credentials.map(|_| LocalRef { name: credentials_secret(wanted) });
    let location = match url.split_once("://") {
        Some(("s3", place)) => {
            let (bucket, prefix) = parts(place);
            // The bucket applies its other settings itself; each read must carry this key.
            let sse = (wanted.store.s3_sse == Some(holdfast_contract::S3Sse::Customer)).then_some(S3Sse::Customer);
            Location::S3(S3Location {
                bucket,
                prefix,
                endpoint: s3_endpoint.clone(),
                region: s3_region.clone(),
                force_path_style: *s3_force_path_style,
                ca_ref,
                sse: sse.map(|kind| S3Encryption { kind, kms_key_id: None }),
                credentials_secret_ref,
                ..S3Location::default()
            })
        }
        Some(("azure", place)) => {
            let (container, prefix) = parts(place);
            let (account, endpoint) = (azure_account.clone(), azure_endpoint.clone());
            Location::Azure(AzureLocation { container, prefix, account, endpoint, ca_ref, credentials_secret_ref })
        }
        Some(("gs", place)) => {
            let (bucket, prefix) = parts(place);
            let endpoint = gcs_endpoint.clone();
            Location::Gcs(GcsLocation { bucket, prefix, endpoint, ca_ref, credentials_secret_ref })
        }
        Some(("file", path)) => {
            let Some(claim_name) = wanted.claim.clone() else {
                bail!("--store names a folder: name the PersistentVolumeClaim of the volume it is on with --claim");
            };
            let mount = wanted.store.mount.as_deref().unwrap_or_else(|| path.as_ref());
            let folder = Path::new(path).strip_prefix(mount);
            let folder = folder.with_context(|| format!("--store={url} is not below --mount={}", mount.display()))?;
            let sub_path = Some(folder.display().to_string()).filter(|folder| !folder.is_empty());
            Location::Pvc(PvcLocation { claim_name, sub_path })
        }
        _ => bail!("--store={url} is no store: s3://, azure://, gs:// or file://"),
    };
    Ok(StoredSnapshot::at(location, wanted.key.trim_matches('/').to_owned()))
}

/// Returns bucket and prefix.
fn parts(place: &str) -> (String, Option<String>) {
    match place.trim_end_matches('/').split_once('/') {
        Some((bucket, prefix)) => (bucket.to_owned(), Some(prefix.trim_matches('/').to_owned())),
        None => (place.trim_end_matches('/').to_owned(), None),
    }
}

/// Returns the CA file of the store's endpoint.
fn ca_file(store: &StoreFlags) -> Option<&PathBuf> {
    [&store.s3_ca_file, &store.azure_ca_file, &store.gcs_ca_file].into_iter().find_map(Option::as_ref)
}

/// Returns the kind of store in the names of Secrets, spelled as in a custom resource.
fn kind(wanted: &Wanted) -> &'static str {
    match wanted.store.url.split_once("://") {
        Some(("azure", _)) => "azure",
        Some(("gs", _)) => "gcs",
        _ => "s3",
    }
}

fn credentials_secret(wanted: &Wanted) -> String {
    wanted.credentials_secret.clone().unwrap_or_else(|| format!("{}-credentials", kind(wanted)))
}

fn ca_secret(wanted: &Wanted) -> String {
    wanted.ca_secret.clone().unwrap_or_else(|| format!("{}-ca", kind(wanted)))
}

/// Returns the keys of the credentials' Secret: the keys whose files the user's command read.
fn credential_keys(wanted: &Wanted) -> impl Iterator<Item = &'static str> {
    let known: &[&'static str] = match wanted.store.url.split_once("://") {
        Some(("s3", _)) if wanted.store.s3_sse == Some(holdfast_contract::S3Sse::Customer) => {
            &["accessKeyID", "secretAccessKey", "sessionToken", "sseCustomerKey"]
        }
        Some(("s3", _)) => &["accessKeyID", "secretAccessKey", "sessionToken"],
        Some(("azure", _)) => &["accountName", "accountKey", "sasToken"],
        Some(("gs", _)) => &["serviceAccountJSON"],
        _ => &[],
    };
    known.iter().copied().filter(|key| wanted.credential_files.iter().any(|file| file == key))
}

/// Returns the lines about access to the store: a volume's claim, the Secrets of a bucket, or the identity of the Pods.
fn opening(wanted: &Wanted, to: &str) -> Vec<String> {
    if wanted.store.url.starts_with("file://") {
        let needs =
            |claim: &String| format!("  the PersistentVolumeClaim {claim} with the volume that the snapshot is on");
        return wanted.claim.iter().map(needs).collect();
    }
    let credentials = match &wanted.store.credentials_dir {
        Some(folder) => {
            let secret = format!("  kubectl create secret generic {}{to}", credentials_secret(wanted));
            credential_keys(wanted).fold(secret, |line, key| line + " " + &from_file(key, &folder.join(key)))
        }
        None => {
            "  a role or an identity that lets Pods read the bucket, since no --credentials-dir was given: that of \
                 the ServiceAccount default, or of the one in bootstrap.restore.agent.serviceAccountName"
                .to_owned()
        }
    };
    let ca = |file: &PathBuf| {
        format!("  kubectl create secret generic {}{to} {}", ca_secret(wanted), from_file("ca.crt", file))
    };
    std::iter::once(credentials).chain(ca_file(&wanted.store).map(ca)).collect()
}

/// Returns kubectl's flag for this file under this key, even if the file has another name or folder.
fn from_file(key: &str, file: &Path) -> String {
    quoted(&format!("--from-file={key}={}", file.display()))
}

/// Returns a single word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Whether the recorded cluster had no claims.
fn kept_in_memory(wanted: &Wanted) -> bool {
    let medium = wanted.spec.as_ref().and_then(|spec| spec.get("storage")?.get("medium")?.as_str());
    medium.is_some_and(|medium| !medium.is_empty())
}

/// Returns the commands to run first, which a shell accepts unchanged.
fn heading(wanted: &Wanted) -> String {
    let to = wanted.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    let mut lines =
        vec![format!("Restores {} into a new cluster. It needs, in the namespace it is applied to:", wanted.key)];
    lines.extend(opening(wanted, &to));
    if !wanted.recipients.is_empty() {
        lines.push(format!(
            "  kubectl create secret generic {}{to} --from-file=key.txt    # the identity of one of {}",
            wanted.identity_secret,
            wanted.recipients.join(", ")
        ));
    }
    if wanted.without_quorum {
        lines.push("It was saved without a quorum: writes that were acknowledged may be missing.".to_owned());
    }
    if wanted.spec.is_none() {
        lines.push(
            "The manifest records no spec of the cluster: replicas, storage and tls are to be looked over.".to_owned(),
        );
    }
    if kept_in_memory(wanted) {
        lines.push(
            "The cluster kept its data in memory (storage.medium), which refuses a restore: the new one has claims of the \
             same storage.size. Size and class are to be looked over."
                .to_owned(),
        );
    }
    if let Some(secrets) = wanted.spec.as_ref().and_then(|spec| spec.get("imagePullSecrets")?.as_array()) {
        let names: Vec<_> = secrets.iter().filter_map(|secret| secret.get("name")?.as_str()).collect();
        lines.push(format!("  the Secrets to pull images with: {}", names.join(", ")));
    }
    lines.iter().map(|line| format!("# {}", on_one_line(line))).fold(String::new(), |text, line| text + &line + "\n")
}

/// Removes line breaks from names and keys of the manifest, which any writer of the store can choose: no value ends the YAML
/// comment.
fn on_one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

#[cfg(test)]
mod tests;
