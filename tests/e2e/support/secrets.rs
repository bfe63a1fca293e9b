//! No value of a Secret is anywhere but in that Secret: objects, events, logs of every container and operator (I14).
//!
//! Asked at the end of every story, whatever it is about. A store's access key ID is a name, and a
//! certificate is meant to be seen.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use serde_json::Value;

use super::world::World;

/// Kinds whose objects are read whole.
const KINDS: [&str; 11] = [
    "EtcdCluster",
    "EtcdMember",
    "EtcdSnapshot",
    "Pod",
    "Job",
    "CronJob",
    "Deployment",
    "ConfigMap",
    "Service",
    "Event",
    "PersistentVolumeClaim",
];

/// What is too short is found by chance.
const SHORTEST: usize = 8;

impl World {
    /// Fails with the places where a Secret's value stands.
    pub async fn no_secret_is_told(&self) -> Result<()> {
        let secrets = self.secrets().await?;
        let mut found = vec![];
        let mut look = |place: &str, text: &str| {
            let told = secrets.iter().filter(|(_, value)| text.contains(value.as_str()));
            found.extend(told.map(|(name, _)| format!("{name} in {place}")));
        };
        for kind in KINDS {
            for object in self.everything(kind).await? {
                look(&format!("{kind} {}", object["metadata"]["name"]), &object.to_string());
            }
        }
        for pod in self.names("Pod").await? {
            for previous in [false, true] {
                let mut command = vec!["logs", "-n", &self.ns, &pod, "--all-containers", "--tail=-1"];
                command.extend(previous.then_some("--previous"));
                // A container that has not started has none.
                look(&format!("the logs of {pod}"), &self.env.kubectl(&command).unwrap_or_default());
            }
        }
        for log in self.operator_logs()? {
            look(&format!("{}", log.display()), &std::fs::read_to_string(&log)?);
        }
        ensure!(found.is_empty(), "Secrets are told: {found:?}");
        Ok(())
    }

    /// By `secret/key`, what is secret of them, as it stands and as Kubernetes encodes it.
    async fn secrets(&self) -> Result<BTreeMap<String, String>> {
        let mut secrets = BTreeMap::new();
        for secret in self.everything("Secret").await? {
            let Some(data) = secret["data"].as_object() else { continue };
            let public = |key: &str| key == "accessKeyID" || key.ends_with(".crt");
            for (key, encoded) in data.iter().filter(|(key, _)| !public(key)) {
                let Some(encoded) = encoded.as_str() else { continue };
                let name = format!("{}/{key}", secret["metadata"]["name"].as_str().unwrap_or_default());
                // Of what has lines, each one is a secret: a private key is logged line by line.
                let plain = decoded(encoded);
                for (i, line) in plain.lines().map(str::trim).enumerate().filter(|(_, line)| line.len() >= SHORTEST) {
                    if !line.starts_with("-----") {
                        secrets.insert(format!("{name}:{i}"), line.to_owned());
                    }
                }
                if encoded.len() > SHORTEST {
                    secrets.insert(name, encoded.to_owned());
                }
            }
        }
        Ok(secrets)
    }

    async fn everything(&self, kind: &str) -> Result<Vec<Value>> {
        let all = self.api(kind).list(&kube::api::ListParams::default()).await?;
        Ok(all.items.iter().map(super::kube_helpers::json).collect())
    }
}

/// What is no text has no words to find.
fn decoded(encoded: &str) -> String {
    let bytes = serde_json::from_value::<ByteString>(encoded.into()).map(|bytes| bytes.0).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}
