//! Drills of the etcd of a Kubernetes: a kube-apiserver boots on the backup, and counts every object; a broken value and an encrypted
//! one without its key are named, and the next snapshot clears the failure.
//!
//! The etcd of the story holds the keys of the testbed's own API server, with their values unchanged.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::drills::{cron_jobs, rehearsed};
use crate::support::kube_helpers::{condition, until};
use crate::support::make;
use crate::support::program::{Program, command};
use crate::support::world::{PATIENCE, World};

/// Never due while the story lasts: it starts each Job itself.
const YEARLY: &str = "0 0 1 1 *";

/// The etcd of the testbed's API server (tests/testbed/cmd/testbed/layout.go).
const SOURCE: &str = "http://127.0.0.1:21379";

/// An image with the testbed's kube-apiserver.
const IMAGE: &str = "localhost/kube-apiserver:v1";

const BROKEN: &str = "/registry/configmaps/default/broken";
const SEALED: &str = "/registry/secrets/default/sealed";

const ENCRYPTION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - identity: {}
  - aescbc: {keys: [{name: key2, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
";

/// The whole story.
pub async fn tell(w: &World) -> Result<()> {
    if !w.env.throwaway {
        eprintln!("e2e: {}: left out: only the testbed's etcd can be read from here", w.story);
        return Ok(());
    }
    image()?;
    w.create(make::cluster("alpha", 1)).await?;
    w.step("a cluster", w.wait_ready("alpha", 1)).await?;
    w.step("the keys of a Kubernetes", mirror(w)).await?;
    let mut schedule = make::schedule("nightly", "alpha", YEARLY, json!({"s3": make::s3()}));
    schedule["spec"]["drill"] = json!({"schedule": YEARLY, "kubernetes": {"image": "no tag"}});
    let refused = w.try_create(&schedule).await.err().context("an image without a tag was accepted")?.to_string();
    ensure!(refused.contains("drill.kubernetes.image needs an image with a tag"), "{refused}");
    schedule["spec"]["drill"]["kubernetes"]["image"] = json!(IMAGE);
    w.create(schedule).await?;
    let (backup, drill) = w.step("both CronJobs", cron_jobs(w)).await?;

    let first = saved(w, &backup, "first").await?;
    w.run_now(&drill, "decodes").await?;
    let schedule = w.step("a kube-apiserver decodes it", rehearsed(w, "True", "DrillPassed")).await?;
    let passed = &schedule["status"]["drill"]["lastPassed"];
    ensure!(passed["key"] == first, "{passed}");
    let found = &passed["kubernetes"];
    let seconds = |of: &Value, field: &str| of[field].as_u64().with_context(|| format!("{field}: {passed}"));
    let (restore, serve, ready) =
        (seconds(passed, "restoreSeconds")?, seconds(passed, "serveSeconds")?, seconds(found, "readySeconds")?);
    ensure!(ready > 0 && seconds(passed, "rtoSeconds")? == restore + serve + ready, "{passed}");
    ensure!(found["version"].as_str().is_some_and(|version| version.starts_with("v1.")), "{found}");
    for resource in ["clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"] {
        let live = w.env.kubectl(&["get", resource, "-A", "-o", "name"])?.lines().count() as u64;
        ensure!(found["resources"][resource].as_u64() == Some(live), "{live} {resource} live, in the backup: {found}");
    }
    eprintln!("e2e: {}: {passed}", w.story);

    let alpha = service(w).await?;
    etcdctl(&["--endpoints", &alpha, "put", BROKEN, "no object"])?;
    etcdctl(&["--endpoints", &alpha, "put", SEALED, "k8s:enc:aescbc:v1:key1:sealed"])?;
    let second = saved(w, &backup, "second").await?;
    w.run_now(&drill, "names-them").await?;
    let schedule = w.step("a drill names both", rehearsed(w, "False", "DrillFailed")).await?;
    let failed = &schedule["status"]["drill"]["lastFailed"];
    ensure!(failed["key"] == second && failed["class"] == "Undecodable", "{failed}");
    ensure!(failed["undecodable"] == json!([BROKEN]), "{failed}");
    ensure!(failed["encrypted"] == json!(["secrets k8s:enc:aescbc:v1:key1"]), "{failed}");
    let (_, _, message) = condition(&schedule, "Rehearsed").context("Rehearsed")?;
    ensure!(message.contains(BROKEN) && !message.contains("Do not restore"), "{message}");

    let drills = json!({"kubernetes": {"encryptionConfigSecretRef": {"name": "sealing"}}});
    w.patch("EtcdSnapshotSchedule", "nightly", json!({"spec": {"drill": drills}})).await?;
    w.wait("CronJob", &drill, "the Secret's volume", |cron| cron.to_string().contains("\"sealing\"")).await?;
    w.run_now(&drill, "lacks-secret").await?;
    let missing = |schedule: &Value| {
        let last = &schedule["status"]["drill"]["lastIncomplete"];
        last["message"].as_str().is_some_and(|text| text.contains("the key encryption-config.yaml"))
    };
    w.step("a drill without its Secret", w.wait("EtcdSnapshotSchedule", "nightly", "it is named", missing)).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sealing"},
        "stringData": {"encryption-config.yaml": ENCRYPTION},
    });
    w.create(secret).await?;
    for key in [BROKEN, SEALED] {
        etcdctl(&["--endpoints", &alpha, "del", key])?;
    }
    let third = saved(w, &backup, "third").await?;
    w.run_now(&drill, "decodes-again").await?;
    let schedule = w.step("a drill of another snapshot passes", rehearsed(w, "True", "DrillPassed")).await?;
    ensure!(schedule["status"]["drill"]["lastPassed"]["key"] == third, "{}", schedule["status"]["drill"]);
    Ok(())
}

/// Saves a snapshot; returns its key.
async fn saved(w: &World, backup: &str, name: &str) -> Result<Value> {
    w.run_now(backup, name).await?;
    Ok(w.step(name, w.wait_complete(name)).await?["status"]["artifact"]["key"].clone())
}

/// Puts the testbed's kube-apiserver into an image: kubectl is the same program, which acts by the name of its file.
fn image() -> Result<()> {
    let found = Command::new("which").arg("kubectl").output()?;
    let link = String::from_utf8(found.stdout)?;
    let program = std::fs::canonicalize(link.trim()).context("kubectl in PATH")?;
    let testbed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testbed/testbed");
    let file = format!("{}:/usr/local/bin/kube-apiserver", program.display());
    let out = Command::new(testbed).args(["image", IMAGE, &file]).output()?;
    ensure!(out.status.success(), "testbed image: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// Copies the keys of the testbed's API server until all are there.
async fn mirror(w: &World) -> Result<()> {
    let alpha = service(w).await?;
    let args = ["--endpoints", SOURCE, "make-mirror", "--prefix", "/registry/", &alpha];
    let log = w.env.logs.join(format!("{}-mirror.log", w.story));
    let mut copying = Program::start(command(Path::new("etcdctl")).args(args), &log)?;
    let count = |endpoint: &str| -> Result<u64> {
        let out = etcdctl(&["--endpoints", endpoint, "get", "/registry/", "--prefix", "--count-only", "-w", "fields"])?;
        let line = out.lines().find_map(|line| line.strip_prefix("\"Count\" : ")).context("a count")?;
        Ok(line.trim().parse()?)
    };
    until("as many keys", PATIENCE, async || {
        copying.runs()?;
        let (there, here) = (count(SOURCE)?, count(&alpha)?);
        Ok(if here >= there { Ok(()) } else { Err(format!("{here} of {there} keys")) })
    })
    .await
}

/// The clients' Service, by its address: names of the cluster do not resolve here.
async fn service(w: &World) -> Result<String> {
    let service = w.get("Service", "alpha-client").await?;
    Ok(format!("http://{}:2379", service["spec"]["clusterIP"].as_str().context("an address")?))
}

fn etcdctl(args: &[&str]) -> Result<String> {
    let out = Command::new("etcdctl").args(args).output().context("run etcdctl (is it in PATH?)")?;
    ensure!(out.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}
