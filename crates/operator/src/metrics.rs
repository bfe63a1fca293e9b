//! The operator's own metrics, in the OpenMetrics text format.
//!
//! Decides names and labels. No label here holds an object's name; metrics of each object are in `object_metrics.rs`.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use holdfast_contract::BuildInfo;

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];
type Three = [(&'static str, &'static str); 3];
type Named = [(&'static str, String); 1];

/// All metrics, and the registry that renders them.
pub(super) struct Metrics {
    registry: Registry,
    passes: Family<Two, Counter>,
    pass_seconds: Family<One, Histogram, fn() -> Histogram>,
    acts: Family<One, Counter>,
    writes: Family<Two, Counter>,
    errors: Family<One, Counter>,
    violations: Family<Named, Counter>,
    malformed: Family<One, Counter>,
    watch_failures: Family<One, Counter>,
    events_dropped: Counter,
    clusters: Family<One, Gauge>,
    snapshots: Family<One, Gauge>,
    leader: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// A settled pass takes milliseconds; a pass that waits for silent members takes as long as their deadlines (seconds).
fn pass_buckets() -> Histogram {
    Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
}

impl Metrics {
    /// Returns empty metrics.
    pub(super) fn new(build: BuildInfo) -> Self {
        let mut all = Self {
            registry: Registry::with_prefix("holdfast"),
            passes: Family::default(),
            pass_seconds: Family::new_with_constructor(pass_buckets),
            acts: Family::default(),
            writes: Family::default(),
            errors: Family::default(),
            violations: Family::default(),
            malformed: Family::default(),
            watch_failures: Family::default(),
            events_dropped: Counter::default(),
            clusters: Family::default(),
            snapshots: Family::default(),
            leader: Gauge::default(),
        };
        let registry = &mut all.registry;
        // The library appends `_total` to counters.
        registry.register("passes", "Passes over an object, by kind and outcome", all.passes.clone());
        registry.register("pass_seconds", "Duration of a pass", all.pass_seconds.clone());
        registry.register("acts", "Consequential steps carried out", all.acts.clone());
        registry.register("writes", "Successful writes to the API server and to etcd", all.writes.clone());
        registry.register("errors", "Failed passes, by class of error", all.errors.clone());
        registry.register("safety_violations", "Plans that were not carried out", all.violations.clone());
        registry.register("malformed_objects", "Objects that could not be read", all.malformed.clone());
        registry.register("watch_failures", "Watches that broke and were begun again", all.watch_failures.clone());
        registry.register("events_dropped", "Events that were not published", all.events_dropped.clone());
        registry.register("clusters", "Clusters, by state", all.clusters.clone());
        registry.register("snapshots", "EtcdSnapshots that there are, by phase", all.snapshots.clone());
        registry.register("leader", "1 while this process holds the lease", all.leader.clone());
        let build: Three = [("version", build.version), ("commit", build.commit), ("architecture", build.architecture)];
        registry.register("build", "The running build", Info::new(build));
        all
    }

    /// Counts a pass that ended.
    pub(super) fn pass(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        self.passes.get_or_create(&[("kind", kind), ("outcome", outcome)]).inc();
        self.pass_seconds.get_or_create(&[("kind", kind)]).observe(took.as_secs_f64());
    }

    /// Counts an act that was carried out.
    pub(super) fn act(&self, act: &'static str) {
        self.acts.get_or_create(&[("act", act)]).inc();
    }

    /// Counts a write.
    pub(super) fn write(&self, kind: &'static str, verb: &'static str) {
        self.writes.get_or_create(&[("kind", kind), ("verb", verb)]).inc();
    }

    /// Counts a failed pass.
    pub(super) fn error(&self, class: &'static str) {
        self.errors.get_or_create(&[("class", class)]).inc();
    }

    /// Counts a plan that broke a safety rule.
    pub(super) fn violation(&self, invariant: &str) {
        self.violations.get_or_create(&[("invariant", invariant.to_owned())]).inc();
    }

    /// Counts an unreadable object.
    pub(super) fn malformed(&self, kind: &'static str) {
        self.malformed.get_or_create(&[("kind", kind)]).inc();
    }

    /// Counts a broken watch.
    pub(super) fn watch_failed(&self, kind: &'static str) {
        self.watch_failures.get_or_create(&[("kind", kind)]).inc();
    }

    /// Counts an Event that was not published.
    pub(super) fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// Sets whether this process leads.
    pub(super) fn leading(&self, yes: bool) {
        self.leader.set(i64::from(yes));
    }

    /// Whether this process leads, by the metric.
    pub(super) fn is_leading(&self) -> bool {
        self.leader.get() == 1
    }

    /// Sets the number of clusters in a state.
    pub(super) fn clusters(&self, state: &'static str, count: usize) {
        self.clusters.get_or_create(&[("state", state)]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of snapshots in a phase.
    pub(super) fn snapshots(&self, phase: &'static str, count: usize) {
        self.snapshots.get_or_create(&[("phase", phase)]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Renders all metrics as text, followed by the metrics of each object.
    pub(super) fn render(&self, objects: &Registry) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, objects)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::object_metrics::tests::example;

    /// One of each: a family without a label is not rendered.
    fn filled() -> String {
        let metrics = Metrics::new(BuildInfo::from_compiler(Some("0123456789ab"), "aarch64"));
        metrics.pass("EtcdCluster", "settled", Duration::from_millis(2));
        metrics.act("CreatePod");
        metrics.write("Pod", "create");
        metrics.error("conflict");
        metrics.violation("I4");
        metrics.clusters("ready", 3);
        metrics.snapshots("Failed", 2);
        metrics.malformed("EtcdCluster");
        metrics.watch_failed("Pod");
        metrics.leading(true);
        metrics.render(&example()).unwrap()
    }

    #[test]
    fn names_and_labels_are_as_documented() {
        let text = filled();
        let version = env!("CARGO_PKG_VERSION");
        let build =
            format!("holdfast_build_info{{version=\"{version}\",commit=\"0123456789ab\",architecture=\"arm64\"}} 1");
        for line in [
            "holdfast_passes_total{kind=\"EtcdCluster\",outcome=\"settled\"} 1",
            "holdfast_pass_seconds_count{kind=\"EtcdCluster\"} 1",
            "holdfast_acts_total{act=\"CreatePod\"} 1",
            "holdfast_writes_total{kind=\"Pod\",verb=\"create\"} 1",
            "holdfast_errors_total{class=\"conflict\"} 1",
            "holdfast_safety_violations_total{invariant=\"I4\"} 1",
            "holdfast_clusters{state=\"ready\"} 3",
            "holdfast_snapshots{phase=\"Failed\"} 2",
            "holdfast_leader 1",
            &build,
            "holdfast_cluster_ready{namespace=\"ns\",name=\"a\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_page_about_metrics_names_all_of_them_and_no_other() {
        let page = include_str!("../../../docs/metrics.md");
        let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let told: BTreeSet<&str> = words.filter(|word| word.starts_with("holdfast_")).collect();
        let text = filled();
        let named = |line: &str| {
            let mut words = line.strip_prefix("# TYPE ")?.split(' ');
            let (name, kind) = (words.next()?, words.next()?);
            Some(match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            })
        };
        let there: BTreeSet<String> = text.lines().filter_map(named).collect();
        assert_eq!(told, there.iter().map(String::as_str).collect());
    }
}
