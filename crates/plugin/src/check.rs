//! `check [--wait]`: whether Holdfast is installed and works: kinds, definitions, operator, admission policies.
//!
//! Decides the checks, and the remedy for each. Changes nothing. What the person may not read is unknown, and no failure.

use std::time::{Duration, Instant};

use clap::Args;
use holdfast_api::{GROUP, VERSION};
use serde::Serialize;
use serde_json::Value;

use super::access::{Access, Session};
use super::end::{DONE, FAILED, TIMED_OUT, print};
use super::operators::{self, Operator};
use super::screen::{Output, Screen, Tone, wrap};
use super::version::plurals;
use holdfast_manifests::{admission_names, crds};

/// Interval of looks with `--wait`.
const LOOK: Duration = Duration::from_secs(2);

/// Flags of `check`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CheckFlags {
    /// Wait until every check passes.
    #[arg(long)]
    pub wait: bool,
    /// Time limit of --wait in seconds. Exit code 3 afterwards.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, requires = "wait")]
    pub timeout_seconds: u64,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
    /// Output.
    #[command(flatten)]
    pub output: Output,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// As it has to be.
    Passed,
    /// Not as it has to be.
    Failed,
    /// The person may not look.
    Unknown,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Subject.
    pub subject: String,
    /// Outcome.
    pub verdict: Verdict,
    /// Observation.
    pub found: String,
    /// Remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    fn passed(subject: &str, found: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), verdict: Verdict::Passed, found: found.into(), remedy: None }
    }

    fn failed(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (subject, remedy) = (subject.to_owned(), Some(remedy.into()));
        Self { subject, verdict: Verdict::Failed, found: found.into(), remedy }
    }

    fn unknown(subject: &str, why: &anyhow::Error) -> Self {
        Self { subject: subject.to_owned(), verdict: Verdict::Unknown, found: format!("{why:#}"), remedy: None }
    }
}

/// Runs the checks once, or until they pass.
pub async fn run(flags: CheckFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let limit = Duration::from_secs(flags.timeout_seconds);
    let started = Instant::now();
    let (checks, code) = loop {
        let checks = checks(&session).await?;
        match checks.iter().any(|check| check.verdict == Verdict::Failed) {
            false => break (checks, DONE),
            true if !flags.wait => break (checks, FAILED),
            true if started.elapsed() >= limit => break (checks, TIMED_OUT),
            true => tokio::time::sleep(LOOK).await,
        }
    };
    let text = flags.output.encoded(&checks)?;
    print(&text.unwrap_or_else(|| render(&checks, flags.output.screen())))?;
    Ok(code)
}

async fn checks(session: &Session) -> anyhow::Result<Vec<Check>> {
    let kinds = kinds(session).await?;
    let is_installed = kinds.verdict != Verdict::Failed;
    let mut all = vec![kinds];
    if is_installed {
        all.push(definitions(session).await?);
    }
    all.push(match operators::find(session).await {
        Ok(found) => operator(&found, &session.namespace),
        Err(why) => Check::unknown("operator", &why),
    });
    all.push(policies(session).await);
    Ok(all)
}

/// Whether the API server serves the five kinds. Every user may ask.
async fn kinds(session: &Session) -> anyhow::Result<Check> {
    let list = session.raw(&format!("/apis/{GROUP}"), VERSION).await?.unwrap_or_default();
    let served = plurals(&list);
    let wanted: Vec<String> =
        crds()?.iter().filter_map(|crd| Some(crd["spec"]["names"]["plural"].as_str()?.to_owned())).collect();
    let missing: Vec<&str> = wanted.iter().map(String::as_str).filter(|kind| !served.contains(kind)).collect();
    Ok(if missing.is_empty() {
        Check::passed("kinds", format!("{GROUP}/{VERSION} with {} kinds is served", wanted.len()))
    } else {
        let found = format!("{GROUP}/{VERSION} is not served for {}", missing.join(", "));
        Check::failed("kinds", found, "Install the definitions: kubectl holdfast install")
    })
}

/// Whether each definition has the fields of this version.
async fn definitions(session: &Session) -> anyhow::Result<Check> {
    let mut old = vec![];
    for crd in crds()? {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let there = match session.raw("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name).await {
            Ok(there) => there.unwrap_or_default(),
            Err(why) => return Ok(Check::unknown("definitions", &why)),
        };
        if !is_established(&there) {
            old.push(format!("{name} is not established"));
        } else if let Some(field) = missing_field(schema(&crd), schema(&there), "") {
            old.push(format!("{name} lacks {field}"));
        }
    }
    Ok(if old.is_empty() {
        Check::passed("definitions", "established, with every field of this version")
    } else {
        let remedy = "Apply the definitions of this version: kubectl holdfast install --only crds";
        Check::failed("definitions", old.join("; "), remedy)
    })
}

fn schema(crd: &Value) -> &Value {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

fn is_established(crd: &Value) -> bool {
    let mut conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
}

/// Returns the first field of a schema that another schema lacks.
fn missing_field(wanted: &Value, there: &Value, path: &str) -> Option<String> {
    let below =
        |name: &str| wanted[name].is_object().then(|| missing_field(&wanted[name], &there[name], path)).flatten();
    let fields = wanted["properties"].as_object().into_iter().flatten();
    let mut missing = fields.filter_map(|(name, field)| {
        let path = format!("{path}.{name}");
        match there["properties"].get(name) {
            Some(other) => missing_field(field, other, &path),
            None => Some(path.trim_start_matches('.').to_owned()),
        }
    });
    missing.next().or_else(|| below("items")).or_else(|| below("additionalProperties"))
}

/// Whether an operator that watches this namespace is ready, and has the version of this program.
fn operator(found: &[Operator], namespace: &str) -> Check {
    let watches = |operator: &&Operator| operator.watches.as_deref().is_none_or(|watched| watched == namespace);
    let Some(operator) = found.iter().filter(watches).max_by_key(|operator| operator.ready) else {
        let found = format!("no operator watches namespace {namespace}");
        return Check::failed("operator", found, "Install one: kubectl holdfast install --image IMAGE");
    };
    let Operator { namespace: home, name, image, ready, wanted, .. } = operator;
    if *ready < 1 {
        let remedy = format!("Look at its Pods: kubectl describe pods -n {home} -l app.kubernetes.io/name=holdfast");
        return Check::failed("operator", format!("{home}/{name} has no ready Pod ({image})"), remedy);
    }
    let own = env!("CARGO_PKG_VERSION");
    let differs = operator.version().is_some_and(|version| version != own && version.contains('.'));
    let note = if differs { format!("; this program is {own}") } else { String::new() };
    Check::passed("operator", format!("{home}/{name}: {ready} of {wanted} Pods ready ({image}){note}"))
}

/// Whether the admission policies and their bindings exist.
async fn policies(session: &Session) -> Check {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let mut missing = vec![];
    for name in admission_names() {
        for kind in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
            match session.raw(&format!("{group}/{kind}"), name).await {
                Ok(Some(_)) => {}
                Ok(None) => missing.push(format!("{kind}/{name}")),
                Err(why) => return Check::unknown("admission policies", &why),
            }
        }
    }
    if missing.is_empty() {
        return Check::passed("admission policies", admission_names().join(", "));
    }
    let remedy = "Apply them: kubectl holdfast install --only crds";
    Check::failed("admission policies", format!("missing: {}", missing.join(", ")), remedy)
}

fn render(checks: &[Check], screen: Screen) -> String {
    let mut out = String::new();
    let widest = checks.iter().map(|check| check.subject.chars().count()).max().unwrap_or(0);
    for Check { subject, verdict, found, remedy } in checks {
        let (sign, tone) = match verdict {
            Verdict::Passed => ("✔", Tone::Good),
            Verdict::Failed => ("✖", Tone::Bad),
            Verdict::Unknown => ("?", Tone::Warning),
        };
        let indent = widest + 4;
        let lines = wrap(found, screen.width - indent);
        let first = lines.first().map(String::as_str).unwrap_or_default();
        out.push_str(&format!("{} {subject:widest$}  {first}\n", screen.paint(tone, sign)));
        let rest = lines.iter().skip(1).cloned();
        let remedy = remedy.iter().flat_map(|remedy| wrap(remedy, screen.width - indent));
        for line in rest.chain(remedy) {
            out.push_str(&format!("{}{line}\n", " ".repeat(indent)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_an_older_definition_lacks_is_named() {
        let ours = crds().unwrap();
        let cluster = ours.iter().find(|crd| crd["spec"]["names"]["kind"] == "EtcdCluster").unwrap();
        assert_eq!(missing_field(schema(cluster), schema(cluster), ""), None);
        let mut old = cluster.clone();
        let spec = &mut old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        spec["storage"]["properties"].as_object_mut().unwrap().remove("medium");
        assert_eq!(missing_field(schema(cluster), schema(&old), "").as_deref(), Some("spec.storage.medium"));
        let listed = json!({"properties": {"a": {"items": {"properties": {"b": {}}}}}});
        assert_eq!(missing_field(&listed, &json!({"properties": {"a": {"items": {}}}}), "").as_deref(), Some("a.b"));
        assert!(!is_established(&json!({})));
    }

    #[test]
    fn an_operator_of_another_namespace_does_not_count() {
        let of = |watches: Option<&str>, ready, image: &str| Operator {
            namespace: "home".to_owned(),
            name: "holdfast".to_owned(),
            image: image.to_owned(),
            ready,
            wanted: 1,
            watches: watches.map(str::to_owned),
        };
        let verdict = |found: &[Operator]| operator(found, "shop").verdict;
        assert_eq!(verdict(&[]), Verdict::Failed);
        assert_eq!(verdict(&[of(Some("other"), 1, "i")]), Verdict::Failed);
        assert_eq!(verdict(&[of(None, 0, "i")]), Verdict::Failed);
        assert_eq!(verdict(&[of(None, 0, "i"), of(Some("shop"), 1, "i")]), Verdict::Passed);
        assert!(operator(&[of(None, 1, "holdfast:9.9.9")], "shop").found.contains("this program is"));
        assert!(!operator(&[of(None, 1, "holdfast:e2e")], "shop").found.contains("this program is"));
    }

    #[test]
    fn long_findings_stay_on_the_screen() {
        let screen = Screen { width: 80, coloured: false, is_terminal: false };
        let checks = [
            Check::passed("kinds", "served"),
            Check::failed("admission policies", "missing: ".to_owned() + &"name ".repeat(30), "Apply them"),
        ];
        let text = render(&checks, screen);
        assert!(text.lines().all(|line| line.chars().count() <= 80) && text.contains("Apply them"), "{text}");
        assert!(text.starts_with("✔ kinds               served\n"), "{text}");
    }
}
