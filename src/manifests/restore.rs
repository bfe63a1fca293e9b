//! An EtcdCluster that restores a stored snapshot, made from its manifest alone.
//!
//! PURE: values in, YAML out. It decides what the new cluster takes over from the recorded one, and what stands in where
//! nothing was recorded. Secrets are named, never made: what they have to hold stands in a comment.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};
use snapshot_agent::contract::{self, StoreFlags};

use crate::api::EtcdCluster;
use crate::api::name::LocalRef;
use crate::api::store::{
    AzureLocation, GcsLocation, Location, PvcLocation, S3Encryption, S3Location, S3Sse, StoredSnapshot,
};

/// What is known of the snapshot, and what was asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Name of the new cluster.
    pub name: String,
    /// Its namespace; absent: whichever it is applied to.
    pub namespace: Option<String>,
    /// The `spec` that the manifest records.
    pub spec: Option<Map<String, Value>>,
    /// etcd's version when it was saved.
    pub etcd_version: String,
    /// Bytes of the database.
    pub db_bytes: u64,
    /// Whether it was saved without a quorum.
    pub without_quorum: bool,
    /// The snapshot's folder below the store's prefix.
    pub key: String,
    /// Where it is.
    pub store: StoreFlags,
    /// For whom it is encrypted.
    pub recipients: Vec<String>,
    /// Claim of the volume, where it lies on one.
    pub claim: Option<String>,
    /// Secret with the bucket's credentials, where the store is read with a folder of them; absent: one named after the kind
    /// of store.
    pub credentials_secret: Option<String>,
    /// Names of the files in that folder.
    pub credential_files: Vec<String>,
    /// Secret with the CA of the bucket's endpoint; absent: one named after the kind of store.
    pub ca_secret: Option<String>,
    /// Secret with the identities to decrypt with.
    pub identity_secret: String,
}

/// Each member's volume holds at least this; the custom resource's own default.
const LEAST_GIB: u64 = 8;

/// The YAML, with a comment that says what is to be made before.
pub fn yaml(wanted: &Wanted) -> anyhow::Result<String> {
    let source = source(wanted)?;
    let mut spec = match &wanted.spec {
        Some(spec) => spec.clone(),
        None => minimal(wanted),
    };
    // A cluster in memory refuses a restore: it comes back with claims.
    if let Some(storage) = spec.get_mut("storage").and_then(Value::as_object_mut) {
        storage.remove("medium");
    }
    let mut restore = json!({"source": source});
    if !wanted.recipients.is_empty() {
        restore["identitySecretRefs"] = json!([{"name": wanted.identity_secret}]);
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

/// What stands in where no spec was recorded: a snapshot that was saved by hand.
fn minimal(wanted: &Wanted) -> Map<String, Value> {
    let version = wanted.etcd_version.trim_start_matches('v');
    let spec = json!({
        "replicas": 3,
        "version": version,
        "storage": {"size": format!("{}Gi", size_gib(wanted.db_bytes))},
    });
    spec.as_object().cloned().unwrap_or_default()
}

/// The default quota is half of what a volume leaves above 1 GiB: twice the database has to fit that, so that it can grow
/// to twice its size.
fn size_gib(db_bytes: u64) -> u64 {
    db_bytes.saturating_mul(4).div_ceil(1 << 30).saturating_add(1).max(LEAST_GIB)
}

fn source(wanted: &Wanted) -> anyhow::Result<StoredSnapshot> {
    let StoreFlags { url, s3_endpoint, s3_region, s3_force_path_style, .. } = &wanted.store;
    let StoreFlags { azure_account, azure_endpoint, gcs_endpoint, .. } = &wanted.store;
    let ca_ref = ca_file(&wanted.store).map(|_| LocalRef { name: ca_secret(wanted) });
    // Read without a folder of them, the bucket opens itself to a role: a Secret that nobody has would be missed.
    let credentials = wanted.store.credentials_dir.as_ref();
    let credentials_secret_ref = credentials.map(|_| LocalRef { name: credentials_secret(wanted) });
    let location = match url.split_once("://") {
        Some(("s3", place)) => {
            let (bucket, prefix) = parts(place);
            // All else that the store does with it is its own business; this key has to come with every read.
            let sse = (wanted.store.s3_sse == Some(contract::S3Sse::Customer)).then_some(S3Sse::Customer);
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

/// Bucket and prefix.
fn parts(place: &str) -> (String, Option<String>) {
    match place.trim_end_matches('/').split_once('/') {
        Some((bucket, prefix)) => (bucket.to_owned(), Some(prefix.trim_matches('/').to_owned())),
        None => (place.trim_end_matches('/').to_owned(), None),
    }
}

/// The CA that was given for the store's endpoint.
fn ca_file(store: &StoreFlags) -> Option<&PathBuf> {
    [&store.s3_ca_file, &store.azure_ca_file, &store.gcs_ca_file].into_iter().find_map(Option::as_ref)
}

/// What a Secret is named after: the kind of store, as a custom resource says it.
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

/// The keys that the credentials' Secret has to have: those whose files the snapshot was read with.
fn credential_keys(wanted: &Wanted) -> impl Iterator<Item = &'static str> {
    let known: &[&'static str] = match wanted.store.url.split_once("://") {
        Some(("s3", _)) if wanted.store.s3_sse == Some(contract::S3Sse::Customer) => {
            &["accessKeyID", "secretAccessKey", "sessionToken", "sseCustomerKey"]
        }
        Some(("s3", _)) => &["accessKeyID", "secretAccessKey", "sessionToken"],
        Some(("azure", _)) => &["accountName", "accountKey", "sasToken"],
        Some(("gs", _)) => &["serviceAccountJSON"],
        _ => &[],
    };
    known.iter().copied().filter(|key| wanted.credential_files.iter().any(|file| file == key))
}

/// What opens the store to the new cluster: a volume's claim, the Secrets of a bucket, or what its Pods have.
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

/// The flag by which kubectl takes this file under this key, also where the file has another name or stands elsewhere.
fn from_file(key: &str, file: &Path) -> String {
    quoted(&format!("--from-file={key}={}", file.display()))
}

/// One word of a shell's.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Whether the recorded cluster had no claims.
fn kept_in_memory(wanted: &Wanted) -> bool {
    let medium = wanted.spec.as_ref().and_then(|spec| spec.get("storage")?.get("medium")?.as_str());
    medium.is_some_and(|medium| !medium.is_empty())
}

/// What is to be made before, as commands; a shell reads them as they are.
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

/// Names and keys of the manifest stand there, which whoever may write to the store has chosen: none of them ends the comment.
fn on_one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

#[cfg(test)]
mod tests;
