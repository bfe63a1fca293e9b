//! Every verb of the plugin with exactly the rights that docs/plugin.md lists for it, under a ServiceAccount of its own.
//!
//! The table of the document is read, not copied: a verb that needs another right fails here, and so does a row that this story does
//! not run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::support::audit;
use crate::support::kube_helpers::{condition, is_ready, until};
use crate::support::make;
use crate::support::world::{PATIENCE, World};

use super::store_trouble::{PROXY, through};

const DOCUMENT: &str = include_str!("../../../docs/plugin.md");

/// A verb of the table, its command line, and a word of its output.
struct Run<'a> {
    row: &'static str,
    line: &'a str,
    says: &'a str,
}

/// Bytes a second of the store.
const SLOW: &str = "slow:6000";

/// Rows whose command waits for an agent and shows its figures, and the step that the store makes slow.
const FIGURES: [(&str, &str); 4] = [
    ("snapshot create", "saving: "),
    ("schedule run", "saving: "),
    ("restore create", "reading the snapshot: "),
    ("restore in-place", "reading the snapshot: "),
];

/// Exit codes of the document.
const DONE: i32 = 0;
const FAILED: i32 = 1;
const WRONG_USE: i32 = 2;
const TIMED_OUT: i32 = 3;

/// The API group of each resource in the table.
fn group(resource: &str) -> Result<&'static str> {
    Ok(match resource.split('/').next().unwrap_or_default() {
        name if name.starts_with("etcd") => "holdfast.dev",
        "pods" | "services" | "persistentvolumeclaims" | "secrets" => "",
        "jobs" | "cronjobs" => "batch",
        "deployments" => "apps",
        "poddisruptionbudgets" => "policy",
        "endpointslices" => "discovery.k8s.io",
        "events" => "events.k8s.io",
        other => bail!("the table names {other}, whose group this story does not know"),
    })
}

/// The rows of the table: the verb, and its rights as rules of a Role.
fn table(cluster: &str) -> Result<Vec<(&'static str, Vec<Value>)>> {
    let (_, rest) = DOCUMENT.split_once("| verb | rights").context("docs/plugin.md has no table of rights")?;
    let mut rows = vec![];
    for line in rest.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [verb, rights] = cells[..] else { bail!("{line}") };
        let verb = verb.trim_matches('`');
        let mut rules = vec![];
        // `resource: verbs`, or `resource NAME: verbs` for one object.
        for right in rights.split('`').skip(1).step_by(2) {
            let (resource, verbs) = right.split_once(": ").with_context(|| format!("{right} in {line}"))?;
            let (resource, name) = resource.split_once(' ').map_or((resource, None), |(r, name)| (r, Some(name)));
            let verbs: Vec<&str> = verbs.split(", ").collect();
            let mut rule = json!({"apiGroups": [group(resource)?], "resources": [resource], "verbs": verbs});
            if let Some(name) = name {
                rule["resourceNames"] = json!([name.replace("CLUSTER", cluster)]);
            }
            rules.push(rule);
        }
        rows.push((verb, rules));
    }
    ensure!(rows.len() > 15, "{rows:?}");
    Ok(rows)
}

/// A person with a Role, and a folder for files.
struct Person<'a> {
    w: &'a World,
    folder: PathBuf,
}

impl Person<'_> {
    /// Makes a ServiceAccount with these rules; returns its kubeconfig.
    async fn kubeconfig(&self, name: &str, rules: &[Value]) -> Result<PathBuf> {
        let (w, ns) = (self.w, &self.w.ns);
        let rbac = "rbac.authorization.k8s.io";
        let objects = [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}),
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": name}, "rules": rules}),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": ns}],
            }),
        ];
        for object in &objects {
            w.apply(&object.to_string()).await?;
        }
        let token = w.env.kubectl(&["create", "token", name, "-n", ns, "--duration=1h"])?;
        let admin = Kubeconfig::read_from(&w.env.kubeconfig)?;
        let cluster = admin.clusters.first().context("a cluster")?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [cluster],
            "users": [{"name": name, "user": {"token": token.trim()}}],
            "contexts": [{"name": name, "context": {"cluster": cluster.name, "user": name, "namespace": ns}}],
        });
        let path = self.folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Runs a command line of the plugin; returns its exit code and all that it printed.
    fn run(&self, kubeconfig: &Path, line: &str) -> Result<(i32, String)> {
        // As kubectl starts a plugin: under the plugin's own name.
        let program = self.folder.join("kubectl-holdfast");
        if !program.exists() {
            std::os::unix::fs::symlink(&self.w.env.holdfast, &program)?;
        }
        // The first file of the list does not exist, as in many shells.
        let list = std::env::join_paths([self.folder.join("gone"), kubeconfig.to_owned()])?;
        let mut command = Command::new(&program);
        command.args(line.split_whitespace()).env("KUBECONFIG", list).current_dir(&self.folder);
        let out = command.output().with_context(|| format!("run {line}"))?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        Ok((out.status.code().unwrap_or(-1), text))
    }
}

/// Makes a cluster with certificates, a store and a schedule.
async fn furnish(w: &World) -> Result<()> {
    w.apply(&PROXY.replace("localhost/holdfast-probe:1", &w.env.probe_image)).await?;
    w.wait("Deployment", "s3-fault", "ready", |d| d["status"]["readyReplicas"] == 1).await?;
    let mut store = make::store("vault", "plugin");
    store["spec"]["s3"]["endpoint"] = through()["endpoint"].clone();
    w.create(store).await?;
    let mut schedule = make::schedule("hourly", "p", "0 3 1 1 *", json!({"storeRef": {"name": "vault"}}));
    schedule["spec"]["snapshotTemplate"]["compression"] = json!("none");
    w.create(make::secured("p", 3)).await?;
    w.create(schedule).await?;
    let ready = w.wait("EtcdCluster", "p", "three voters", |cluster| is_ready(cluster, 3));
    w.step("three voters", ready).await?;
    let has_cron = |s: &Value| s["status"]["cronJob"]["name"].is_string();
    w.step("the schedule's CronJob", w.wait("EtcdSnapshotSchedule", "hourly", "a CronJob", has_cron)).await?;
    let usable = |s: &Value| condition(s, "Ready").is_some_and(|(status, ..)| status == "True");
    w.step("the store", w.wait("EtcdBackupStore", "vault", "usable", usable)).await?;
    // Some seconds for a save or a restore of the small database: the person sees progress.
    w.fault(SLOW).await.map(drop)
}

pub async fn tell(w: &World) -> Result<()> {
    furnish(w).await?;
    let folder = w.env.logs.join(format!("{}-{}", w.story, std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let person = Person { w, folder };
    let told = verbs(&person).await;
    std::fs::remove_dir_all(&person.folder)?;
    told
}

async fn verbs(person: &Person<'_>) -> Result<()> {
    let w = person.w;
    let members = w.names("EtcdMember").await?;
    let [first, second, _] = &members[..] else { bail!("{members:?}") };
    let leader = w.get("EtcdCluster", "p").await?["status"]["leader"].clone();
    let follower = members.iter().find(|name| leader != name.as_str()).context("a follower")?;
    let lead = format!("member move-leader p {follower} --wait --timeout-seconds=120");
    let (restart, replace) =
        (format!("member restart p {first} --wait"), format!("member replace p {second} --wait --timeout-seconds=240"));
    let run = |row, line, says| Run { row, line, says };
    let runs = [
        run("status", "status p", "MEMBERS"),
        run("status", "status", "ready"),
        run("status", "status p -o json", "\"members\""),
        run(
            "snapshot create",
            "snapshot create --cluster=p --name=one --to=store://vault --compression=none --wait",
            "s3://",
        ),
        // A repetition reads the object that exists.
        run(
            "snapshot create",
            "snapshot create --cluster=p --name=one --to=store://vault --compression=none --wait",
            "unchanged",
        ),
        run("snapshot list", "snapshot list p", "HashKV"),
        run("snapshot hold", "snapshot hold one", "held"),
        run("snapshot release", "snapshot release one", "released"),
        run("schedule run", "schedule run hourly --wait --timeout-seconds=240", "s3://"),
        run("schedule suspend", "schedule suspend hourly", "suspended"),
        run("schedule resume", "schedule resume hourly", "resumed"),
        run("upgrade plan", "upgrade plan p --to=3.6.17", "EtcdCluster p"),
        run("restore plan", "restore plan p --snapshot=one", "comes back"),
        run("restore plan", "restore plan p --at-revision=1000000", "and the log"),
        run("undelete", "undelete p --snapshot=one --all-keys --apply", "missing   no keys"),
        run("restore create", "restore create p --snapshot=one --as=q --wait --timeout-seconds=240", "q created"),
        run("certificate", "certificate p --out=tls", "ETCDCTL_CACERT"),
        run("etcdctl", "etcdctl p -- endpoint status", "127.0.0.1"),
        run("logs", "logs p --tail=3", first),
        run("member move-leader", &lead, "leadership requested"),
        run("cluster pause", "cluster pause p", "paused"),
        run("cluster resume", "cluster resume p", "resumed"),
        run("cluster restart", "cluster restart p --wait --timeout-seconds=240", "restart requested"),
        run("cluster renew-certificates", "cluster renew-certificates p", "renewal of certificates requested"),
        run(
            "cluster rotate-ca",
            "cluster rotate-ca p --plane=peer --wait --timeout-seconds=240",
            "exchange of CAs requested",
        ),
        run("member restart", &restart, "evicted"),
        run("member replace", &replace, "replacement requested"),
        run("cluster scale", "cluster scale p --replicas=0 --wait --timeout-seconds=240", "scaled"),
        run("cluster scale", "cluster scale p --replicas=3 --wait --timeout-seconds=240", "scaled"),
        run("report", "report p --out=bundle.tar.gz", "status/p.txt"),
        run("recover plan", "recover plan p", "has a quorum"),
        run("version", "version", "operator"),
        run("check", "check", "operator"),
        run("restore in-place", "restore in-place p --plan --at-revision=1000000", "and the log"),
        run(
            "restore in-place",
            "restore in-place p --snapshot=one --wait --timeout-seconds=400",
            "without a member for clients",
        ),
    ];
    let rows = table("p")?;
    let named: BTreeSet<&str> = rows.iter().map(|(verb, _)| *verb).collect();
    let ran: BTreeSet<&str> = runs.iter().map(|run| run.row).collect();
    ensure!(named == ran, "rows that no command runs: {:?}", named.symmetric_difference(&ran).collect::<Vec<_>>());
    for Run { row, line, says } in runs {
        let rules = &rows.iter().find(|(verb, _)| *verb == row).context("a row")?.1;
        let kubeconfig = person.kubeconfig(&format!("only-{}", row.replace(' ', "-")), rules).await?;
        w.step(line, async {
            let (code, text) = person.run(&kubeconfig, line)?;
            // The plan of an upgrade to a version that is not loaded has a code of its own.
            ensure!(code == DONE || (row == "upgrade plan" && code == TIMED_OUT), "{line} ended with {code}: {text}");
            ensure!(text.contains(says), "{line} does not say {says}: {text}");
            // Of the object that exists already there is nothing to wait for.
            let waits = line.contains("--wait") && says != "unchanged";
            let figures = FIGURES.iter().find(|(figured, _)| waits && *figured == row);
            let shown = |step: &str| text.lines().any(|line| line.contains(step) && line.contains("B/s"));
            ensure!(figures.is_none_or(|(_, step)| shown(step)), "{line} shows no figures: {text}");
            // `check` and `version` name rights that only a ClusterRole gives.
            ensure!(
                !text.contains("do not permit") && (!text.contains("forbidden") || ["check", "version"].contains(&row)),
                "{line}: {text}"
            );
            Ok(())
        })
        .await?;
        settle(w, row, follower).await?;
    }
    without_figures(person).await?;
    refused_leader(w).await?;
    bundle(person)?;
    let idle = unused(w, &rows)?;
    ensure!(idle.is_empty(), "rights of the table that no request needs: {idle:?}");
    codes(person).await
}

/// Checks the cluster after a command, and makes room for the next one.
async fn settle(w: &World, row: &str, follower: &str) -> Result<()> {
    match row {
        "member move-leader" => {
            let cluster = w.get("EtcdCluster", "p").await?;
            ensure!(cluster["status"]["leader"] == follower, "the leader: {}", cluster["status"]);
            ensure!(cluster["metadata"]["annotations"]["holdfast.dev/move-leader"].is_null(), "the request stays");
        }
        "restore create" => w.delete_and_wait("EtcdCluster", "q").await?,
        "restore in-place" => {
            let ready = w.wait("EtcdCluster", "p", "three voters", |cluster| is_ready(cluster, 3));
            w.step("three voters of the present timeline", ready).await?;
        }
        _ => {}
    }
    Ok(())
}

/// A request for a member that does not exist ends with an Event.
async fn refused_leader(w: &World) -> Result<()> {
    let request = json!({"metadata": {"annotations": {"holdfast.dev/move-leader": "p-none"}}});
    w.patch("EtcdCluster", "p", request).await?;
    let ended = |cluster: &Value| cluster["metadata"]["annotations"]["holdfast.dev/move-leader"].is_null();
    w.step("a request that is refused", w.wait("EtcdCluster", "p", "no request", ended)).await?;
    until("its Event", PATIENCE, async || {
        let events = w.env.kubectl(&["get", "events", "-n", &w.ns, "--field-selector=reason=LeaderRequestRefused"])?;
        Ok(if events.contains("Warning") && events.contains("p-none") { Ok(()) } else { Err(events) })
    })
    .await
}

/// Without a right for the figures a save is the same; a line names the right, and the lines have the time.
async fn without_figures(person: &Person<'_>) -> Result<()> {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let snapshots = rule("holdfast.dev", "etcdsnapshots", &["create", "get", "list", "watch"]);
    let pods = rule("", "pods", &["list"]);
    for (name, rules, lacks) in [
        ("no-pods", vec![snapshots.clone()], "do not permit to list pods"),
        ("no-proxy", vec![snapshots, pods], "do not permit to get pods/proxy"),
    ] {
        let kubeconfig = person.kubeconfig(name, &rules).await?;
        let line = format!("snapshot create --cluster=p --name={name} --to=store://vault --wait");
        let (code, text) = person.run(&kubeconfig, &line)?;
        ensure!(code == DONE && text.contains("s3://"), "{line} ended with {code}: {text}");
        ensure!(text.matches(lacks).count() == 1 && !text.contains("B/s"), "{line}: {text}");
        ensure!(text.lines().any(|line| line.contains(" s  Running")), "{line} shows no time: {text}");
    }
    Ok(())
}

/// Rights of the table that no answered request used, by the API server's audit log.
fn unused(w: &World, rows: &[(&str, Vec<Value>)]) -> Result<Vec<String>> {
    let Some(log) = audit::read()? else { return Ok(vec![]) };
    let people = format!("system:serviceaccount:{}:only-", w.ns);
    let mut used = BTreeSet::new();
    for line in log.lines().filter(|line| memchr::memmem::find(line.as_bytes(), people.as_bytes()).is_some()) {
        let event: Value = serde_json::from_str(line)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(row) = text(&event["user"]["username"]).strip_prefix(&people).map(str::to_owned) else { continue };
        let object = &event["objectRef"];
        let below = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        used.insert((row, text(&object["resource"]) + &below, text(&event["verb"])));
    }
    let mut idle = vec![];
    for (row, rules) in rows {
        for (resource, verb) in rules.iter().flat_map(|rule| {
            let verbs = rule["verbs"].as_array().into_iter().flatten();
            verbs.map(|verb| (rule["resources"][0].as_str().unwrap_or_default(), verb.as_str().unwrap_or_default()))
        }) {
            // The log leaves out reads of events, and has an upgrade to WebSocket as the GET that it is.
            let is_silent = resource == "events" || (resource, verb) == ("pods/portforward", "create");
            let key = (row.replace(' ', "-"), resource.to_owned(), verb.to_owned());
            if !is_silent && !used.contains(&key) {
                idle.push(format!("{row}: {verb} {resource}"));
            }
        }
    }
    Ok(idle)
}

/// The bundle has objects and logs, and no key.
fn bundle(person: &Person<'_>) -> Result<()> {
    let read = |args: &[&str]| -> Result<String> {
        let out = Command::new("tar").args(args).current_dir(&person.folder).output()?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let names = read(&["tzf", "bundle.tar.gz"])?;
    let first = names.lines().next();
    ensure!(
        first == Some("CONTENTS") && names.contains("objects/etcdclusters.yaml") && names.contains("/etcd.log"),
        "{names}"
    );
    let all = read(&["xzOf", "bundle.tar.gz"])?;
    let key = std::fs::read_to_string(person.folder.join("tls/tls.key"))?;
    ensure!(
        !all.contains("PRIVATE KEY") && !all.contains(key.lines().nth(1).context("a key")?),
        "the bundle holds a key"
    );
    ensure!(!all.contains("kind: Secret"), "the bundle holds a Secret");
    Ok(())
}

/// Exit codes without rights, with a wrong name, and after the time of `--wait`.
async fn codes(person: &Person<'_>) -> Result<()> {
    let no_rights = person.kubeconfig("nothing", &[]).await?;
    let (code, text) = person.run(&no_rights, "status p")?;
    ensure!(code == FAILED && text.contains("do not permit to get etcdclusters"), "{code}: {text}");
    let cluster_alone =
        json!({"apiGroups": ["holdfast.dev"], "resources": ["etcdclusters"], "verbs": ["get", "patch"]});
    let little = person.kubeconfig("little", &[cluster_alone]).await?;
    let (code, text) = person.run(&little, "status p")?;
    ensure!(code == DONE && text.contains("NOT READ") && text.contains("Pods are not shown"), "{code}: {text}");
    let (code, text) = person.run(&little, "status none")?;
    ensure!(code == WRONG_USE && text.contains("there is no EtcdCluster none"), "{code}: {text}");
    let (code, text) = person.run(&little, "status p --context none")?;
    ensure!(code == WRONG_USE && text.contains("none"), "{code}: {text}");
    let (code, text) = person.run(&little, "cluster scale p --replicas=1 --wait --timeout-seconds=0")?;
    ensure!(code == TIMED_OUT && text.contains("the work goes on"), "{code}: {text}");
    Ok(())
}
