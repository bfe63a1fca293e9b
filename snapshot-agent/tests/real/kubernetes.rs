//! A drill with a kube-apiserver: of a real Kubernetes, of one with broken and encrypted values, and of an etcd without one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_contract::error::Result;
use holdfast_contract::{Compression, ExitClass, Origin, ProofLevel, SnapshotFlags, VerifyRequest};
use serde_json::json;
use snapshot_agent::catalog::proof::Step;
use snapshot_agent::verbs::verify::{StoredVerified, Verified};
use snapshot_agent::verbs::{save, verify};
use tempfile::TempDir;

use crate::support::{Etcd, Running, bin, eventually, file_store, files, free_port, save_request};

/// More than one page of a list.
const MANY: usize = 520;

/// A value that no message may hold.
const CANARY: &str = "canary-of-a-secret";

/// A prefix that is not the default.
const ELSEWHERE: &str = "/elsewhere/registry";

const ENCRYPTION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
  - identity: {}
";

/// kube-apiserver and kubectl are one program, which acts by the name of its file.
fn apiserver(folder: &Path) -> PathBuf {
    let link = folder.join("kube-apiserver");
    if !link.exists() {
        symlink(fs::canonicalize(bin("kubectl")).unwrap(), &link).unwrap();
    }
    link
}

/// A Kubernetes: an API server on an etcd.
struct Kubernetes {
    etcd: Etcd,
    folder: TempDir,
    server: String,
    process: Option<Running>,
}

impl Kubernetes {
    async fn start(prefix: &str, encryption: Option<&str>) -> Self {
        let (etcd, folder, port) = (Etcd::start().await, tempfile::tempdir().unwrap(), free_port());
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("tokens.csv"), "admin,admin,admin,system:masters\n").unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(path("tls.key"), key.serialize_pem()).unwrap();
        fs::write(path("tls.crt"), certificate.pem()).unwrap();
        let mut args = vec![
            format!("--etcd-servers={}", etcd.url),
            format!("--etcd-prefix={prefix}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={port}"),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            format!("--cert-dir={}", path("certs")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", path("tls.crt")),
            format!("--service-account-signing-key-file={}", path("tls.key")),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ];
        if let Some(text) = encryption {
            fs::write(path("encryption-config.yaml"), text).unwrap();
            args.push(format!("--encryption-provider-config={}", path("encryption-config.yaml")));
        }
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(apiserver(folder.path()));
        command.args(args).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = Some(Running(command.spawn().unwrap()));
        let kubernetes = Self { etcd, folder, server: format!("https://127.0.0.1:{port}"), process };
        eventually("a ready API server", async || kubernetes.try_kubectl(&["get", "--raw", "/readyz"], "").ok()).await;
        kubernetes
    }

    fn try_kubectl(&self, args: &[&str], input: &str) -> std::result::Result<String, String> {
        let mut child = Command::new(bin("kubectl"))
            .args(["--server", &self.server, "--token=admin", "--insecure-skip-tls-verify"])
            .args(args)
            .env("HOME", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        if output.status.success() { Ok(out) } else { Err(err) }
    }

    fn kubectl(&self, args: &[&str], input: &str) -> String {
        self.try_kubectl(args, input).unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
    }

    /// Ends the API server, so that nothing changes any more. Returns the number of keys in these folders of its own.
    async fn end(&mut self, folders: &[&str]) -> Vec<u64> {
        self.process = None;
        let mut client = self.etcd.client().await.kv_client();
        let mut counts = vec![];
        for folder in folders {
            let options = etcd_client::GetOptions::new().with_prefix().with_count_only();
            counts.push(
                client.get(format!("{ELSEWHERE}/{folder}"), Some(options)).await.unwrap().count().cast_unsigned(),
            );
        }
        counts
    }
}

/// A store in a folder, and drills of its newest snapshot.
struct Drills {
    store: TempDir,
    scratch: TempDir,
    program: PathBuf,
}

impl Drills {
    fn with(program: PathBuf) -> Self {
        Self { store: tempfile::tempdir().unwrap(), scratch: tempfile::tempdir().unwrap(), program }
    }

    /// Saves the etcd, and drills the snapshot. Returns its folder too.
    async fn save_and_drill(&self, etcd: &Etcd, encryption: Option<&Path>) -> (Result<StoredVerified>, PathBuf) {
        let store = file_store(self.store.path());
        let saved = save::run(save_request(etcd.flags(), store.clone(), Compression::Zstd)).await.unwrap();
        let folder = self.store.path().join(&saved.key);
        let request = VerifyRequest {
            snapshot: SnapshotFlags { store: Some(store), key: Some(saved.key), ..SnapshotFlags::default() },
            level: ProofLevel::Drill,
            bin_dir: Some(bin("etcd").parent().unwrap().to_owned()),
            kubernetes: Some(self.program.clone()),
            encryption_config: encryption.map(Path::to_owned),
            scratch: self.scratch.path().to_owned(),
            deadline_seconds: 600,
            ..VerifyRequest::default()
        };
        let found = verify::run(request).await.map(|found| match found {
            Verified::Stored(found) => *found,
            other => panic!("{other:?}"),
        });
        assert_eq!(files(self.scratch.path()), [] as [&str; 0], "the scratch folder is gone");
        (found, folder)
    }
}

/// A custom resource with two versions and a webhook that nothing serves, objects of it, an API of another server, and many small
/// objects.
fn objects() -> String {
    let version = |name: &str, storage: bool| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    let service = json!({"namespace": "default", "name": "nothing", "path": "/convert"});
    let webhook = json!({"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "pods.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "pods", "singular": "pod", "kind": "Pod", "listKind": "PodList"},
            "versions": [version("v2", false), version("v1", true)],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        }
    });
    let remote = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.remote.example.com"},
        "spec": {
            "group": "remote.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "nothing"},
        }
    });
    let mut all = vec![definition, remote];
    all.extend((0..MANY).map(|n| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{n}"), "namespace": "default"}})
    }));
    json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_of_a_kubernetes_is_decoded_and_counted() {
    let mut kubernetes = Kubernetes::start(ELSEWHERE, None).await;
    kubernetes.kubectl(&["create", "-f", "-"], &objects());
    kubernetes.kubectl(&["wait", "--for=condition=Established", "crd/pods.example.org"], "");
    let custom = (0..3).fold(String::new(), |mut yaml, n| {
        write!(yaml, "---\napiVersion: example.org/v1\nkind: Pod\nmetadata: {{name: p{n}, namespace: default}}\n")
            .unwrap();
        yaml
    });
    eventually("custom objects", async || kubernetes.try_kubectl(&["create", "-f", "-"], &custom).ok()).await;
    let live: BTreeMap<&str, usize> =
        ["configmaps", "namespaces", "clusterroles.rbac.authorization.k8s.io", "services", "customresourcedefinitions"]
            .into_iter()
            .map(|name| (name, kubernetes.kubectl(&["get", name, "-A", "-o", "name"], "").lines().count()))
            .collect();
    let program = apiserver(kubernetes.folder.path());
    let [keys, own @ ..] = &kubernetes.end(&["", "ranges/", "peerserverleases/"]).await[..] else { panic!("no keys") };

    // An alarm of the cluster comes with the snapshot, and etcd refuses writes because of it.
    let (raise, full) = (etcd_client::AlarmAction::Activate, etcd_client::AlarmType::Nospace);
    let mut client = kubernetes.etcd.client().await;
    let mut of = etcd_client::AlarmOptions::new();
    of.with_member(client.status().await.unwrap().header().unwrap().member_id());
    client.alarm(raise, full, Some(of)).await.unwrap();

    let drills = Drills::with(program);
    let (found, folder) = drills.save_and_drill(&kubernetes.etcd, None).await;
    let found = found.unwrap();
    assert_eq!((found.failed.as_ref(), found.proof.passed), (None, true));
    assert_eq!(found.proof.proven.last(), Some(&Step::Decoded), "{:?}", found.proof);
    assert_eq!(found.proof.left_out, [] as [&str; 0]);
    let decoded = found.proof.kubernetes.clone().unwrap();
    assert!(decoded.version.starts_with("v1.") && decoded.ready_seconds > 0, "{decoded:?}");
    assert_eq!(decoded.objects, keys - own.iter().sum::<u64>(), "{decoded:?}");
    assert_eq!(decoded.objects, decoded.resources.values().sum::<u64>());
    for (name, count) in live {
        let name =
            if name == "customresourcedefinitions" { "customresourcedefinitions.apiextensions.k8s.io" } else { name };
        assert_eq!(decoded.resources.get(name), Some(&(count as u64)), "{name}: {decoded:?}");
    }
    assert_eq!(decoded.resources.get("pods.example.org"), Some(&3), "stored in v1, listed in v2: {decoded:?}");
    assert!(decoded.resources["configmaps"] > MANY as u64);
    assert!(files(&folder).iter().any(|name| name.starts_with("proofs/") && name.ends_with("-drill.json")));
    let report = verify::drilled("k", &Ok(Verified::Stored(Box::new(found.clone()))));
    let reported = report.kubernetes.unwrap();
    assert!(report.failed.is_none() && reported == decoded, "{reported:?}");
    let lines = Verified::Stored(Box::new(found)).lines();
    assert!(lines.contains("decoded by a kube-apiserver") && lines.contains("  pods.example.org"), "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_and_encrypted_values_are_named_and_the_snapshot_is_not_called_broken() {
    let mut kubernetes = Kubernetes::start("/registry", Some(ENCRYPTION)).await;
    let secret = format!("--from-literal=password={CANARY}");
    for name in ["one", "two"] {
        kubernetes.kubectl(&["create", "secret", "generic", name, &secret], "");
    }
    let program = apiserver(kubernetes.folder.path());
    kubernetes.end(&[]).await;
    let client = kubernetes.etcd.client().await;
    let broken = "/registry/configmaps/default/broken";
    client.kv_client().put(broken, format!("not an object, {CANARY}"), None).await.unwrap();
    client.kv_client().put("/registry/gone.example.org/things/default/a", "{}", None).await.unwrap();
    let encryption = kubernetes.folder.path().join("encryption-config.yaml");
    let drills = Drills::with(program.clone());

    let (found, folder) = drills.save_and_drill(&kubernetes.etcd, None).await;
    let report = verify::drilled("k", &found.clone().map(|found| Verified::Stored(Box::new(found))));
    let failed = report.failed.unwrap();
    assert_eq!((failed.class, report.key.as_str()), (ExitClass::Undecodable, "k"), "{}", failed.message);
    let objects = report.kubernetes.unwrap();
    assert_eq!(objects.undecodable, [broken]);
    assert_eq!(objects.encrypted, ["secrets k8s:enc:aescbc:v1:key1"]);
    for word in [broken, "secrets k8s:enc:aescbc:v1:key1", "encryptionConfigSecretRef"] {
        assert!(failed.message.contains(word), "{word}: {}", failed.message);
    }
    let found = found.unwrap();
    assert!(!serde_json::to_string(&found).unwrap().contains(CANARY) && !failed.message.contains(CANARY));
    let unserved = "1 keys below /registry/gone.example.org/things: this kube-apiserver does not serve their resource";
    assert_eq!(found.proof.left_out, [unserved]);
    assert!(!files(&folder).iter().any(|name| name.starts_with("proofs/")), "latest would pass the snapshot over");

    let (found, _) = drills.save_and_drill(&kubernetes.etcd, Some(&encryption)).await;
    let found = found.unwrap();
    let objects = found.proof.kubernetes.unwrap();
    assert_eq!((objects.undecodable, objects.encrypted), (vec![broken.to_owned()], vec![]));
    assert_eq!(objects.resources.get("secrets"), Some(&2));
    assert_eq!(found.failed.unwrap().class(), ExitClass::Undecodable);

    client.kv_client().delete(broken, None).await.unwrap();
    let (found, folder) = drills.save_and_drill(&kubernetes.etcd, Some(&encryption)).await;
    assert!(found.unwrap().failed.is_none() && files(&folder).iter().any(|name| name.ends_with("-drill.json")));

    // Other ends prove nothing about the objects.
    let script = kubernetes.folder.path().join("ends");
    fs::write(&script, "#!/bin/sh\necho 'Error: unknown flag: --watch-cache' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let (found, _) = Drills::with(script).save_and_drill(&kubernetes.etcd, None).await;
    let error = found.unwrap_err();
    assert_eq!((error.class(), error.origin()), (ExitClass::Transient, Some(Origin::Own)));
    assert!(error.message().contains("unknown flag: --watch-cache"), "{error}");
    let etcd = Etcd::start().await;
    etcd.fill(3, 10).await;
    let (found, _) = Drills::with(program).save_and_drill(&etcd, None).await;
    let error = found.unwrap_err();
    assert!(error.class() == ExitClass::Config && error.message().contains("not of a Kubernetes"), "{error}");
}
