//! What is printed, word for word, and that our own types take it whole.

use super::*;
use crate::api::cluster::EtcdClusterSpec;

fn by_hand() -> Wanted {
    Wanted {
        name: "orders".to_owned(),
        etcd_version: "3.6.16".to_owned(),
        db_bytes: 3 << 30,
        key: "shop/orders/etcd-000000000000cafe/20261121T162233Z-byhand-abcdef01".to_owned(),
        store: StoreFlags { url: "s3://backups/etcd/".to_owned(), ..StoreFlags::default() },
        credentials_secret: "s3-credentials".to_owned(),
        ca_secret: "s3-ca".to_owned(),
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
            s3_force_path_style: true,
            s3_ca_file: Some("/tmp/ca.crt".into()),
            ..StoreFlags::default()
        },
        recipients: vec!["age1abc".to_owned()],
        ..by_hand()
    }
}

/// That every field is one that the operator knows: none is lost on the way through its types.
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
    let text = yaml(&by_hand()).unwrap();
    assert_eq!(
        text,
        "\
# Restores shop/orders/etcd-000000000000cafe/20261121T162233Z-byhand-abcdef01 into a new cluster. It needs, in the namespace it is applied to:
#   kubectl create secret generic s3-credentials --from-file=accessKeyID --from-file=secretAccessKey
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
  tls:
    insecure: true
  version: \"3.6.16\"
"
    );
    assert!(!text.contains("quorum"));
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
    let text = yaml(&recorded()).unwrap();
    let cluster = taken(&text);
    let EtcdClusterSpec { replicas, version, storage, bootstrap, .. } = cluster.spec;
    assert_eq!((replicas, version.as_str(), storage.size.0.as_str()), (5, "3.5.21", "20Gi"));
    let restore = bootstrap.unwrap().restore.unwrap();
    assert_eq!(restore.identity_secret_refs[0].name, "age-identity");
    let s3 = restore.source.unwrap().place.s3.unwrap();
    assert_eq!((s3.ca_ref.unwrap().name.as_str(), s3.prefix, s3.force_path_style), ("s3-ca", None, true));
    for line in [
        "#   kubectl create secret generic s3-credentials -n prod --from-file=accessKeyID --from-file=secretAccessKey\n",
        "#   kubectl create secret generic s3-ca -n prod --from-file=ca.crt\n",
        "#   kubectl create secret generic age-identity -n prod --from-file=key.txt    # the identity of one of age1abc\n",
        "#   the Secrets to pull images with: registry\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(!text.contains("records no spec"), "{text}");
}

#[test]
fn azure_and_google_are_named_with_their_own_secrets() {
    let on = |url: &str| Wanted {
        store: StoreFlags { url: url.to_owned(), azure_account: Some("acc".to_owned()), ..StoreFlags::default() },
        ..by_hand()
    };
    let text = yaml(&on("azure://box/a/b")).unwrap();
    let place = taken(&text).spec.bootstrap.unwrap().restore.unwrap().source.unwrap().place;
    let azure = place.azure.unwrap();
    assert_eq!(
        (azure.container.as_str(), azure.prefix.as_deref(), azure.account.as_deref()),
        ("box", Some("a/b"), Some("acc"))
    );
    assert!(text.contains("--from-file=accountName --from-file=accountKey\n"), "{text}");
    let text = yaml(&on("gs://bkt")).unwrap();
    let place = taken(&text).spec.bootstrap.unwrap().restore.unwrap().source.unwrap().place;
    assert_eq!(place.gcs.unwrap().bucket, "bkt");
    assert!(text.contains("--from-file=serviceAccountJSON\n"), "{text}");
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
