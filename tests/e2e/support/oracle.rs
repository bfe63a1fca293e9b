//! Compares the ends of two runs: the same objects with the same fields, and the same number of creations and deletions.
//!
//! Only parts that differ between undisturbed runs are omitted (`mask`). Counts by kind and name find defects that an end state
//! hides: a second seed that was deleted again, a Pod that was created twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::kube_helpers;
use super::ledger::{Count, Ledger};
use super::mask::Mask;
use super::world::{PATIENCE, World};
use kube::ResourceExt;
use kube::api::ListParams;

const KINDS: [&str; 11] = [
    "EtcdCluster",
    "EtcdMember",
    "EtcdSnapshot",
    "EtcdSnapshotSchedule",
    "EtcdUser",
    "Pod",
    "PersistentVolumeClaim",
    "Service",
    "PodDisruptionBudget",
    "Job",
    "CronJob",
];

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Each object, masked, with the number of its occurrences.
    objects: BTreeMap<String, usize>,
    counts: BTreeMap<String, Count>,
}

/// Pause between reads that have to be equal.
const STILL: Duration = Duration::from_secs(3);

impl End {
    /// Reads the present state.
    async fn now(w: &World, ledger: &Ledger, mask: &Mask) -> Result<Self> {
        let mut objects = BTreeMap::new();
        for kind in KINDS {
            for object in w.api(kind).list(&ListParams::default()).await?.items {
                if mask.owns(&object.name_any()) {
                    *objects.entry(masked(kind, &kube_helpers::json(&object), mask)).or_default() += 1;
                }
            }
        }
        let counts = ledger.counts(|name| mask.owns(name).then(|| mask.text(name)));
        Ok(Self { objects, counts })
    }

    /// Reads the state until three reads are equal: other runs are compared with it.
    pub async fn reached(w: &World, ledger: &Ledger, mask: &Mask) -> Result<Self> {
        Self::alike(3, w, ledger, mask).await
    }

    /// Reads the state until `looks` reads are equal.
    async fn alike(looks: usize, w: &World, ledger: &Ledger, mask: &Mask) -> Result<Self> {
        let begun = Instant::now();
        let (mut last, mut alike) = (Self::now(w, ledger, mask).await?, 1);
        while alike < looks {
            tokio::time::sleep(STILL).await;
            let now = Self::now(w, ledger, mask).await?;
            alike = if now == last { alike + 1 } else { 1 };
            if begun.elapsed() > PATIENCE {
                bail!("the end does not stand still: {}", differences(&last, &now));
            }
            last = now;
        }
        Ok(last)
    }

    /// Whether a count exceeds the reference's: counts never fall again. A lower count may be a watch event that is still to come.
    fn exceeds(&self, reference: &Self) -> bool {
        self.counts.iter().any(|(key, (created, deleted))| {
            let (most_created, most_deleted) = reference.counts.get(key).copied().unwrap_or_default();
            *created > most_created || *deleted > most_deleted
        })
    }

    /// Waits for the same end as the reference's. A stable state that differs is an error with the differences.
    pub async fn same(w: &World, ledger: &Ledger, mask: &Mask, reference: &Self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let now = Self::alike(2, w, ledger, mask).await?;
            if now == *reference {
                return Ok(());
            }
            // Conditions that follow probes settle with the slowest probe.
            if now.exceeds(reference) || begun.elapsed() > PATIENCE {
                bail!("it ended otherwise than the undisturbed run:\n{}", differences(reference, &now));
            }
        }
    }
}

fn differences(should: &End, is: &End) -> String {
    let mut out = vec![];
    for (key, count) in &should.counts {
        let other = is.counts.get(key).copied().unwrap_or_default();
        if other != *count {
            out.push(format!("{key}: created and deleted {other:?} times, undisturbed {count:?}"));
        }
    }
    out.extend(
        is.counts
            .iter()
            .filter(|(key, _)| !should.counts.contains_key(*key))
            .map(|(key, count)| format!("{key}: created and deleted {count:?} times, undisturbed never")),
    );
    // Objects that only one side has, paired with an object of the same kind and name of the other side where there is one.
    let lacking = |a: &End, b: &End| -> Vec<Value> {
        let only = a.objects.iter().filter(|(text, n)| b.objects.get(*text) != Some(*n));
        only.filter_map(|(text, _)| serde_json::from_str(text).ok()).collect()
    };
    let called = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    let mut strange = lacking(is, should);
    for object in lacking(should, is) {
        match strange.iter().position(|other| called(other) == called(&object)) {
            Some(at) => compare(&called(&object), &object, &strange.remove(at), &mut out),
            None => out.push(format!("{}: another number of them, or none", called(&object))),
        }
    }
    out.extend(strange.iter().map(|object| format!("{}: not in the undisturbed run: {object}", called(object))));
    out.join("\n")
}

/// Writes the places where two values differ.
fn compare(path: &str, should: &Value, is: &Value, out: &mut Vec<String>) {
    match (should, is) {
        (Value::Object(a), Value::Object(b)) => {
            for field in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                compare(&format!("{path}.{field}"), &should[field], &is[field], out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{n}]"), a, b, out);
            }
        }
        _ if should == is => {}
        _ => out.push(format!("{path}: {is}, undisturbed {should}")),
    }
}

/// The compared parts of an object: its name, its owners, its spec, and the lasting part of its status.
fn masked(kind: &str, object: &Value, mask: &Mask) -> String {
    let mut meta = object["metadata"].clone();
    if let (Some(annotations), "Pod" | "PersistentVolumeClaim") = (meta["annotations"].as_object_mut(), kind) {
        // Kubernetes' own annotations about binding and scheduling.
        annotations.retain(|name, _| !name.contains("kubernetes.io/"));
    }
    if let (Some(annotations), "Job") = (meta["annotations"].as_object_mut(), kind) {
        // The key of a stored snapshot holds times and random parts, as in the request.
        annotations.remove("holdfast.dev/rehearses");
    }
    let status = &object["status"];
    let conditions = status["conditions"]
        .as_array()
        .map(|all| all.iter().map(|c| json!([c["type"], c["status"], c["reason"]])).collect::<Vec<Value>>());
    let lasting = match kind {
        "EtcdCluster" => json!([status["latches"], status["voters"], status["replicas"], conditions]),
        "EtcdMember" => json!([conditions]),
        "EtcdSnapshot" => json!([status["phase"], status["attempts"], conditions]),
        "EtcdSnapshotSchedule" => json!([status["active"], status["consecutiveFailures"], conditions]),
        "Pod" | "PersistentVolumeClaim" => status["phase"].clone(),
        _ => Value::Null,
    };
    let whole = json!({"kind": kind, "metadata": meta, "spec": object["spec"], "status": lasting});
    mask.value(&whole).to_string()
}
