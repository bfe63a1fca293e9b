//! Google Cloud Storage, over its XML interface: address and credentials.

use holdfast_contract::StoreFlags;
use holdfast_contract::error::{Error, Result};
use object_store::ClientOptions;
use object_store::gcp::GoogleCloudStorageBuilder;
use serde_json::Value;

use super::bucket::http::{self, Clients, Connector};
use super::bucket::proxy::through;
use super::bucket::{Bucket, Options, Protocol};
use super::location::Place;
use crate::error_class::classify;

/// Google: "XML API multipart uploads", the most parts of one upload.
const PROTOCOL: Protocol = Protocol { scheme: "gs", most_parts: 10_000, parts_stay: false };

/// Host at which object_store asks for a workload's identity.
const IDENTITY: &str = "metadata.google.internal";

/// Opens a bucket: reads the credentials, sends no request.
pub(super) fn open(flags: &StoreFlags, place: Place) -> Result<Bucket> {
    let (mut builder, account) = credentials(flags)?;
    let mut at = "Google".to_owned();
    if let Some(endpoint) = &flags.gcs_endpoint {
        let (scheme, host) = http::endpoint("--gcs-endpoint", endpoint, false)?;
        at = format!("{scheme}://{host}");
        builder = builder.with_base_url(&at);
    }
    let through = through(if flags.gcs_endpoint.is_some() { &at } else { "https://storage.googleapis.com" });
    if let Some(account) = &account {
        at = format!("{at}, as {account}");
    }
    at.push_str(&through);
    let builder = builder
        .with_bucket_name(&place.name)
        .with_skip_signature(false)
        .with_client_options(ClientOptions::new().with_allow_http(http::plain(flags.gcs_endpoint.as_ref())))
        .with_retry(http::retry());
    let connector = Connector::trusting(flags.gcs_ca_file.as_deref(), Some(IDENTITY))?;
    let store = builder.with_http_connector(connector).build().map_err(|error| match &account {
        // object_store's error about a key may hold a part of it.
        Some(_) => broken("private_key is no RSA key in PEM"),
        None => classify("opening the store", &error),
    })?;
    Ok(Bucket::new(place, at, PROTOCOL, Options::default(), Clients::from_client(store)))
}

/// Returns a service account's key from a mounted Secret, or the environment's identity (a workload's).
fn credentials(flags: &StoreFlags) -> Result<(GoogleCloudStorageBuilder, Option<String>)> {
    let Some(folder) = &flags.credentials_dir else {
        return Ok((GoogleCloudStorageBuilder::from_env(), None));
    };
    let json = http::required(folder, KEY)?;
    let account = account(&json)?;
    Ok((GoogleCloudStorageBuilder::new().with_service_account_key(json), Some(account)))
}

/// Key in the Secret.
const KEY: &str = "serviceAccountJSON";

fn broken(what: &str) -> Error {
    Error::config(format!("the credentials' {KEY} is no key file of a service account: its {what}"))
}

/// Returns the account of a key. The decoder's own error would quote the key.
fn account(json: &str) -> Result<String> {
    let key: Value = serde_json::from_str(json).map_err(|_| broken("content is not JSON"))?;
    let text = |name: &str| key.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match text("type") {
        Some("service_account") => {}
        _ => return Err(broken("type is not service_account. For workload identity leave --credentials-dir out")),
    }
    for name in ["private_key", "private_key_id"] {
        if text(name).is_none() {
            return Err(broken(&format!("{name} is missing")));
        }
    }
    // Fields of emulators would send snapshots elsewhere, without credentials.
    for name in ["gcs_base_url", "disable_oauth"] {
        if key.get(name).is_some() {
            return Err(broken(&format!(
                "{name} is no field of Google's. Remove the field; --gcs-endpoint sets another endpoint"
            )));
        }
    }
    text("client_email").map(str::to_owned).ok_or_else(|| broken("client_email is missing"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_contract::ExitClass;
    use serde_json::json;

    use super::*;

    fn mounted(json: Option<String>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        if let Some(json) = json {
            fs::write(folder.path().join(KEY), json).unwrap();
        }
        folder
    }

    fn opened(json: Option<String>, change: impl FnOnce(&mut StoreFlags)) -> Result<Bucket> {
        let folder = mounted(json);
        let mut flags = StoreFlags { credentials_dir: Some(folder.path().to_owned()), ..StoreFlags::default() };
        change(&mut flags);
        open(&flags, Place { name: "backups".to_owned(), prefix: None })
    }

    fn key(change: impl FnOnce(&mut Value)) -> String {
        let mut key = json!({
            "type": "service_account", "client_email": "saver@project.iam.gserviceaccount.com",
            "private_key_id": "1", "private_key": "-----BEGIN canary-----",
        });
        change(&mut key);
        key.to_string()
    }

    #[test]
    fn what_is_wrong_with_a_key_file_is_named() {
        let without = |name: &'static str| key(move |key| drop(key.as_object_mut().unwrap().remove(name)));
        for (json, says) in [
            (None, "have no serviceAccountJSON"),
            (Some("canary".to_owned()), "not JSON"),
            (Some(without("type")), "type"),
            (Some(without("client_email")), "client_email"),
            (Some(without("private_key")), "private_key is missing"),
            (Some(without("private_key_id")), "private_key_id is missing"),
            (Some(key(|key| key["type"] = json!("external_account"))), "leave --credentials-dir out"),
            (Some(key(|key| key["gcs_base_url"] = json!("http://evil.example"))), "gcs_base_url"),
            (Some(key(|key| key["disable_oauth"] = json!(true))), "disable_oauth"),
            (Some(key(|_| {})), "no RSA key"),
        ] {
            let error = opened(json, |_| {}).unwrap_err();
            assert_eq!(error.class(), ExitClass::Config, "{error}");
            assert!(error.message().contains(says), "{says}: {error}");
            assert!(!error.message().contains("canary"), "{error}");
        }
    }

    #[test]
    fn without_a_folder_the_environment_provides() {
        let ambient = |flags: &mut StoreFlags| flags.credentials_dir = None;
        let bucket = opened(None, ambient).unwrap();
        assert_eq!(bucket.uri(&"x"), "gs://backups/x");
        let error = opened(None, |flags| {
            flags.credentials_dir = None;
            flags.gcs_endpoint = Some("https://h/path".to_owned());
        });
        assert!(error.unwrap_err().message().starts_with("--gcs-endpoint"));
    }
}
