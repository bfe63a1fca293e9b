//! Helm reads the charts: with default values, and for each switch that `holdfast manifests` has too, both print the same objects;
//! every value does something; a misspelt value is refused by its name.
//!
//! Tests that need helm are ignored without it: `tests/bin/charts` builds helm and runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use clap::{CommandFactory as _, Parser as _};
use holdfast::cli::Cli;
use holdfast_api::pod_security::RunAs;
use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdSnapshotSchedule};
use holdfast_manifests::{self as manifests, IMAGE, Options, Part, Scope};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::charts_values::{CLUSTER, OPERATOR, Row};
use crate::values::{CHARTS, values};

/// Labels that Helm's users expect, and `holdfast manifests` does not print.
const OF_HELM: [&str; 3] = ["helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version"];

/// Switches of a release in a namespace whose Kubernetes cluster has the objects without a namespace already.
const NO_SHARED_OBJECTS: [&str; 3] =
    ["crds.enabled=false", "rbac.aggregateClusterRoles=false", "admissionPolicies.enabled=false"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Runs helm on the charts, away from the user's own settings and clusters.
fn helm(words: &[&str]) -> Output {
    let program = std::env::var_os("HOLDFAST_HELM").unwrap_or_else(|| "helm".into());
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(&program);
    command.args(words).current_dir(root()).env("KUBECONFIG", "/dev/null").env_remove("HELM_NAMESPACE");
    for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(folder, home.path());
    }
    command.output().unwrap_or_else(|why| {
        panic!("{}: {why}; run tests/bin/charts, which builds helm and starts these tests", program.display())
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The text that a chart prints for these values (`--set`, or `--set-json` where the value is JSON), or the refusal.
fn print(chart: &str, release: &str, namespace: &str, set: &[&str]) -> Result<String, String> {
    let path = format!("charts/{chart}");
    let mut words = vec!["template", release, &path, "--namespace", namespace];
    for value in set {
        let is_json =
            value.split_once('=').is_some_and(|(_, value)| value.starts_with(['{', '[', '"']) || value == "null");
        words.extend([if is_json { "--set-json" } else { "--set" }, value]);
    }
    let output = helm(&words);
    if output.status.success() { Ok(String::from_utf8(output.stdout).unwrap()) } else { Err(said(&output)) }
}

fn parsed(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_else(|why| panic!("{why}: {text}"));
    all.into_iter().filter(|object| !object.is_null()).collect()
}

fn rendered(chart: &str, release: &str, namespace: &str, set: &[&str]) -> Vec<Value> {
    parsed(&print(chart, release, namespace, set).unwrap_or_else(|why| panic!("{set:?}: {why}")))
}

/// Objects by kind, namespace and name.
fn sorted(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let count = objects.len();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = |it: &Value| [&it["kind"], &it["metadata"]["namespace"], &it["metadata"]["name"]].map(word).join("/");
    let all: BTreeMap<_, _> = objects.into_iter().map(|object| (key(&object), object)).collect();
    assert_eq!(all.len(), count, "an object is printed twice");
    all
}

/// Removes the parts of an object that Helm alone has.
fn without_helm(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let labels = metadata["labels"].as_object_mut().unwrap();
    let of_helm =
        |key: &str, value: &Value| OF_HELM.contains(&key) || (key == "app.kubernetes.io/managed-by" && value == "Helm");
    labels.retain(|key, value| !of_helm(key, value));
    if labels.is_empty() {
        metadata.remove("labels");
    }
    if metadata.get("annotations") == Some(&json!({"helm.sh/resource-policy": "keep"})) {
        metadata.remove("annotations");
    }
    object
}

/// The objects that the chart holdfast prints are those of `holdfast manifests`.
fn same(namespace: &str, set: &[&str], options: &[Options]) {
    let ours = options.iter().flat_map(|options| manifests::objects(options).unwrap());
    // `helm install --create-namespace` creates the namespace.
    let ours = sorted(ours.filter(|object| object["kind"] != "Namespace").collect());
    let helms = rendered("holdfast", "holdfast", namespace, set).into_iter().map(without_helm).collect();
    let helms = sorted(helms);
    let names = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&helms), names(&ours), "{set:?}");
    for (name, object) in &ours {
        assert_eq!(&helms[name], object, "{name} with {set:?}");
    }
}

fn all(scope: &Scope) -> Options {
    Options { image: IMAGE.to_owned(), scope: scope.clone(), pod_run_as: RunAs::Fixed, only: None }
}

fn only(scope: &Scope, part: Part) -> Options {
    Options { only: Some(part), ..all(scope) }
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn helm_finds_no_fault() {
    for chart in CHARTS {
        let output = helm(&["lint", "--strict", &format!("charts/{chart}")]);
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn the_charts_have_the_version_of_the_workspace() {
    for chart in CHARTS {
        let about: Value =
            serde_saphyr::from_str(&fs::read_to_string(root().join(format!("charts/{chart}/Chart.yaml"))).unwrap())
                .unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            (&about["name"], &about["version"], &about["appVersion"]),
            (&json!(chart), &json!(version), &json!(version))
        );
    }
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn the_chart_prints_the_manifests() {
    same("holdfast-system", &[], &[all(&Scope::Cluster)]);
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn each_switch_that_the_manifests_have_prints_the_same() {
    let (wide, one) = (Scope::Cluster, Scope::Namespace("etcd".to_owned()));
    let watch = "watch.namespace=etcd";
    let alone = [&NO_SHARED_OBJECTS[..], &[watch]].concat();
    same("etcd", &[watch], &[all(&one), only(&one, Part::Crds)]);
    same("etcd", &alone, &[all(&one)]);
    same("holdfast-system", &["podRunAs=Unset"], &[Options { pod_run_as: RunAs::Unset, ..all(&wide) }]);
    let image = "registry.example.com:5000/holdfast@sha256:".to_owned() + &"0a".repeat(32);
    let (repository, digest) = image.split_once('@').unwrap();
    let set = [format!("image.repository={repository}"), format!("image.digest={digest}")];
    same("holdfast-system", &set.each_ref().map(String::as_str), &[Options { image: image.clone(), ..all(&wide) }]);
    for (value, part) in [
        ("networkPolicy.enabled=true", Part::NetworkPolicies),
        ("monitoring.podMonitor.enabled=true", Part::PodMonitor),
    ] {
        same("holdfast-system", &[value], &[all(&wide), only(&wide, part)]);
        same("etcd", &[&alone[..], &[value]].concat(), &[all(&one), only(&one, part)]);
    }
}

/// The object of a row: `KIND` or `KIND/NAME`.
fn found<'a>(objects: &'a [Value], whose: &str, pointer: &str) -> Option<&'a Value> {
    let (kind, name) = whose.split_once('/').map_or((whose, None), |(kind, name)| (kind, Some(name)));
    let is = |it: &&Value| it["kind"] == kind && name.is_none_or(|name| it["metadata"]["name"] == name);
    objects.iter().find(is)?.pointer(pointer)
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn every_value_does_something() {
    for (chart, rows) in [("holdfast", OPERATOR), ("holdfast-cluster", CLUSTER)] {
        let listed: BTreeSet<&str> = rows.iter().map(|row| row.path).collect();
        let described: Vec<String> = values(chart).into_iter().map(|value| value.path).collect();
        assert_eq!(listed, described.iter().map(String::as_str).collect(), "{chart}");
        let mut without: BTreeMap<Vec<&str>, Vec<Value>> = BTreeMap::new();
        for Row { path, beside, value, object, pointer, expected } in rows {
            let plain = without.entry(beside.to_vec()).or_insert_with(|| {
                print(chart, "holdfast", "home", beside).map(|text| parsed(&text)).unwrap_or_default()
            });
            let expected: Value = serde_json::from_str(expected).unwrap();
            let expected = Some(expected).filter(|expected| !expected.is_null());
            assert_ne!(found(plain, object, pointer), expected.as_ref(), "{path}: already so without the value");
            let set = format!("{path}={value}");
            let changed = rendered(chart, "holdfast", "home", &[beside, &[set.as_str()][..]].concat());
            assert_eq!(found(&changed, object, pointer), expected.as_ref(), "{set}");
        }
    }
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn the_operator_takes_the_flags_and_variables_of_the_chart() {
    let set = [
        "logLevel=info\\,holdfast=debug",
        "podRunAs=Unset",
        "watch.namespace=etcd",
        "agent.image=a:1",
        "etcd.image.repository=e/etcd",
        "agent.proxy.https=http://p:1",
        "agent.proxy.http=http://p:2",
        "agent.proxy.no=.svc",
    ];
    let objects = rendered("holdfast", "holdfast", "home", &set);
    let container = found(&objects, "Deployment", "/spec/template/spec/containers/0").unwrap();
    let args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let parsed = Cli::try_parse_from(["holdfast"].into_iter().chain(args).chain(["--agent-image=a:1", "--identity=i"]));
    assert!(parsed.is_ok(), "{parsed:?}");
    let command = Cli::command();
    let operator = command.get_subcommands().find(|it| it.get_name() == "operator").unwrap();
    let known: Vec<&str> = operator.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
    let variables = container["env"].as_array().unwrap();
    assert_eq!(variables.len(), 6);
    for variable in variables {
        assert!(known.contains(&variable["name"].as_str().unwrap()), "{variable}");
    }
}

/// The admission policies know the operator by its name, in which a dot is no pattern.
#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn the_policies_know_the_operator_by_its_name() {
    let objects = rendered("holdfast", "holdfast", "home", &["serviceAccount.name=a.b"]);
    let expression = "request.userInfo.username.matches('^system:serviceaccount:[^:]+:a[.]b$')";
    let secrets = found(&objects, "ValidatingAdmissionPolicy/holdfast-secrets", "/spec/matchConditions/0/expression");
    assert_eq!(secrets.unwrap(), expression);
    let members = found(&objects, "ValidatingAdmissionPolicy/holdfast-members", "/spec/validations/0/expression");
    assert!(members.unwrap().as_str().unwrap().starts_with(&format!("{expression} || ")));
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn alerts_and_dashboard_are_those_of_the_project() {
    let set = ["monitoring.prometheusRule.enabled=true", "monitoring.grafanaDashboard.enabled=true"];
    let objects = rendered("holdfast", "holdfast", "home", &set);
    let file = |name: &str| fs::read_to_string(root().join("charts").join(name)).unwrap();
    let alerts: Value = serde_saphyr::from_str(&file("alerts.yaml")).unwrap();
    assert_eq!(found(&objects, "PrometheusRule", "/spec").unwrap(), &alerts);
    let dashboard = found(&objects, "ConfigMap", "/data/holdfast.json").unwrap().as_str().unwrap();
    let [dashboard, ours]: [Value; 2] =
        [dashboard, &file("dashboard.json")].map(|text| serde_json::from_str(text).unwrap());
    assert_eq!(dashboard, ours);
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn a_misspelt_value_is_refused_by_its_name() {
    for (chart, set, name) in [
        ("holdfast", "replicaCont=2", "replicaCont"),
        ("holdfast", "crds.keeep=true", "keeep"),
        ("holdfast", "agent.proxy.htps=http://p:1", "htps"),
        ("holdfast", "networkPolicy.stores.port=[443]", "port"),
        ("holdfast", "image.pullPolicy=Sometimes", "pullPolicy"),
        ("holdfast", "replicaCount=two", "replicaCount"),
        ("holdfast-cluster", "cluster.replica=3", "replica"),
        ("holdfast-cluster", "cluster.storage.siz=3Gi", "siz"),
        ("holdfast-cluster", "cluster.bootstrap={\"restore\":{}}", "bootstrap"),
        ("holdfast-cluster", "restore.latests={}", "latests"),
        ("holdfast-cluster", "store.spec.s3={\"bucket\":\"abc\",\"prefx\":\"x\"}", "prefx"),
        (
            "holdfast-cluster",
            "schedules=[{\"name\":\"a\",\"schedule\":\"@daily\",\"retention\":{\"keepDayly\":1}}]",
            "keepDayly",
        ),
        ("holdfast-cluster", "schedules=[{\"name\":\"a\"}]", "schedule"),
        ("holdfast-cluster", "mode=clone", "mode"),
    ] {
        let refusal = print(chart, "alpha", "etcd", &[set]).expect_err(set);
        assert!(refusal.contains(&format!("'{name}'")) || refusal.contains(&format!("/{name}'")), "{set}: {refusal}");
    }
}

/// Reads an object as its type: a misspelt field does not survive, and the comparison fails.
fn typed<T: DeserializeOwned + Serialize>(object: &Value) -> T {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|why| panic!("{why}: {object}"));
    let back = serde_json::to_value(&typed).unwrap();
    for (field, value) in object["spec"].as_object().unwrap() {
        let there = &back["spec"][field];
        assert!(there == value || contains(there, value), "{field} was {value}, and reads back as {there}");
    }
    typed
}

/// Whether a value has all of another one; defaults may be added.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|there| contains(there, value)))
        }
        _ => whole == part,
    }
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn a_cluster_comes_with_store_and_schedules() {
    let text = r#"
mode: restore
restore: {latest: {storeRef: {name: vault}, cluster: old}, revisionBump: 1000000000000}
cluster: {replicas: 1, resources: {requests: {memory: 1Gi}}, tls: {insecure: true}}
store: {create: true, spec: {s3: {bucket: backups}, credentials: {write: keys}}}
schedules:
- {name: hourly, schedule: "7 * * * *", retention: {keepHourly: 24}}
- {name: away, schedule: "@daily", timeZone: Europe/Berlin, snapshotTemplate: {destination: {pvc: {claimName: x}}}}
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    fs::write(&file, text).unwrap();
    let words =
        ["template", "alpha", "charts/holdfast-cluster", "--namespace", "etcd", "--values", file.to_str().unwrap()];
    let output = helm(&words);
    assert!(output.status.success(), "{}", said(&output));
    let objects = sorted(parsed(&String::from_utf8(output.stdout).unwrap()));
    let of = |key: &str| objects.get(key).unwrap_or_else(|| panic!("{key}: {:?}", objects.keys()));
    let cluster: EtcdCluster = typed(of("EtcdCluster/etcd/alpha"));
    assert_eq!((cluster.spec.replicas, cluster.spec.version.as_str()), (1, "3.6.16"));
    let restore = cluster.spec.bootstrap.unwrap().restore.unwrap();
    assert_eq!(
        (restore.revision_bump, restore.latest.unwrap().cluster.as_deref()),
        (Some(1_000_000_000_000), Some("old"))
    );
    let _: EtcdBackupStore = typed(of("EtcdBackupStore/etcd/alpha"));
    let hourly: EtcdSnapshotSchedule = typed(of("EtcdSnapshotSchedule/etcd/alpha-hourly"));
    assert_eq!(hourly.spec.cluster_ref.unwrap().name, "alpha");
    assert_eq!(hourly.spec.snapshot_template.destination.store_ref.unwrap().name, "alpha");
    let away: EtcdSnapshotSchedule = typed(of("EtcdSnapshotSchedule/etcd/alpha-away"));
    assert_eq!(
        (away.spec.snapshot_template.destination.store_ref, away.spec.time_zone.as_deref()),
        (None, Some("Europe/Berlin"))
    );
    let test: Pod = typed(of("Pod/etcd/alpha-test"));
    let spec = test.spec.unwrap();
    assert_eq!((spec.volumes, spec.init_containers.unwrap().len(), spec.containers.len()), (None, 3, 1));
    assert_eq!(objects.len(), 5);
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn the_test_of_a_cluster_shows_its_certificate() {
    let objects = rendered("holdfast-cluster", "alpha", "etcd", &["nameOverride=orders", "keep=true"]);
    assert_eq!(
        found(&objects, "EtcdCluster/orders", "/metadata/annotations/helm.sh~1resource-policy").unwrap(),
        "keep"
    );
    let spec = typed::<Pod>(objects.iter().find(|it| it["kind"] == "Pod").unwrap()).spec.unwrap();
    let secret = spec.volumes.as_ref().unwrap()[0].secret.as_ref().unwrap();
    assert_eq!(secret.secret_name.as_deref(), Some("orders-client-tls"));
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        assert_eq!(container.image.as_deref(), Some("gcr.io/etcd-development/etcd:v3.6.16"));
        let words = container.command.as_ref().unwrap();
        assert_eq!(words[..2], ["etcdctl", "--endpoints=https://orders-client.etcd.svc:2379"]);
        for flag in ["--cacert=/tls/ca.crt", "--cert=/tls/tls.crt", "--key=/tls/tls.key"] {
            assert!(words.iter().any(|word| word == flag), "{words:?}");
        }
    }
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn values_that_contradict_each_other_are_refused() {
    // Every workload of a namespace may run as its ServiceAccount `default`, which the admission policies would take for the operator.
    let own = "name the operator's own ServiceAccount";
    for (chart, set, says) in [
        (
            "holdfast-cluster",
            &["mode=restore"][..],
            "set one of restore.snapshotRef, restore.source and restore.latest",
        ),
        ("holdfast-cluster", &["restore.snapshotRef.name=a"], "set mode to restore"),
        ("holdfast-cluster", &["store.create=true"], "set one of store.spec.s3"),
        (
            "holdfast-cluster",
            &["schedules=[{\"name\":\"a\",\"schedule\":\"@daily\"}]"],
            "set store.create or store.name",
        ),
        ("holdfast", &["serviceAccount.create=false"], own),
        ("holdfast", &["serviceAccount.create=false", "serviceAccount.name=default"], own),
    ] {
        let refusal = print(chart, "alpha", "etcd", set).expect_err(says);
        assert!(refusal.contains(says), "{set:?}: {refusal}");
    }
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn the_notes_begin_with_a_cluster() {
    let notes = |chart: &str, set: &[&str]| {
        let path = format!("charts/{chart}");
        let mut words = vec!["install", "alpha", &path, "--namespace", "etcd", "--dry-run=client"];
        words.extend(set.iter().flat_map(|value| ["--set", value]));
        let output = helm(&words);
        assert!(output.status.success(), "{}", said(&output));
        said(&output).split_once("\nNOTES:\n").unwrap().1.to_owned()
    };
    let text = notes("holdfast", &["watch.namespace=shop"]);
    for part in ["kind: EtcdCluster", "kubectl get etcd -n shop", "-n etcd deployment/alpha-holdfast"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let manifest = text.split_once("<<'EOF'\n").unwrap().1.split_once("  EOF\n").unwrap().0;
    let object: Value = serde_saphyr::from_str(&manifest.replace("\n  ", "\n").replacen("  ", "", 1)).unwrap();
    let _: EtcdCluster = typed(&object);
    let text = notes("holdfast-cluster", &[]);
    for part in [
        "https://alpha-client.etcd.svc:2379",
        "helm test alpha -n etcd --logs",
        "keeps the cluster, its store and its schedules",
        "kubectl delete pvc -n etcd -l holdfast.dev/cluster=alpha",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let deleted = &["keep=false", "cluster.storage.retention=Delete"];
    assert!(notes("holdfast-cluster", deleted).contains("deletes the cluster with its volumes"));
    assert!(notes("holdfast-cluster", &deleted[..1]).contains("its claims stay"));
    for (set, says) in
        [("crds.enabled=true", "`helm rollback` puts the CRDs"), ("crds.enabled=false", "contains no CRDs")]
    {
        let text = notes("holdfast", &[set]);
        assert!(text.contains(says), "{set}: {text}");
    }
}

/// Helm deletes an object that a later upgrade or an uninstall leaves out, unless the object says `keep`.
#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn no_default_deletes_data_or_ends_backups() {
    let store =
        ["store.create=true", "store.spec.s3.bucket=abc", "schedules=[{\"name\":\"a\",\"schedule\":\"@daily\"}]"];
    let kept = |set: &[&str]| {
        let objects = rendered("holdfast-cluster", "alpha", "etcd", &[&store[..], set].concat());
        ["EtcdCluster", "EtcdBackupStore", "EtcdSnapshotSchedule"].map(|kind| {
            found(&objects, kind, "/metadata/annotations/helm.sh~1resource-policy")
                .is_some_and(|policy| policy == "keep")
        })
    };
    assert_eq!(kept(&[]), [true; 3]);
    assert_eq!(kept(&["keep=false"]), [false; 3]);
    // The last snapshot needs the store after the cluster is deleted.
    let last = "cluster.finalSnapshot={\"destination\":{\"storeRef\":{\"name\":\"alpha\"}}}";
    assert_eq!(kept(&["keep=false", last]), [false, true, false]);
    for object in rendered("holdfast", "alpha", "etcd", &["commonAnnotations={\"helm.sh/resource-policy\":\"\"}"]) {
        let policy = &object["metadata"]["annotations"]["helm.sh/resource-policy"];
        assert_eq!(policy == "keep", object["kind"] == "CustomResourceDefinition", "{}", object["kind"]);
    }
}

/// YAML has other types for such words, and Kubernetes refuses a name, a label or an annotation that is not a text.
#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn a_release_may_have_the_name_of_a_number_or_a_truth() {
    fn check(place: &str, value: &Value, is_text: bool) {
        match value {
            Value::Object(all) => {
                for (key, value) in all {
                    let texts = ["labels", "annotations", "matchLabels"].contains(&place);
                    let named = ["name", "namespace", "image"].contains(&key.as_str()) || key.ends_with("Name");
                    check(key, value, texts || named);
                }
            }
            Value::Array(all) => all.iter().for_each(|value| check(place, value, false)),
            _ => assert!(!is_text || value.is_string(), "{place}: {value}"),
        }
    }
    let operator = ["crds.enabled=false", "networkPolicy.enabled=true", "monitoring.podMonitor.enabled=true"];
    let cluster =
        ["store.create=true", "store.spec.s3.bucket=abc", "schedules=[{\"name\":\"a\",\"schedule\":\"@daily\"}]"];
    for name in ["y", "on", "123", "null"] {
        let same = ["fullnameOverride", "serviceAccount.name", "priorityClassName", "watch.namespace"];
        let same: Vec<String> = same.iter().map(|value| format!("{value}=\"{name}\"")).collect();
        let set: Vec<&str> = operator.iter().copied().chain(same.iter().map(String::as_str)).collect();
        for (chart, set) in [("holdfast", &set[..]), ("holdfast", &operator), ("holdfast-cluster", &cluster)] {
            let text = print(chart, name, name, set).unwrap_or_else(|why| panic!("{name}: {why}"));
            let bare = text.lines().find(|line| line.trim_end().ends_with(&format!(": {name}")));
            assert_eq!(bare, None, "{chart} {set:?}");
            parsed(&text).iter().for_each(|object| check("", object, false));
        }
    }
}

/// Helm hands the values of a part to its schema, the condition included.
#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn a_chart_may_be_a_part_with_a_condition() {
    let version = env!("CARGO_PKG_VERSION");
    for chart in CHARTS {
        let parent = tempfile::tempdir().unwrap();
        let about = format!(
            "apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies:\n- {{name: {chart}, version: {version}, alias: part, condition: part.enabled}}\n"
        );
        fs::write(parent.path().join("Chart.yaml"), about).unwrap();
        fs::create_dir(parent.path().join("charts")).unwrap();
        std::os::unix::fs::symlink(root().join("charts").join(chart), parent.path().join("charts").join(chart))
            .unwrap();
        let objects = |set: &str| {
            let output = helm(&["template", "alpha", parent.path().to_str().unwrap(), "--set", set]);
            assert!(output.status.success(), "{}", said(&output));
            parsed(&String::from_utf8(output.stdout).unwrap()).len()
        };
        assert!(objects("part.enabled=true") > 1, "{chart}");
        assert_eq!(objects("part.enabled=false"), 0, "{chart}");
    }
}

#[test]
#[ignore = "needs helm: tests/bin/charts"]
fn two_pods_have_a_budget() {
    let objects = rendered("holdfast", "holdfast", "home", &["podDisruptionBudget.enabled=true"]);
    let budget: PodDisruptionBudget = typed(objects.iter().find(|it| it["kind"] == "PodDisruptionBudget").unwrap());
    let labels = found(&objects, "Deployment", "/spec/template/metadata/labels").unwrap();
    assert_eq!(&json!(budget.spec.unwrap().selector.unwrap().match_labels), labels);
}
