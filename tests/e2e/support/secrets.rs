//! No value of a Secret is anywhere but in that Secret, in no spelling: objects, events, logs of every container and
//! operator (I14).
//!
//! Asked at the end of every story, whatever it is about. A store's access key ID is a name, and a
//! certificate is meant to be seen.

use std::collections::BTreeMap;

use anyhow::ensure;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::world::World;

/// Kinds whose objects are read whole.
const KINDS: [&str; 12] = [
    "EtcdCluster",
    "EtcdMember",
    "EtcdSnapshot",
    "EtcdBackupStore",
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
    pub async fn no_secret_is_told(&self) -> anyhow::Result<()> {
        let secrets = self.secrets().await?;
        let mut found = vec![];
        let mut look = |place: &str, text: &str| {
            found.extend(told(&secrets, text).map(|name| format!("{name} in {place}")));
        };
        for kind in KINDS {
            for object in self.everything(kind).await? {
                look(&format!("{kind} {}", object["metadata"]["name"]), &object.to_string());
            }
        }
        for pod in self.names("Pod").await? {
            for previous in [false, true] {
                let mut command =
                    vec!["logs", "-n", &self.ns, &pod, "--all-containers", "--tail=-1", "--ignore-errors"];
                command.extend(previous.then_some("--previous"));
                // A container that has not started has none, and those after it may have some.
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
    async fn secrets(&self) -> anyhow::Result<BTreeMap<String, String>> {
        Ok(all_values(&self.everything("Secret").await?))
    }

    async fn everything(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let api = self.api(kind);
        let all = super::kube_helpers::patiently(async |_| api.list(&kube::api::ListParams::default()).await).await?;
        Ok(all.items.iter().map(super::kube_helpers::json).collect())
    }
}

/// Of all Secrets, without the lines that stand in a certificate: a private key holds its public key too.
fn all_values(secrets: &[Value]) -> BTreeMap<String, String> {
    let certificates: String = secrets
        .iter()
        .flat_map(|s| s["data"].as_object().into_iter().flatten())
        .filter(|(key, _)| key.ends_with(".crt"))
        .map(|(_, encoded)| decoded(encoded.as_str().unwrap_or_default()))
        .collect();
    let mut values: BTreeMap<_, _> = secrets.iter().flat_map(values).collect();
    values.retain(|_, value| !certificates.contains(value.as_str()));
    values
}

/// By `secret/key`, and by line where a value has lines: a private key is logged line by line.
fn values(secret: &Value) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let public = |key: &str| key == "accessKeyID" || key.ends_with(".crt");
    let data = secret["data"].as_object().into_iter().flatten();
    for (key, encoded) in data.filter(|(key, _)| !public(key)) {
        let Some(encoded) = encoded.as_str().filter(|encoded| encoded.len() > SHORTEST) else { continue };
        let name = format!("{}/{key}", secret["metadata"]["name"].as_str().unwrap_or_default());
        for (i, line) in decoded(encoded).lines().map(str::trim).enumerate() {
            if line.len() >= SHORTEST && !line.starts_with("-----") {
                let spelt = disguised(line).into_iter().map(|(how, line)| (format!("{name}:{i} {how}"), line));
                values.extend(spelt.chain([(format!("{name}:{i}"), line.to_owned())]));
            }
        }
        values.insert(name, encoded.to_owned());
    }
    values
}

/// The same in the spellings that something else may have given it: inside a longer base64 it has one of three phases.
fn disguised(line: &str) -> Vec<(&'static str, String)> {
    let phases = ["base64", "base64 from its second byte", "base64 from its third byte"];
    let mut all: Vec<_> =
        phases.into_iter().zip(0..).map(|(how, skip)| (how, inner_base64(&line.as_bytes()[skip..]))).collect();
    all.push(("hex", hex::encode(line)));
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let percent = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    all.push(("URL", line.bytes().map(percent).collect()));
    let json = json!(line).to_string();
    all.push(("JSON", json[1..json.len() - 1].to_owned()));
    all.retain(|(_, spelt)| spelt.len() >= SHORTEST && spelt != line);
    all
}

/// What whole groups of three bytes become: the rest depends on what follows.
fn inner_base64(bytes: &[u8]) -> String {
    let whole = bytes[..bytes.len() / 3 * 3].to_vec();
    json!(ByteString(whole)).as_str().unwrap_or_default().to_owned()
}

/// The names of those that stand in this text.
fn told<'a>(secrets: &'a BTreeMap<String, String>, text: &str) -> impl Iterator<Item = &'a String> {
    // Logs are long, and the standard library's own search is not compiled with optimisation here.
    let there = move |value: &str| memchr::memmem::find(text.as_bytes(), value.as_bytes()).is_some();
    secrets.iter().filter(move |(_, value)| there(value)).map(|(name, _)| name)
}

/// Whether what is told is found.
pub fn check() -> Result<(), String> {
    let secret = json!({
        "metadata": {"name": "s"},
        "data": {
            "accessKeyID": "bm90LXNlY3JldA==",
            "key": "LS0tLS1CRUdJTgpsaW5lLW9uZS1pcy1sb25nCmxpbmUtdHdvLWlzLXRvbwo=",
        },
    });
    let public = json!({"metadata": {"name": "p"}, "data": {"tls.crt": "cHVibGljLXBhcnQK", "tls.key": "cHJpdmF0ZS1wYXJ0CnB1YmxpYy1wYXJ0Cg=="}});
    let values = all_values(&[secret, public]);
    let told = |text: &str| told(&values, text).cloned().collect::<Vec<_>>();
    for (text, wanted) in [
        ("--access-key not-secret", vec![]),
        ("-----BEGIN", vec![]),
        ("a certificate: public-part", vec![]),
        ("a key: private-part", vec!["p/tls.key:0"]),
        ("error: line-two-is-too", vec!["s/key:2"]),
        (
            "LS0tLS1CRUdJTgpsaW5lLW9uZS1pcy1sb25nCmxpbmUtdHdvLWlzLXRvbwo=",
            vec!["s/key", "s/key:1 base64 from its second byte", "s/key:2 base64 from its third byte"],
        ),
        ("a dump: 6c696e652d74776f2d69732d746f6f0a", vec!["s/key:2 hex"]),
        ("Basic eGxpbmUtdHdvLWlzLXRvbwo=", vec!["s/key:2 base64 from its third byte"]),
    ] {
        if told(text) != wanted {
            return Err(format!("of {text:?} this is told: {:?}, and not {wanted:?}", told(text)));
        }
    }
    Ok(())
}

/// What is no text has no words to find.
fn decoded(encoded: &str) -> String {
    let bytes = serde_json::from_value::<ByteString>(encoded.into()).map(|bytes| bytes.0).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}
