//! The real API server refuses wrong input at admission, with the field and the remedy in the message.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::make;
use crate::support::world::World;

/// A mutation of a good manifest, and a part of the expected refusal.
type Case = (&'static str, fn(&mut Value), &'static str);

const CLUSTER: &[Case] = &[
    ("plaintext has no certificates", |c| c["spec"]["tls"]["client"] = json!({"auto": {}}), "tls.insecure"),
    ("fewer than no members", |c| c["spec"]["replicas"] = json!(-1), "replicas"),
    ("too many members", |c| c["spec"]["replicas"] = json!(10), "replicas"),
    ("no such version", |c| c["spec"]["version"] = json!("4.0.0"), "such as 3.6.16"),
    ("a tag is no version", |c| c["spec"]["version"] = json!("v3.6.16"), "without v"),
    ("a mode alone", |c| c["spec"]["options"] = json!({"autoCompactionMode": "periodic"}), "belong together"),
    ("a retention alone", |c| c["spec"]["options"] = json!({"autoCompactionRetention": "1h"}), "belong together"),
    (
        "revisions for a time",
        |c| c["spec"]["options"] = json!({"autoCompactionMode": "periodic", "autoCompactionRetention": "1000"}),
        "does not fit",
    ),
    ("fewer than five heartbeats", |c| c["spec"]["options"] = json!({"electionTimeout": 499}), "five times"),
    ("a tag", |c| c["spec"]["image"] = json!({"repository": "quay.io/coreos/etcd:v3.6.16"}), "a repository only"),
    ("no repository", |c| c["spec"]["image"] = json!({"repository": "quay.io/coreos/"}), "a repository only"),
    ("no class's name", |c| c["spec"]["storage"]["storageClassName"] = json!("Fast SSD"), "StorageClass"),
    ("memory without a size", |c| c["spec"]["storage"] = json!({"medium": "Memory"}), "needs storage.size"),
    (
        "a class for memory",
        |c| c["spec"]["storage"] = json!({"medium": "Memory", "size": "1Gi", "storageClassName": "fast"}),
        "has no claims",
    ),
    (
        "nothing in memory",
        |c| {
            c["spec"]["storage"] = json!({"medium": "Memory", "size": "1Gi"});
            c["spec"]["replicas"] = json!(0);
        },
        "replicas 0 would end every Pod",
    ),
    (
        "a restore into memory",
        |c| {
            c["spec"]["storage"] = json!({"medium": "Memory", "size": "1Gi"});
            c["spec"]["bootstrap"] = json!({"restore": {"snapshotRef": {"name": "s"}}});
        },
        "refuses spec.bootstrap.restore",
    ),
    ("a volume etcd cannot start on", |c| c["spec"]["storage"]["size"] = json!("64Mi"), "256Mi"),
    ("a name nothing can be made from", |c| c["metadata"]["name"] = json!("9-lives"), "DNS label"),
    ("a name too long for its children", |c| c["metadata"]["name"] = json!("a".repeat(53)), "52"),
    (
        "two sources",
        |c| {
            c["spec"]["bootstrap"] = json!({"restore": {
                "snapshotRef": {"name": "s"}, "source": {"pvc": {"claimName": "c"}, "key": "k"}}});
        },
        "exactly one",
    ),
    ("no store", |c| c["spec"]["bootstrap"] = json!({"restore": {"source": {"key": "k"}}}), "exactly one"),
    (
        "a way out of the volume",
        |c| {
            c["spec"]["bootstrap"] = json!({"restore": {
                "source": {"pvc": {"claimName": "c", "subPath": "a/../../b"}, "key": "k"}}});
        },
        "'..'",
    ),
];

const SNAPSHOT: &[Case] = &[
    ("a key that climbs", |s| s["spec"]["destination"]["s3"]["prefix"] = json!("a/../b"), "'..'"),
    (
        "a bucket that can be in no host name",
        |s| {
            s["spec"]["destination"]["s3"]["bucket"] = json!("tenant:Bucket");
            s["spec"]["destination"]["s3"]["forcePathStyle"] = json!(false);
        },
        "forcePathStyle: true",
    ),
    (
        "an endpoint with a password",
        |s| {
            s["spec"]["destination"]["s3"]["endpoint"] = json!("http://user:pass@s3:7070");
        },
        "endpoint",
    ),
    ("two sources", |s| s["spec"]["external"] = json!({"endpoints": ["http://a:2379"]}), "clusterRef and external"),
    ("nothing to save", |s| drop(s["spec"].as_object_mut().map(|s| s.remove("clusterRef"))), "clusterRef and external"),
    (
        "certificates for plaintext",
        |s| {
            s["spec"]["external"] = json!({"endpoints": ["http://a:2379"], "tlsSecretRef": {"name": "certs"}});
            drop(s["spec"].as_object_mut().map(|s| s.remove("clusterRef")));
        },
        "https://",
    ),
    (
        "a store and a place",
        |s| s["spec"]["destination"]["storeRef"] = json!({"name": "vault"}),
        "exactly one of storeRef, s3, azure, gcs and pvc",
    ),
    (
        "an account that nobody names",
        |s| s["spec"]["destination"] = json!({"azure": {"container": "backups"}}),
        "azure needs account",
    ),
    (
        "an archive that is not read at once",
        |s| s["spec"]["destination"]["s3"]["storageClass"] = json!("DEEP_ARCHIVE"),
        "GLACIER_IR",
    ),
    (
        "a key that nobody encrypts with",
        |s| s["spec"]["destination"]["s3"]["sse"] = json!({"type": "AES256", "kmsKeyId": "alias/x"}),
        "aws:kms",
    ),
    (
        "two tags of one name",
        |s| s["spec"]["destination"]["s3"]["tags"] = json!([{"name": "a"}, {"name": "a"}]),
        "Duplicate value",
    ),
    ("two destinations", |s| s["spec"]["destination"]["pvc"] = json!({"claimName": "c"}), "destination"),
    ("a codec we do not have", |s| s["spec"]["compression"] = json!("lz4"), "compression"),
    (
        "a private key in the place of a public one",
        |s| {
            let private = "AGE-SECRET-KEY-1S0ATAU5WZJ208424SSKWEFPV24AQF0NQ5Z03FS2JASVAJ8J9CJ3QZ7CD6E";
            s["spec"]["encryption"] = json!({"age": {"recipients": [private]}});
        },
        "recipients",
    ),
    ("encryption for nobody", |s| s["spec"]["encryption"] = json!({"age": {"recipients": []}}), "recipients"),
];

const STORE: &[Case] = &[
    ("no place", |s| drop(s["spec"].as_object_mut().map(|s| s.remove("s3"))), "exactly one of s3, azure, gcs and pvc"),
    ("two places", |s| s["spec"]["gcs"] = json!({"bucket": "backups"}), "exactly one of s3, azure, gcs and pvc"),
    (
        "credentials in two places",
        |s| s["spec"]["s3"]["credentialsSecretRef"] = json!({"name": "s"}),
        "spec.credentials",
    ),
    (
        "credentials of a volume",
        |s| s["spec"] = json!({"pvc": {"claimName": "c"}, "credentials": {"write": "s"}}),
        "a pvc store has no credentials",
    ),
    (
        "a container that cannot be",
        |s| s["spec"] = json!({"azure": {"container": "a--b", "account": "acct"}}),
        "container",
    ),
];

const DRILL: &[Case] = &[
    ("a drill every second", |s| s["spec"]["drill"]["schedule"] = json!("*/5 * * * * *"), "schedule needs five fields"),
    ("a zone without a name", |s| s["spec"]["drill"]["timeZone"] = json!("Local"), "such as Europe/Berlin"),
    ("no room at all", |s| s["spec"]["drill"]["scratch"] = json!({"size": "1Mi"}), "at least 64Mi"),
    ("always overdue", |s| s["spec"]["drill"]["maxAgeSeconds"] = json!(1), "maxAgeSeconds"),
    (
        "an etcd of an unknown version",
        |s| {
            s["spec"]["external"] = json!({"endpoints": ["http://a:2379"]});
            drop(s["spec"].as_object_mut().map(|s| s.remove("clusterRef")));
        },
        "drill needs clusterRef",
    ),
    (
        "an encrypted snapshot that the drill cannot read",
        |s| {
            let recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
            s["spec"]["snapshotTemplate"]["encryption"] = json!({"age": {"recipients": [recipient]}});
        },
        "drill.identitySecretRefs needs a Secret",
    ),
];

fn drilled() -> Value {
    let mut schedule = make::schedule("good", "c", "0 0 1 1 *", json!({ "s3": make::s3() }));
    schedule["spec"]["drill"] = json!({"schedule": "0 3 * * *"});
    schedule
}

fn store() -> Value {
    json!({
        "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdBackupStore", "metadata": {"name": "good"},
        "spec": {"s3": {"bucket": "backups"}, "credentials": {"write": "s3-credentials"}},
    })
}

pub async fn tell(w: &World) -> Result<()> {
    w.step("what is wrong is refused", async {
        for (what, spoil, says) in CLUSTER {
            refused(w, what, make::cluster("good", 3), *spoil, says).await?;
        }
        for (what, spoil, says) in SNAPSHOT {
            refused(w, what, make::snapshot("good", "c", json!({ "s3": make::s3() })), *spoil, says).await?;
        }
        for (what, spoil, says) in STORE {
            refused(w, what, store(), *spoil, says).await?;
        }
        for (what, spoil, says) in DRILL {
            refused(w, what, drilled(), *spoil, says).await?;
        }
        Ok(())
    })
    .await?;

    // Paused, so that the operator creates nothing for them.
    let mut restores = make::cluster("restores", 1);
    restores["spec"]["paused"] = json!(true);
    restores["spec"]["bootstrap"] = json!({"restore": {"snapshotRef": {"name": "not-yet"}}});
    w.create(restores).await?;
    let why = w.patch("EtcdCluster", "restores", json!({"spec": {"bootstrap": null}})).await;
    let why = why.err().context("a restore may be taken out of the spec, for an empty cluster")?;
    ensure!(format!("{why:#}").contains("may be changed, not removed"), "{why:#}");
    w.patch("EtcdCluster", "restores", json!({"spec": {"bootstrap": {"restore": {"snapshotRef": {"name": "other"}}}}}))
        .await
        .context("a correction is taken")?;

    let mut good = make::cluster("good", 3);
    good["spec"]["paused"] = json!(true);
    w.create(good).await?;
    // Long enough for an operator to create an object by mistake.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for kind in ["EtcdMember", "Pod", "PersistentVolumeClaim", "Service"] {
        let made = w.names_with(kind, "holdfast.dev/cluster=good").await?;
        ensure!(made.is_empty(), "a paused cluster makes nothing: {kind} {made:?}");
    }
    Ok(())
}

async fn refused(w: &World, what: &str, mut object: Value, spoil: fn(&mut Value), says: &str) -> Result<()> {
    spoil(&mut object);
    let why = w.create(object).await.err().with_context(|| format!("{what}: it was accepted"))?;
    let why = format!("{why:#}");
    ensure!(why.contains(says), "{what}: the refusal says {why:?}, not {says:?}");
    Ok(())
}
