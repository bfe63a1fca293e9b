//! A store whose name has an address of IPv4, while DNS answers SERVFAIL or NXDOMAIN for IPv6, and a search domain in which DNS
//! fails: a store of such a name becomes ready, and a snapshot to it completes.
//!
//! A CoreDNS in the story's own namespace serves the names. An admission policy puts it before the cluster's own DNS server in the
//! agent's Pods of this namespace. No other Pod asks it. `snapshot-agent/tests/real/dns.rs` covers many more answers.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::policies::{agent, holds, on_agents, under};
use crate::support::kube_helpers::condition;
use crate::support::make;
use crate::support::stored::manifests;
use crate::support::world::World;

/// The two answers for IPv6, each in a zone below `odd.test`; every name below `trap.test` fails.
const ANSWERS: [&str; 2] = ["servfail", "nxdomain"];

pub async fn tell(w: &World) -> Result<()> {
    let dns = w.step("a DNS server of its own", server(w)).await?;
    let name = format!("{}-asks-another-dns", w.ns);
    let cluster_dns =
        w.env.kubectl(&["get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"])?;
    under(w, &name, policy(w, &dns, cluster_dns.trim()), saved_by_name(w, &dns)).await
}

/// Starts a CoreDNS that knows the S3 server by these names and refuses questions about other zones; returns its address.
async fn server(w: &World) -> Result<String> {
    let s3 = address(&w.get("Service", "s3").await?)?;
    let answers = ANSWERS.map(|code| {
        let code_name = code.to_uppercase();
        format!("    template IN AAAA {code}.odd.test {{\n        rcode {code_name}\n    }}\n")
    });
    let known =
        "    template IN A odd.test {\n        answer \"{{ .Name }} 5 IN A ADDRESS\"\n    }\n".replace("ADDRESS", &s3);
    let corefile = format!(
        "odd.test:1053 {{\n    errors\n    ready :8181\n{}{known}}}\ntrap.test:1053 {{\n    template ANY ANY trap.test {{\n        \
         rcode SERVFAIL\n    }}\n}}\n",
        answers.concat()
    );
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let image = w.env.kubectl(&["get", "deployment", "-n", "kube-system", "coredns", "-o", image])?;
    let mut pod = make::toolbox("odd-dns", image.trim(), &[]);
    pod["metadata"]["labels"]["app"] = json!("odd-dns");
    pod["spec"]["volumes"] = json!([{"name": "config", "configMap": {"name": "odd-dns"}}]);
    let container = &mut pod["spec"]["containers"][0];
    container.as_object_mut().context("a container")?.remove("command");
    container["args"] = json!(["-conf", "/etc/coredns/Corefile"]);
    container["readinessProbe"] = json!({"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1});
    container["volumeMounts"] = json!([{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}]);
    w.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "odd-dns"}, "data": {"Corefile": corefile},
    }))
    .await?;
    w.create(pod).await?;
    let ports = ["UDP", "TCP"]
        .map(|protocol| json!({"name": protocol.to_lowercase(), "port": 53, "targetPort": 1053, "protocol": protocol}));
    let service = w.create(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "odd-dns"},
        "spec": {"selector": {"app": "odd-dns"}, "ports": ports},
    }));
    let address = address(&service.await?)?;
    w.wait("Pod", "odd-dns", "ready", |pod| pod["status"]["containerStatuses"][0]["ready"] == true).await?;
    Ok(address)
}

fn address(service: &Value) -> Result<String> {
    Ok(service["spec"]["clusterIP"].as_str().context("a cluster IP")?.to_owned())
}

/// The agent's Pods ask this DNS server first and the cluster's own second, and try the search domains of the cluster and one more.
fn policy(w: &World, dns: &str, cluster_dns: &str) -> Value {
    let of = "Object.spec.dnsConfig";
    let searches = format!("'trap.test', '{}.svc.cluster.local', 'svc.cluster.local', 'cluster.local'", w.ns);
    let config = format!(
        "{of}{{nameservers: ['{dns}', '{cluster_dns}'], searches: [{searches}], options: [{of}.options{{name: 'ndots', value: '5'}}]}}"
    );
    let expression = format!(
        "[JSONPatch{{op: 'add', path: '/spec/dnsPolicy', value: 'None'}}, JSONPatch{{op: 'add', path: '/spec/dnsConfig', value: \
         {config}}}]"
    );
    on_agents(w, &expression)
}

async fn saved_by_name(w: &World, dns: &str) -> Result<()> {
    holds(w, &agent(w), |made| made["spec"]["dnsConfig"]["nameservers"][0] == dns).await?;
    w.create(make::cluster("orders", 1)).await?;
    w.step("a source", w.wait_ready("orders", 1)).await?;
    for answer in ANSWERS {
        let mut store = make::store(answer, &format!("by-{answer}"));
        store["spec"]["s3"]["endpoint"] = json!(format!("http://s3.{answer}.odd.test:7070"));
        w.create(store).await?;
        let usable = |s: &Value| condition(s, "Ready").is_some_and(|(status, ..)| status == "True");
        let probed = w.wait("EtcdBackupStore", answer, "Ready", usable);
        w.step(&format!("a store with {answer} for IPv6 is ready"), probed).await?;
        w.create(make::snapshot(answer, "orders", json!({"storeRef": {"name": answer}}))).await?;
        let saved = w.step(&format!("a snapshot with {answer} for IPv6"), w.wait_complete(answer)).await?;
        ensure!(manifests(&w.bucket().await?, &saved)?.len() == 1, "it is in the bucket");
        let made = w.names_with("Pod", &format!("holdfast.dev/snapshot={answer}")).await?;
        let pod = w.get("Pod", made.first().context("a Pod that saved")?).await?;
        ensure!(pod["spec"]["dnsPolicy"] == "None", "it asked the cluster's DNS server alone: {}", pod["spec"]);
    }
    Ok(())
}
