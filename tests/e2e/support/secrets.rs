//! No value of a Secret is anywhere but in that Secret, in any spelling: objects, Events, logs of every container and operator
//! (I14).
//!
//! The search follows the last story and reads the files that `collect` wrote at the end of each story. The access key ID of a
//! store is a name, and certificates are public.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::collect::Collected;
use super::exec::percent_encoded;

/// Shortest value: shorter values are found by chance.
const SHORTEST: usize = 8;

/// Fails with the places that contain a Secret's value.
pub fn no_secret_is_told(all: &[Collected]) -> Result<()> {
    let mut found = vec![];
    for collected in all {
        let values = all_values(&collected.secrets);
        let needles = Needles::new(&values);
        for file in &collected.files {
            let names = needles.found_in(&std::fs::read(file)?);
            let place = format!("{}: {}", collected.story, file.display());
            found.extend(names.iter().map(|name| format!("{name} in {place}")));
        }
    }
    ensure!(found.is_empty(), "Secrets are told: {found:?}");
    Ok(())
}

/// Values of all Secrets, without the lines that a certificate contains: a private key holds its public key too.
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

/// Values by `secret/key`, and by line where a value has lines: programs log a private key line by line.
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

/// The value in other spellings: inside a longer base64 it has one of three phases.
fn disguised(line: &str) -> Vec<(&'static str, String)> {
    let phases = ["base64", "base64 from its second byte", "base64 from its third byte"];
    let mut all: Vec<_> =
        phases.into_iter().zip(0..).map(|(how, skip)| (how, inner_base64(&line.as_bytes()[skip..]))).collect();
    all.push(("hex", hex::encode(line)));
    all.push(("URL", line.bytes().map(percent_encoded).collect()));
    let json = json!(line).to_string();
    all.push(("JSON", json[1..json.len() - 1].to_owned()));
    all.retain(|(_, spelt)| spelt.len() >= SHORTEST && spelt != line);
    all
}

/// The base64 of whole groups of three bytes: the rest depends on the bytes that follow.
fn inner_base64(bytes: &[u8]) -> String {
    let whole = bytes[..bytes.len() / 3 * 3].to_vec();
    json!(ByteString(whole)).as_str().unwrap_or_default().to_owned()
}

/// Values by their first bytes, so that one pass over a long text finds all of them.
struct Needles<'a> {
    by_start: HashMap<u64, Vec<(&'a str, &'a [u8])>>,
    /// For each hash of eight bytes, whether a value starts with them: a faster lookup than the map.
    starts: Vec<bool>,
}

impl<'a> Needles<'a> {
    fn new(values: &'a BTreeMap<String, String>) -> Self {
        let mut needles = Self { by_start: HashMap::new(), starts: vec![false; 1 << 16] };
        for (name, value) in values {
            let start = value.bytes().take(SHORTEST).fold(0, |start, byte| start << 8 | u64::from(byte));
            needles.starts[hash(start)] = true;
            needles.by_start.entry(start).or_default().push((name, value.as_bytes()));
        }
        needles
    }

    /// The names of the values that this text contains.
    fn found_in(&self, text: &[u8]) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        let mut last = 0;
        for (at, byte) in text.iter().enumerate() {
            last = last << 8 | u64::from(*byte);
            if !self.starts[hash(last)] || at + 1 < SHORTEST {
                continue;
            }
            let rest = &text[at + 1 - SHORTEST..];
            let here = self.by_start.get(&last).into_iter().flatten();
            found.extend(here.filter(|(_, value)| rest.starts_with(value)).map(|(name, _)| *name));
        }
        found
    }
}

/// Sixteen bits of a multiplicative hash.
fn hash(start: u64) -> usize {
    (start.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

/// Checks that the search finds a value in every spelling.
pub fn check() -> Result<(), String> {
    let secret = json!({
        "metadata": {"name": "s"},
        "data": {
            "accessKeyID": "bm90LXNlY3JldA==",
            "key": "LS0tLS1CRUdJTgpsaW5lLW9uZS1pcy1sb25nCmxpbmUtdHdvLWlzLXRvbwo=",
        },
    });
    let public = json!({"metadata": {"name": "p"}, "data": {"tls.crt": "cHVibGljLXBhcnQK", "tls.key": "cHJpdmF0ZS1wYXJ0CnB1YmxpYy1wYXJ0Cg=="}});
    let values = all_values(&[secret.clone(), public]);
    let needles = Needles::new(&values);
    let told = |text: &str| needles.found_in(text.as_bytes()).into_iter().collect::<Vec<_>>();
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
    planted(secret).map_err(|why| format!("{why:#}"))
}

/// Checks that the search finds a value that a story leaves in a file, and names the file.
fn planted(secret: Value) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [clean, dirty] = ["clean.log", "dirty.log"].map(|name| folder.path().join(name));
    std::fs::write(&clean, "nothing to see")?;
    std::fs::write(&dirty, "x".repeat(100_000) + "line-two-is-too")?;
    let mut left = vec![Collected { story: "s", secrets: vec![secret], files: vec![clean] }];
    no_secret_is_told(&left)?;
    left[0].files.push(dirty);
    let why = no_secret_is_told(&left).err().map(|why| format!("{why:#}")).unwrap_or_default();
    ensure!(why.contains("s/key:2 in ") && why.contains("dirty.log"), "a planted value is not found: {why:?}");
    left[0].files = vec![folder.path().join("gone.log")];
    ensure!(no_secret_is_told(&left).is_err(), "a file that is not there counts as clean");
    Ok(())
}

/// The decoded text; empty for bytes that are no text, which have no words to find.
fn decoded(encoded: &str) -> String {
    let bytes = serde_json::from_value::<ByteString>(encoded.into()).map(|bytes| bytes.0).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}
