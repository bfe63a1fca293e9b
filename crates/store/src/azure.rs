//! Azure Blob Storage: address and credentials.
//!
//! An upload has no name of its own in Azure: blocks wait under the object's name until some are committed, and cannot be
//! aborted. Committing no block discards all of them (Azure: "Put Block List"); otherwise Azure discards them after a week.

use std::sync::Arc;

use futures::FutureExt;
use holdfast_contract::StoreFlags;
use holdfast_contract::error::{Error, Result};
use object_store::ClientOptions;
use object_store::azure::{
    AzureAccessKey, AzureAuthorizer, AzureConfigKey, AzureCredentialProvider, MicrosoftAzureBuilder, split_sas,
};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody};
use reqwest::Method;

use super::bucket::http::{self, Clients, Connector, Eraser};
use super::bucket::proxy::through;
use super::bucket::{Bucket, Options, Protocol};
use super::location::Place;
use crate::error_class::classify;

/// Azure: "Scalability and performance targets for Blob storage", blocks of one block blob.
const PROTOCOL: Protocol = Protocol { scheme: "azure", most_parts: 50_000, parts_stay: true };

/// Opens a container: reads the credentials, sends no request.
pub(super) fn open(flags: &StoreFlags, place: Place) -> Result<Bucket> {
    let (builder, named) = credentials(flags)?;
    // Without the flag, the environment names the account, as for Azure's own tools.
    let account = named.or_else(|| builder.get_config_value(&AzureConfigKey::AccountName));
    let account = account.ok_or_else(|| {
        Error::config("--azure-account is missing: without --credentials-dir this flag names the storage account")
    })?;
    let mut builder = builder
        .with_container_name(&place.name)
        .with_skip_signature(false)
        .with_use_emulator(false)
        .with_client_options(ClientOptions::new().with_allow_http(http::plain(flags.azure_endpoint.as_ref())))
        .with_retry(http::retry());
    let mut at = match builder.get_config_value(&AzureConfigKey::Endpoint) {
        Some(endpoint) => endpoint,
        None => format!("https://{account}.blob.core.windows.net"),
    };
    if let Some(endpoint) = &flags.azure_endpoint {
        // Emulators, and stores behind one address, expect the account in the path.
        let (scheme, rest) = http::endpoint("--azure-endpoint", endpoint, true)?;
        at = format!("{scheme}://{rest}");
        builder = builder.with_endpoint(at.clone());
    }
    let connector = Connector::trusting(flags.azure_ca_file.as_deref(), None)?;
    let opening = |error: object_store::Error| classify("opening the store", &error);
    let store = builder.with_http_connector(connector.clone()).build().map_err(opening)?;
    let client =
        connector.connect(&ClientOptions::new().with_allow_http(at.starts_with("http://"))).map_err(opening)?;
    let base = format!("{}/{}", at.trim_end_matches('/'), place.name);
    let eraser = eraser(client, Arc::clone(store.credentials()), account.clone(), base);
    let at = format!("{at}, account {account}{}", through(&at));
    Ok(Bucket::new(place, at, PROTOCOL, Options::default(), Clients::from_client(store)).erasing(eraser))
}

/// Returns a function that removes one object. object_store itself sends a batch to the account, which a signature for one
/// container does not permit.
fn eraser(client: HttpClient, credentials: AzureCredentialProvider, account: String, base: String) -> Eraser {
    Arc::new(move |path| {
        let (client, credentials, account) = (client.clone(), Arc::clone(&credentials), account.clone());
        // Keys consist of characters that need no escaping in a URL (`crates/layout/src/lib.rs`).
        let url = format!("{base}/{path}");
        async move {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = url.parse().map_err(|error| broken(Box::new(error)))?;
            *request.method_mut() = Method::DELETE;
            let credential = credentials.get_credential().await?;
            AzureAuthorizer::new(&credential, &account).try_authorize(&mut request)?;
            let answer = client.execute(request).await.map_err(|error| broken(Box::new(error)))?;
            let status = answer.status();
            if status.is_success() {
                return Ok(());
            }
            let body = answer.into_body().bytes().await.unwrap_or_default();
            let body = String::from_utf8_lossy(&body);
            let source = format!("status code: {status}: {body}").into();
            if status.as_u16() == 404 && !body.contains("ContainerNotFound") {
                return Err(object_store::Error::NotFound { path: path.to_string(), source });
            }
            Err(broken(source))
        }
        .boxed()
    })
}

fn broken(source: Box<dyn std::error::Error + Send + Sync>) -> object_store::Error {
    object_store::Error::Generic { store: "Azure", source }
}

/// Returns the keys from a mounted Secret, or the environment's identity (a workload's or the node's).
fn credentials(flags: &StoreFlags) -> Result<(MicrosoftAzureBuilder, Option<String>)> {
    let named = flags.azure_account.clone();
    if let Some(account) = &named {
        is_account("--azure-account", account)?;
    }
    let Some(folder) = &flags.credentials_dir else {
        let builder = MicrosoftAzureBuilder::from_env();
        return Ok(match named {
            Some(account) => (builder.with_account(&account), Some(account)),
            None => (builder, None),
        });
    };
    let account = match (http::secret(folder, "accountName")?, named) {
        (Some(one), Some(other)) if one != other => {
            return Err(Error::config(format!(
                "--azure-account={other} differs from the credentials' accountName. Omit the flag"
            )));
        }
        (Some(account), _) | (None, Some(account)) => account,
        (None, None) => return Err(http::missing(folder, "accountName")),
    };
    is_account("the credentials' accountName", &account)?;
    let builder = MicrosoftAzureBuilder::new().with_account(&account);
    let builder = match (http::secret(folder, "accountKey")?, http::secret(folder, "sasToken")?) {
        (Some(_), Some(_)) => {
            return Err(Error::config(format!(
                "the credentials in {} have an accountKey and a sasToken. Remove one of the two keys from the Secret",
                folder.display()
            )));
        }
        (Some(key), None) => {
            // The decoder's error would hold a part of the key.
            AzureAccessKey::try_new(&key).map_err(|_| {
                Error::config("the credentials' accountKey is not base64. Copy the key from Azure's portal unchanged")
            })?;
            builder.with_access_key(key)
        }
        (None, Some(token)) => {
            let pairs = split_sas(&token).ok().filter(|pairs| pairs.iter().any(|(name, _)| name == "sig"));
            let broken = || Error::config("the credentials' sasToken is no shared access signature: sig= is missing");
            builder.with_sas_authorization(pairs.ok_or_else(broken)?)
        }
        (None, None) => return Err(http::missing(folder, "accountKey or sasToken")),
    };
    Ok((builder, Some(account)))
}

/// Checks Azure's rule for account names; the name becomes part of a host name.
fn is_account(what: &str, name: &str) -> Result<()> {
    let good = (3..=24).contains(&name.len()) && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if good {
        return Ok(());
    }
    Err(Error::config(format!(
        "{what} {name:?} is no name of a storage account: 3 to 24 lower-case letters and digits"
    )))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use holdfast_contract::ExitClass;

    use super::*;

    fn mounted(secret: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in secret {
            fs::write(folder.path().join(name), value).unwrap();
        }
        folder
    }

    fn opened(secret: &[(&str, &str)], change: impl FnOnce(&mut StoreFlags)) -> Result<Bucket> {
        let folder = mounted(secret);
        let mut flags = StoreFlags { credentials_dir: Some(folder.path().to_owned()), ..StoreFlags::default() };
        change(&mut flags);
        open(&flags, Place { name: "backups".to_owned(), prefix: None })
    }

    const ACCOUNT: (&str, &str) = ("accountName", "acc\n");
    const SAS: &str = "?sv=2023-11-03&sig=Y2FuYXJ5";

    #[test]
    fn what_is_missing_is_named() {
        for (secret, says) in [
            (&[][..], "no accountName"),
            (&[ACCOUNT], "no accountKey or sasToken"),
            (&[("accountKey", "a2V5")], "no accountName"),
            (&[ACCOUNT, ("accountKey", "a2V5"), ("sasToken", SAS)], "Remove one of the two keys"),
            (&[("accountName", "Acc"), ("accountKey", "a2V5")], "accountName"),
            (&[("accountName", "a.evil.example/"), ("accountKey", "a2V5")], "accountName"),
            (&[ACCOUNT, ("accountKey", "canary!")], "accountKey is not base64"),
            (&[ACCOUNT, ("sasToken", "canary")], "sasToken"),
        ] {
            let error = opened(secret, |_| {}).unwrap_err();
            assert_eq!(error.class(), ExitClass::Config, "{error}");
            assert!(error.message().contains(says), "{error}");
            assert!(!error.message().contains("canary"), "{error}");
        }
        let error = opened(&[], |flags| flags.credentials_dir = None).unwrap_err();
        assert!(error.message().contains("--azure-account"), "{error}");
    }

    #[test]
    fn a_key_a_signature_or_the_environment_will_do() {
        for secret in [&[ACCOUNT, ("accountKey", "a2V5")][..], &[ACCOUNT, ("sasToken", SAS)]] {
            let bucket = opened(secret, |_| {}).unwrap();
            assert!(!format!("{bucket:?}").contains("Y2FuYXJ5"));
        }
        opened(&[("accountKey", "a2V5")], |flags| flags.azure_account = Some("acc".to_owned())).unwrap();
        let other = |flags: &mut StoreFlags| flags.azure_account = Some("other".to_owned());
        let error = opened(&[ACCOUNT, ("accountKey", "a2V5")], other).unwrap_err();
        assert!(error.message().contains("--azure-account"), "{error}");
        let ambient = |flags: &mut StoreFlags| {
            flags.azure_account = Some("acc".to_owned());
            flags.credentials_dir = None;
        };
        opened(&[], ambient).unwrap();
    }

    #[test]
    fn an_endpoint_may_have_the_account_in_its_path() {
        let at = |endpoint: &str| {
            opened(&[ACCOUNT, ("accountKey", "a2V5")], |flags| flags.azure_endpoint = Some(endpoint.to_owned()))
        };
        for good in ["http://127.0.0.1:10000/acc", "https://acc.blob.core.usgovcloudapi.net/"] {
            at(good).unwrap();
        }
        for bad in ["", "host", "ftp://h", "https://u:p@h/acc", "https://h/acc?sig=x", "https:///acc"] {
            let error = at(bad).unwrap_err();
            assert!(error.message().starts_with("--azure-endpoint"), "{error}");
        }
        let none = |flags: &mut StoreFlags| flags.azure_ca_file = Some(Path::new("/nonexistent/ca").to_owned());
        assert_eq!(opened(&[ACCOUNT, ("accountKey", "a2V5")], none).unwrap_err().class(), ExitClass::Config);
    }
}
