//! One crate for one job: the crates that `Cargo.lock` must not hold, and the crates that it must hold once.

use std::collections::BTreeMap;

/// Banned crates in these versions (a prefix; empty: any), with the reason.
const BANNED: &[(&str, &str, &str)] = &[
    ("openssl", "", "TLS is rustls: the binary is static"),
    ("openssl-sys", "", "TLS is rustls: the binary is static"),
    ("native-tls", "", "TLS is rustls: the binary is static"),
    ("hyper", "0.", "an HTTP stack of the last generation beside the present one"),
    ("http", "0.", "an HTTP stack of the last generation beside the present one"),
    ("h2", "0.3", "an HTTP stack of the last generation beside the present one"),
    ("rustls", "0.21", "no longer maintained"),
    ("rustls-pemfile", "", "no longer maintained; rustls-pki-types reads PEM"),
    ("serde_yaml", "", "no longer maintained; YAML is serde-saphyr's, as in kube"),
    ("serde_yml", "", "unsound; YAML is serde-saphyr's, as in kube"),
    ("cron", "", "it misreads lines of five fields; due times are croner's"),
    ("backoff", "", "no longer maintained"),
    ("instant", "", "no longer maintained"),
    ("async-std", "", "the runtime is tokio"),
    ("atty", "", "no longer maintained; std knows terminals"),
    ("dotenv", "", "configuration is flags and environment, written in one place"),
    ("kube-cel", "", "the API server judges CEL; it would compile kube twice"),
    ("webpki-roots", "", "trust is the image's CA bundle, which can be exchanged"),
];

/// Crates with exactly one version, with the reason. [`SECOND`] does not count.
const ONCE: &[(&str, &str)] = &[
    ("tonic", "our channel is built with the types of etcd-client's"),
    ("prost", "one protocol buffers runtime"),
    ("hyper", "one HTTP stack"),
    ("http", "one HTTP stack"),
    ("rustls", "one TLS stack, one process-wide provider"),
    ("tokio-rustls", "one TLS stack"),
    ("aws-lc-rs", "one crypto provider, and the hash of all streamed and stored bytes"),
    ("kube", "types of two versions do not fit each other"),
    ("kube-client", "types of two versions do not fit each other"),
    ("k8s-openapi", "types of two versions do not fit each other"),
    ("schemars", "schemas of two versions do not fit each other"),
    ("object_store", "one data path"),
    ("tokio", "one runtime"),
    ("clap", "one command line"),
    ("jiff", "one notion of time"),
    ("rand", "one source of chance"),
    ("sha2", "the hash of small records and names, and the one to compare aws-lc-rs' with"),
];

/// Crates that only these crates may depend on, with the reason.
const ONLY_THROUGH: &[(&str, &[&str], &str)] = &[
    ("chrono", &["object_store"], "time is jiff's; object_store still has chrono in its interface"),
    (
        "ring",
        &["hickory-proto", "rustls-webpki"],
        "the crypto provider is aws-lc-rs; these lock ring beside it, and only aws-lc-rs is compiled",
    ),
];

/// Second versions (a prefix) that only these crates may depend on, with the reason: our own code uses the first version.
const SECOND: &[(&str, &str, &[&str], &str)] = &[
    ("sha2", "0.10.", &["age", "age-core", "hpke", "scrypt"], "age still uses RustCrypto's last generation"),
    (
        "rand",
        "0.8.",
        &["age", "age-core"],
        "RustCrypto's last generation asks for this one; age's keys come from the system all the same",
    ),
];

/// A locked package: its versions and its dependencies: `name`, or `name version` where there are two.
#[derive(Debug, Default, PartialEq, Eq)]
struct Package {
    versions: Vec<String>,
    needs: Vec<String>,
}

impl Package {
    /// Whether the package depends on this one, in a version with this prefix.
    fn needs(&self, name: &str, version: &str) -> bool {
        self.needs.iter().any(|need| {
            let (needed, at) = need.split_once(' ').unwrap_or((need, ""));
            needed == name && at.starts_with(version)
        })
    }
}

/// The packages of a lock file, by name.
fn packages(lock: &str) -> BTreeMap<String, Package> {
    let mut all: BTreeMap<String, Package> = BTreeMap::new();
    for block in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim_matches('"').to_owned())
        };
        let (Some(name), Some(version)) = (value("name"), value("version")) else { continue };
        let package = all.entry(name).or_default();
        package.versions.push(version);
        let needs = block.split_once("dependencies = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |l| l.0);
        let names = needs.lines().map(|line| line.trim().trim_matches(['"', ',']));
        package.needs.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    all
}

fn complaints(lock: &str) -> Vec<String> {
    let all = packages(lock);
    let mut out = vec![];
    for (name, prefix, why) in BANNED {
        for version in all.get(*name).iter().flat_map(|p| &p.versions).filter(|v| v.starts_with(prefix)) {
            out.push(format!("{name} {version} must not be here: {why}"));
        }
    }
    for (name, why) in ONCE {
        let mut versions = all.get(*name).map(|p| p.versions.clone()).unwrap_or_default();
        versions.retain(|v| !SECOND.iter().any(|(second, prefix, ..)| second == name && v.starts_with(prefix)));
        if versions.len() != 1 {
            out.push(format!("{name} has to be here once, and is in {versions:?}: {why}"));
        }
    }
    for (name, through, why) in ONLY_THROUGH {
        for (by, package) in &all {
            if package.needs(name, "") && !through.contains(&by.as_str()) {
                out.push(format!("{name} comes through {by}, and may only through {through:?}: {why}"));
            }
        }
    }
    for (name, prefix, through, why) in SECOND {
        for (by, package) in &all {
            if package.needs(name, prefix) && !through.contains(&by.as_str()) {
                out.push(format!("{name} {prefix} comes through {by}, and may only through {through:?}: {why}"));
            }
        }
    }
    out
}

#[test]
fn the_lock_file_holds_one_crate_for_one_job() {
    let found = complaints(include_str!("../../Cargo.lock"));
    assert!(found.is_empty(), "\n{}\n`cargo tree -i NAME` shows who brings it.\n", found.join("\n"));
}

#[test]
fn each_ban_is_noticed() {
    let good = include_str!("../../Cargo.lock");
    let add = |name: &str, version: &str, needs: &str| {
        let block =
            format!("\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\ndependencies = [\n \"{needs}\",\n]\n");
        complaints(&format!("{good}{block}"))
    };
    for (name, prefix, _) in BANNED {
        let found = add(name, &format!("{prefix}9.9"), "x");
        assert!(found.iter().any(|f| f.starts_with(&format!("{name} {prefix}9.9 must not"))), "{name}: {found:?}");
    }
    for (name, _) in ONCE {
        assert!(
            add(name, "999.0.0", "x").iter().any(|f| f.starts_with(&format!("{name} has to be here once"))),
            "{name}"
        );
    }
    for (name, ..) in ONLY_THROUGH {
        assert!(add("other", "1.0.0", name).iter().any(|f| f.starts_with(&format!("{name} comes through other"))));
    }
    for (name, prefix, ..) in SECOND {
        let found = add("other", "1.0.0", &format!("{name} {prefix}9"));
        assert!(found.iter().any(|f| f.starts_with(&format!("{name} {prefix} comes through other"))), "{found:?}");
        assert!(add("other", "1.0.0", &format!("{name} 999.0.0")).is_empty(), "{name}");
    }
    assert!(add("harmless", "1.0.0", "x").is_empty());
}
