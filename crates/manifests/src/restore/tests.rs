//! The printed YAML, word for word, and a check that Holdfast's own types accept each field.

use holdfast_api::cluster::EtcdClusterSpec;

use super::*;

/// The keys of permanent credentials.
const KEYS: [&str; 2] = ["accessKeyID", "secretAccessKey"];

/// The same, read with a folder of credentials that contains these files.
fn read_with(files: &[&str], wanted: Wanted) -> Wanted {
    let store = StoreFlags { credentials_dir: Some("keys".into()), ..wanted.store };
    let credential_files = files.iter().map(|file| (*file).to_owned()).collect();
    Wanted { store, credential_files, ..wanted }
}

fn by_hand() -> Wanted {
    Wanted {
        name: "orders".to_owned(),
        etcd_version: "3.6.16".to_owned(),
        db_bytes: 3 << 30,
        key: "shop/orders/etcd-000000000000cafe/20261121T162233Z-byhand-abcdef01".to_owned(),
        store: StoreFlags { url: "s3://backups/etcd/".to_owned(), ..StoreFlags::default() },
        identity_secret: "age-identity".to_owned(),
        ..Wanted::default()
    }
}

fn recorded() -> Wanted {
    let spec = json!({
        "replicas": 5, "version": "3.5.21", "storage": {"size": "20Gi", "storageClassName": "fast", "retention": "Retain"},
        "tls": {"insecure": true}, "options": {"autoCompactionMode": "periodic", "autoCompactionRetention": "1h"},
        "imagePullSecrets": [{"name": "registry"}], "nodeSelector": {"disk": "nvme"},
    });
    Wanted {
        namespace: Some("prod".to_owned()),
        spec: spec.as_object().cloned(),
        store: StoreFlags {
            url: "s3://backups".to_owned(),
            s3_endpoint: Some("https://s3.example.com".to_owned()),
            s3_region: Some("eu-1".to_owned()),
            s3_force_path_style: Some(true),
            s3_ca_file: Some("/tmp/ca.crt".into()),
            ..StoreFlags::default()
        },
        recipients: vec!["age1abc".to_owned()],
        ..by_hand()
    }
}

/// Parses the YAML, and checks that the types keep every field.
fn taken(text: &str) -> EtcdCluster {
    let value: Value = serde_saphyr::from_str(text).unwrap();
    let cluster: EtcdCluster = serde_json::from_value(value.clone()).unwrap();
    let again = serde_json::to_value(&cluster).unwrap();
    for (path, mine) in leaves(&value) {
        assert_eq!(again.pointer(&path), Some(mine), "{path} is lost");
    }
    cluster
}

fn leaves(value: &Value) -> Vec<(String, &Value)> {
    let below = |key: String, value| leaves(value).into_iter().map(move |(path, leaf)| (format!("/{key}{path}"), leaf));
    match value {
        Value::Object(map) => map.iter().flat_map(|(key, value)| below(key.clone(), value)).collect(),
        Value::Array(list) => list.iter().enumerate().flat_map(|(i, value)| below(i.to_string(), value)).collect(),
        leaf => vec![(String::new(), leaf)],
    }
}

#[test]
fn a_snapshot_saved_by_hand_gets_a_minimal_cluster() {
    let text = yaml(&read_with(&KEYS, by_hand())).unwrap();
    assert_eq!(
        text,
        "\
# Restores shop/orders/etcd-000000000000cafe/20261121T162233Z-byhand-abcdef01 into a new cluster. It needs, in the namespace it is applied to:
#   kubectl create secret generic s3-credentials --from-file=accessKeyID=keys/accessKeyID --from-file=secretAccessKey=keys/secretAccessKey
# The manifest records no spec of the cluster: replicas, storage and tls are to be looked over.
apiVersion: holdfast.dev/v1alpha1
kind: EtcdCluster
metadata:
  name: orders
spec:
  bootstrap:
    restore:
      source:
        key: shop/orders/etcd-000000000000cafe/20261121T162233Z-byhand-abcdef01
        s3:
          bucket: backups
          credentialsSecretRef:
            name: s3-credentials
          prefix: etcd
  replicas: 3
  storage:
    size: 13Gi
  version: \"3.6.16\"
"
    );
    assert!(!text.contains("quorum"));
    let at = RestorePoint { time: Some("2026-11-28T10:42:07Z".to_owned()), ..RestorePoint::default() };
    let point = yaml(&Wanted { at: Some(at.clone()), ..by_hand() }).unwrap();
    assert_eq!(taken(&point).spec.bootstrap.unwrap().restore.unwrap().at, Some(at));
    let alone = yaml(&Wanted { without_quorum: true, ..by_hand() }).unwrap();
    assert!(
        alone.contains("\n# It was saved without a quorum: writes that were acknowledged may be missing.\n"),
        "{alone}"
    );
    let cluster = taken(&text);
    assert_eq!((cluster.spec.replicas, cluster.spec.version.as_str()), (3, "3.6.16"));
    assert_eq!((size_gib(0), size_gib(1 << 30), size_gib(2 << 30)), (8, 8, 9));
}

#[test]
fn a_recorded_cluster_comes_back_as_it_was() {
    let text = yaml(&read_with(&KEYS, recorded())).unwrap();
    let cluster = taken(&text);
    let EtcdClusterSpec { replicas, version, storage, bootstrap, .. } = cluster.spec;
    assert_eq!((replicas, version.as_str(), storage.size().0.as_str()), (5, "3.5.21", "20Gi"));
    let restore = bootstrap.unwrap().restore.unwrap();
    assert_eq!(restore.identity_secret_refs[0].name, "age-identity");
    let s3 = restore.source.unwrap().place.s3.unwrap();
    assert_eq!((s3.ca_ref.unwrap().name.as_str(), s3.prefix, s3.force_path_style), ("s3-ca", None, Some(true)));
    for line in [
        "#   kubectl create secret generic s3-credentials -n prod --from-file=accessKeyID=keys/accessKeyID --from-file=secretAccessKey=keys/secretAccessKey\n",
        "#   kubectl create secret generic s3-ca -n prod --from-file=ca.crt=/tmp/ca.crt\n",
        "#   kubectl create secret generic age-identity -n prod --from-file=key.txt    # the identity of one of age1abc\n",
        "#   the Secrets to pull images with: registry\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(!text.contains("records no spec"), "{text}");
}

/// A cluster in memory refuses `bootstrap.restore`.
#[test]
fn a_cluster_in_memory_comes_back_with_claims() {
    let mut wanted = recorded();
    let storage = json!({"medium": "Memory", "size": "1Gi"});
    wanted.spec.as_mut().unwrap().insert("storage".to_owned(), storage);
    let text = yaml(&wanted).unwrap();
    let storage = taken(&text).spec.storage;
    assert_eq!((storage.in_memory(), storage.size().0.as_str()), (false, "1Gi"));
    assert!(
        text.contains("\n# The cluster kept its data in memory (storage.medium), which refuses a restore: "),
        "{text}"
    );
    assert!(!yaml(&recorded()).unwrap().contains("in memory"));
}

#[test]
fn azure_and_google_are_named_with_their_own_secrets() {
    let on = |url: &str| Wanted {
        store: StoreFlags { url: url.to_owned(), azure_account: Some("acc".to_owned()), ..StoreFlags::default() },
        ..by_hand()
    };
    let text = yaml(&read_with(&["accountName", "accountKey"], on("azure://box/a/b"))).unwrap();
    let place = taken(&text).spec.bootstrap.unwrap().restore.unwrap().source.unwrap().place;
    let azure = place.azure.unwrap();
    assert_eq!(
        (azure.container.as_str(), azure.prefix.as_deref(), azure.account.as_deref()),
        ("box", Some("a/b"), Some("acc"))
    );
    let line = "#   kubectl create secret generic azure-credentials --from-file=accountName=keys/accountName --from-file=accountKey=keys/accountKey\n";
    assert!(text.contains(line), "{text}");
    assert_eq!(azure.credentials_secret_ref.unwrap().name, "azure-credentials");
    let text = yaml(&read_with(&["serviceAccountJSON"], on("gs://bkt"))).unwrap();
    let place = taken(&text).spec.bootstrap.unwrap().restore.unwrap().source.unwrap().place;
    let gcs = place.gcs.unwrap();
    assert_eq!((gcs.bucket.as_str(), gcs.credentials_secret_ref.unwrap().name.as_str()), ("bkt", "gcs-credentials"));
    let line =
        "#   kubectl create secret generic gcs-credentials --from-file=serviceAccountJSON=keys/serviceAccountJSON\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_bucket_that_was_read_by_a_role_is_read_by_a_role_again() {
    for (url, secret) in [("s3://bkt/a", "s3-ca"), ("azure://box/a", "azure-ca"), ("gs://bkt/a", "gcs-ca")] {
        let store = StoreFlags {
            url: url.to_owned(),
            azure_account: Some("acc".to_owned()),
            s3_ca_file: Some("/tmp/ca.crt".into()),
            ..StoreFlags::default()
        };
        let wanted = Wanted { store, ..by_hand() };
        let text = yaml(&wanted).unwrap();
        let place = taken(&text).spec.bootstrap.unwrap().restore.unwrap().source.unwrap().place;
        let (named, ca) = match place.location().unwrap() {
            Location::S3(s3) => (s3.credentials_secret_ref, s3.ca_ref),
            Location::Azure(azure) => (azure.credentials_secret_ref, azure.ca_ref),
            Location::Gcs(gcs) => (gcs.credentials_secret_ref, gcs.ca_ref),
            Location::Pvc(_) => panic!("{url} is no volume"),
        };
        assert_eq!((named, ca.unwrap().name.as_str()), (None, secret), "{url}");
        assert!(!text.contains("-credentials "), "{text}");
        assert!(text.contains(&format!("create secret generic {secret} --from-file=ca.crt=/tmp/ca.crt\n")), "{text}");
        assert!(text.contains("\n#   a role or an identity that lets Pods read the bucket"), "{text}");

        let text = yaml(&read_with(&[], wanted)).unwrap();
        assert!(text.contains("credentialsSecretRef:") && !text.contains("a role"), "{text}");
    }
}

/// The command creates the Secret with which the user read the snapshot, without a key that has no file.
#[test]
fn the_secret_is_made_of_the_files_that_there_are() {
    let customer = holdfast_contract::S3Sse::Customer;
    let all = ["accessKeyID", "secretAccessKey", "sessionToken", "sseCustomerKey", "accountName", "accountKey"];
    for (url, sse, there, listed) in [
        ("s3://bkt", None, &KEYS[..], &KEYS[..]),
        ("s3://bkt", None, &all[..3], &all[..3]),
        // The store was read without that key, so the restore needs no such key.
        ("s3://bkt", None, &all[..], &all[..3]),
        ("s3://bkt", Some(customer), &all[..], &all[..4]),
        (
            "s3://bkt",
            Some(customer),
            &["accessKeyID", "secretAccessKey", "sseCustomerKey"],
            &["accessKeyID", "secretAccessKey", "sseCustomerKey"],
        ),
        ("azure://box", None, &["accountName", "accountKey"], &["accountName", "accountKey"]),
        ("azure://box", None, &["accountName", "sasToken"], &["accountName", "sasToken"]),
        ("azure://box", None, &["sasToken"], &["sasToken"]),
        ("gs://bkt", None, &["serviceAccountJSON", "other"], &["serviceAccountJSON"]),
    ] {
        let store = StoreFlags {
            url: url.to_owned(),
            s3_sse: sse,
            azure_account: Some("acc".to_owned()),
            ..StoreFlags::default()
        };
        let secret = Some("mine".to_owned());
        let text = yaml(&read_with(there, Wanted { store, credentials_secret: secret, ..by_hand() })).unwrap();
        let flags: String = listed.iter().map(|key| format!(" --from-file={key}=keys/{key}")).collect();
        let line = format!("\n#   kubectl create secret generic mine{flags}\n");
        assert!(text.contains(&line), "{url} {there:?}: {text}");
    }
}

/// The commands can be copied: a shell accepts each path as a single word, in any folder.
#[test]
fn a_path_is_one_word_of_a_shell() {
    let mut wanted = read_with(&["accessKeyID"], recorded());
    wanted.store.credentials_dir = Some("/mnt/my keys/it's".into());
    wanted.store.s3_ca_file = Some("certs/$HOME.pem".into());
    let text = yaml(&wanted).unwrap();
    for line in [
        r"#   kubectl create secret generic s3-credentials -n prod '--from-file=accessKeyID=/mnt/my keys/it'\''s/accessKeyID'",
        "#   kubectl create secret generic s3-ca -n prod '--from-file=ca.crt=certs/$HOME.pem'",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}\n{text}");
    }
}

#[test]
fn a_volume_needs_its_claim() {
    let on = |url: &str, mount: Option<&str>, claim: Option<&str>| Wanted {
        store: StoreFlags { url: url.to_owned(), mount: mount.map(Into::into), ..StoreFlags::default() },
        claim: claim.map(str::to_owned),
        ..by_hand()
    };
    let pvc = |wanted: &Wanted| {
        let cluster = taken(&yaml(wanted).unwrap());
        let pvc = cluster.spec.bootstrap.unwrap().restore.unwrap().source.unwrap().place.pvc.unwrap();
        (pvc.claim_name, pvc.sub_path)
    };
    assert_eq!(pvc(&on("file:///b", None, Some("c"))), ("c".to_owned(), None));
    assert_eq!(pvc(&on("file:///b/x/y", Some("/b"), Some("c"))), ("c".to_owned(), Some("x/y".to_owned())));
    for (wanted, says) in [
        (on("file:///b", None, None), "--claim"),
        (on("file:///b", Some("/c"), Some("c")), "--mount"),
        (on("ftp://b", None, None), "no store"),
        (Wanted { spec: json!({"replicas": "many"}).as_object().cloned(), ..by_hand() }, "a newer one"),
    ] {
        let error = format!("{:#}", yaml(&wanted).unwrap_err());
        assert!(error.contains(says), "{error}");
    }
}

/// A writer of the store writes its manifests; a user with more rights applies the printed YAML.
#[test]
fn nothing_that_a_manifest_says_leaves_the_comment() {
    for end in ["\n", "\r", "\r\n", "\u{85}", "\u{2028}", "\u{2029}"] {
        let evil = format!("age1x{end}---{end}kind: Evil{end}#");
        let mut wanted = Wanted { recipients: vec![evil.clone()], ..recorded() };
        let spec = wanted.spec.as_mut().unwrap();
        spec.insert("imagePullSecrets".to_owned(), json!([{"name": evil}]));
        let lines = heading(&wanted);
        assert!(lines.lines().all(|line| line.starts_with("# ")), "{lines}");
        assert_eq!(lines.lines().count(), heading(&recorded()).lines().count(), "{lines}");
        assert!(!lines.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}']), "{lines:?}");
    }
}
