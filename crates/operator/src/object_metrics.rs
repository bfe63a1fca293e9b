//! Metrics of each cluster, each store and each schedule, computed from the caches for each scrape: the series of a deleted
//! object vanish.
//!
//! Decides names and labels. The operator's own metrics are in `metrics.rs`.

use std::sync::Arc;

use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::snapshot::EXTERNAL;
use holdfast_api::tls::TlsStatus;
use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdSnapshotSchedule};
use holdfast_plan::schedule::{Line, drill_overdue_at, fresh, overdue_at, standing_drill_failure};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Object = [(&'static str, String); 2];
type Leveled = [(&'static str, String); 3];
type OfMember = [(&'static str, String); 3];
type Planed = [(&'static str, String); 4];

type Scheduled = [(&'static str, String); 3];
type ScheduledLevel = [(&'static str, String); 4];

/// Adds a gauge with series of these labels.
fn register<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> Family<[(&'static str, String); N], Gauge> {
    let family = Family::default();
    registry.register(name, help, Family::clone(&family));
    family
}

/// Returns one series for each object. `schedules`: empty where another process leads.
pub(super) fn registry(
    clusters: &[Arc<EtcdCluster>],
    stores: &[Arc<EtcdBackupStore>],
    schedules: &[Arc<EtcdSnapshotSchedule>],
    now: Timestamp,
) -> Registry {
    let mut registry = Registry::with_prefix("holdfast");
    let mut gauge = |name: &str, help: &str| -> Family<Object, Gauge> { register(&mut registry, name, help) };
    let ready = gauge("cluster_ready", "1 while the condition Ready of the EtcdCluster is True");
    let degraded = gauge("cluster_degraded", "1 while the condition Degraded of the EtcdCluster is True");
    let help = "1 while a database has reached its quota and only a person makes room";
    let exhausted = gauge("cluster_space_exhausted", help);
    let at_risk = gauge("cluster_at_risk", "1 while the condition AtRisk of the EtcdCluster is True");
    let voters = gauge("cluster_voters", "Voters of the etcd cluster");
    let wanted = gauge("cluster_wanted_members", "Members that the spec asks for");
    let usable = gauge("store_usable", "1 while the condition Ready of the EtcdBackupStore is True");
    let help = "Completion of the newest complete EtcdSnapshot, and its level of proof";
    let last: Family<Leveled, Gauge> = register(&mut registry, "cluster_last_snapshot_timestamp_seconds", help);
    let help = "End of the newest defragmentation of a member";
    let defragmented: Family<OfMember, Gauge> =
        register(&mut registry, "member_last_defragmentation_timestamp_seconds", help);
    let help = "Bytes that the newest defragmentation of a member gave back";
    let reclaimed: Family<OfMember, Gauge> = register(&mut registry, "member_last_reclaimed_bytes", help);
    let help = "Earliest end of a certificate, as seconds since 1970, by plane and kind (leaf or ca)";
    let expiry: Family<Planed, Gauge> = register(&mut registry, "tls_earliest_expiry_seconds", help);
    for cluster in clusters {
        let object = labels(&**cluster);
        let status = cluster.status.as_ref();
        let conditions = status.map_or(&[][..], |s| &s.conditions);
        for (family, kind) in [(&ready, Type::Ready), (&degraded, Type::Degraded), (&at_risk, Type::AtRisk)] {
            family.get_or_create(&object).set(holds(conditions, kind));
        }
        let fault = condition::find(conditions, Type::Degraded);
        let is_exhausted = fault.is_some_and(|c| c.status == "True" && c.reason == Reason::SpaceExhausted.as_str());
        exhausted.get_or_create(&object).set(is_exhausted.into());
        for done in status.map_or(&[][..], |s| &s.latches.defragmented) {
            let [namespace, name] = object.clone();
            let series = [namespace, name, ("member", done.member.clone())];
            reclaimed.get_or_create(&series).set(done.before_bytes - done.after_bytes);
            if let Ok(at) = done.at.parse::<Timestamp>() {
                defragmented.get_or_create(&series).set(at.as_second());
            }
        }
        voters.get_or_create(&object).set(status.map_or(0, |s| s.voters.into()));
        wanted.get_or_create(&object).set(cluster.spec.replicas.into());
        for (plane, kind, until) in status.and_then(|s| s.tls.as_ref()).map(ends).unwrap_or_default() {
            let [namespace, name] = object.clone();
            let series = [namespace, name, ("plane", plane.to_owned()), ("kind", kind.to_owned())];
            expiry.get_or_create(&series).set(until.as_second());
        }
        let saved = status.and_then(|s| s.last_snapshot.as_ref());
        if let Some((saved, at)) = saved.and_then(|s| Some((s, s.completed_at.parse::<Timestamp>().ok()?))) {
            let [namespace, name] = object;
            let level = ("level", saved.level.as_str().to_owned());
            last.get_or_create(&[namespace, name, level]).set(at.as_second());
        }
    }
    for store in stores {
        let conditions = store.status.as_ref().map_or(&[][..], |s| &s.conditions);
        usable.get_or_create(&labels(&**store)).set(holds(conditions, Type::Ready));
    }
    of_schedules(&mut registry, schedules, now);
    of_drills(&mut registry, schedules, now);
    of_logs(&mut registry, schedules);
    registry
}

/// Adds the backups of each schedule by its status; the time of the scrape decides whether they are fresh.
fn of_schedules(registry: &mut Registry, schedules: &[Arc<EtcdSnapshotSchedule>], now: Timestamp) {
    let mut gauge = |name: &str, help: &str| -> Family<Scheduled, Gauge> { register(registry, name, help) };
    let last = gauge("schedule_last_run_timestamp_seconds", "Start of the newest recorded run");
    let next = gauge("schedule_next_run_timestamp_seconds", "Next due time; absent while no run starts");
    let seconds = gauge("schedule_last_duration_seconds", "Duration of the newest complete run");
    let stored = gauge("schedule_last_stored_bytes", "Size of the newest complete backup in the store");
    let database = gauge("schedule_last_db_bytes", "Size of the database of the newest complete backup");
    let is_fresh = gauge(
        "schedule_fresh",
        "0 while a backup is overdue, the newest run failed or a run was skipped, 1 while the newest backup is fresh; absent while the operator does not know",
    );
    let overdue = gauge("schedule_overdue", "1 while two due times and the deadline passed without a complete backup");
    let ready =
        gauge("schedule_ready", "1 while the CronJob is as asked for, or a person suspended it or parked the cluster");
    let failures = gauge("schedule_consecutive_failures", "Runs that failed since the newest complete backup");
    let blocked = gauge("schedule_retention_blocked", "1 while what the retention does not keep cannot be removed");
    let help = "Start of the newest complete run, and its level of proof";
    let success: Family<ScheduledLevel, Gauge> = register(registry, "schedule_last_success_timestamp_seconds", help);
    for schedule in schedules {
        let (spec, Some(status)) = (&schedule.spec, &schedule.status) else { continue };
        let cluster = spec.cluster_ref.as_ref().map_or(EXTERNAL, |cluster| &cluster.name);
        let [namespace, (_, name)] = labels(&**schedule);
        let object = [namespace.clone(), ("cluster", cluster.to_owned()), ("schedule", name.clone())];
        let time = |text: Option<&String>| text.and_then(|at| at.parse::<Timestamp>().ok()).map(Timestamp::as_second);
        let set = |family: &Family<Scheduled, Gauge>, value: i64| {
            family.get_or_create(&object).set(value);
        };
        if let Some(at) = time(status.last_time.as_ref()) {
            set(&last, at);
        }
        if let Some(at) = time(status.next_time.as_ref()) {
            set(&next, at);
        }
        set(&failures, status.consecutive_failures.into());
        set(&ready, holds(&status.conditions, Type::Ready));
        if let (Some(_), Ok(line)) = (&status.active_since, Line::parse(&spec.schedule, spec.time_zone.as_deref())) {
            let freshness = fresh(spec, status, &line, now);
            if let Some(state) = freshness.state {
                set(&is_fresh, state.into());
            }
            let late = overdue_at(spec, status, &line).is_some_and(|due| now >= due);
            set(&overdue, i64::from(late));
        }
        if let Some(condition) = condition::find(&status.conditions, Type::RetentionApplied) {
            set(&blocked, i64::from(condition.status == "False"));
        }
        if let Some(done) = &status.last_successful {
            let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            set(&seconds, done.seconds);
            set(&stored, bytes(done.stored_bytes));
            set(&database, bytes(done.db_bytes));
            if let Some(at) = time(Some(&done.taken_at)) {
                let [namespace, cluster, name] = object.clone();
                let level = ("level", done.level.as_str().to_owned());
                success.get_or_create(&[namespace, cluster, name, level]).set(at);
            }
        }
    }
}

/// Adds the drills of each schedule; the time of the scrape decides whether they are overdue.
fn of_drills(registry: &mut Registry, schedules: &[Arc<EtcdSnapshotSchedule>], now: Timestamp) {
    let mut gauge = |name: &str, help: &str| -> Family<Scheduled, Gauge> { register(registry, name, help) };
    let last = gauge("schedule_drill_last_passed_timestamp_seconds", "End of the newest passed drill");
    let restore =
        gauge("schedule_drill_restore_seconds", "Seconds until the newest passed drill had restored the data");
    let serve = gauge("schedule_drill_serve_seconds", "Seconds until etcd served the data of the newest passed drill");
    let ready =
        gauge("schedule_drill_ready_seconds", "Seconds until kube-apiserver was ready in the newest passed drill");
    let failed = gauge(
        "schedule_drill_failed",
        "1 while a drill has found broken bytes or undecodable objects, and no later one has passed",
    );
    let overdue = gauge("schedule_drill_overdue", "1 while no drill passed in time; absent while no drill starts");
    for schedule in schedules {
        let status = schedule.status.as_ref().and_then(|status| status.drill.as_ref());
        let (Some(drill), Some(status)) = (&schedule.spec.drill, status) else { continue };
        let cluster = schedule.spec.cluster_ref.as_ref().map_or(EXTERNAL, |cluster| &cluster.name);
        let [namespace, (_, name)] = labels(&**schedule);
        let object = [namespace, ("cluster", cluster.to_owned()), ("schedule", name)];
        let set = |family: &Family<Scheduled, Gauge>, value: i64| {
            family.get_or_create(&object).set(value);
        };
        set(&failed, i64::from(standing_drill_failure(status).is_some()));
        if let Some(due) = drill_overdue_at(drill, status) {
            set(&overdue, i64::from(now >= due));
        }
        let Some(passed) = &status.last_passed else { continue };
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        set(&restore, seconds(passed.restore_seconds));
        set(&serve, seconds(passed.serve_seconds));
        if let Some(found) = &passed.kubernetes {
            set(&ready, seconds(found.ready_seconds));
        }
        if let Ok(at) = passed.at.parse::<Timestamp>() {
            set(&last, at.as_second());
        }
    }
}

/// Adds the log of each schedule, as its status has it.
fn of_logs(registry: &mut Registry, schedules: &[Arc<EtcdSnapshotSchedule>]) {
    let mut gauge = |name: &str, help: &str| -> Family<Scheduled, Gauge> { register(registry, name, help) };
    let revision = gauge("schedule_log_revision", "The last stored revision, refreshed every five minutes");
    let help = "Time up to which the stored log is complete, refreshed every five minutes";
    let until = gauge("schedule_log_stored_timestamp_seconds", help);
    let rpo = gauge("schedule_log_rpo_seconds", "Largest age of the end of the stored log in ten minutes");
    let behind = gauge("schedule_log_behind", "1 while the stored log ends too long ago");
    let help = "1 while revisions are missing from the log, and no later snapshot is complete";
    let interrupted = gauge("schedule_log_interrupted", help);
    let help = "Merges that failed since the newest one that succeeded; absent without merges, and while the schedule is suspended";
    let failures = gauge("schedule_log_merge_failures", help);
    let merged = gauge("schedule_log_last_merge_timestamp_seconds", "End of the newest merge that succeeded");
    for schedule in schedules {
        let (Some(_), Some(status)) = (&schedule.spec.log, &schedule.status) else { continue };
        let Some(log) = &status.log else { continue };
        let cluster = schedule.spec.cluster_ref.as_ref().map_or(EXTERNAL, |cluster| &cluster.name);
        let [namespace, (_, name)] = labels(&**schedule);
        let object = [namespace, ("cluster", cluster.to_owned()), ("schedule", name)];
        let set = |family: &Family<Scheduled, Gauge>, value: i64| {
            family.get_or_create(&object).set(value);
        };
        let fault = condition::find_with_status(&status.conditions, Type::LogCurrent, "False");
        let is = |reason: Reason| i64::from(fault.is_some_and(|fault| fault.reason == reason.as_str()));
        set(&behind, is(Reason::LogBehind));
        set(&interrupted, is(Reason::LogInterrupted));
        if let Some(stored) = log.revision {
            set(&revision, stored);
        }
        if let Some(merges) = log.merges.as_ref().filter(|_| !schedule.spec.suspend) {
            set(&failures, merges.consecutive_failures.into());
            if let Some(Ok(at)) = merges.last_succeeded.as_ref().map(|at| at.parse::<Timestamp>()) {
                set(&merged, at.as_second());
            }
        }
        if let Some(seconds) = log.rpo_seconds {
            set(&rpo, i64::try_from(seconds).unwrap_or(i64::MAX));
        }
        if let Some(Ok(at)) = log.time.as_ref().map(|time| time.parse::<Timestamp>()) {
            set(&until, at.as_second());
        }
    }
}

/// End of certificates, by plane and kind.
fn ends(tls: &TlsStatus) -> Vec<(&'static str, &'static str, Timestamp)> {
    let planes = [("client", &tls.client), ("peer", &tls.peer)];
    let each = planes.into_iter().flat_map(|(plane, status)| {
        [(plane, "leaf", Some(&status.not_after)), (plane, "ca", status.ca_not_after.as_ref())]
    });
    each.filter_map(|(plane, kind, until)| Some((plane, kind, until?.parse().ok()?))).collect()
}

fn labels<K: ResourceExt>(object: &K) -> Object {
    [("namespace", object.namespace().unwrap_or_default()), ("name", object.name_any())]
}

fn holds(conditions: &[Condition], kind: Type) -> i64 {
    i64::from(condition::is_true(conditions, kind))
}

#[cfg(test)]
pub(super) mod tests {
    use holdfast_api::cluster::LastSnapshot;
    use holdfast_api::condition::{Reason, Wanted, merge};
    use holdfast_api::defragmentation::Defragmented;
    use holdfast_api::drill::{DecodedObjects, Drill, DrillStatus, PassedDrill};
    use holdfast_api::log::{Log, LogStatus, Merges};
    use holdfast_api::name::LocalRef;
    use holdfast_api::schedule::LastSuccessful;
    use holdfast_api::tls::PlaneStatus;
    use holdfast_api::{EtcdBackupStoreStatus, EtcdSnapshotScheduleStatus};
    use holdfast_contract::Level;
    use holdfast_fixtures::{formed, noon};
    use prometheus_client::encoding::text::encode_registry;

    use super::*;

    /// A cluster with a snapshot, and a usable store.
    pub(crate) fn example() -> Registry {
        let mut cluster = formed(3, 3).cluster;
        cluster.status.as_mut().unwrap().last_snapshot = Some(LastSnapshot {
            name: "s".to_owned(),
            level: Level::HashKV,
            completed_at: "2026-01-01T12:00:00Z".to_owned(),
        });
        cluster.status.as_mut().unwrap().tls = Some(TlsStatus {
            earliest_expiry: "2026-01-01T12:00:00Z".to_owned(),
            client: PlaneStatus { not_after: "2026-01-01T12:00:00Z".to_owned(), ..PlaneStatus::default() },
            peer: PlaneStatus::default(),
        });
        cluster.status.as_mut().unwrap().latches.defragmented = vec![Defragmented {
            member: "a-m0".to_owned(),
            at: "2026-01-01T12:00:00Z".to_owned(),
            before_bytes: 100,
            after_bytes: 30,
            ineffective: false,
        }];
        let mut store = EtcdBackupStore::default();
        (store.metadata.namespace, store.metadata.name) = (Some("ns".to_owned()), Some("vault".to_owned()));
        let ready = [Wanted::yes(Type::Ready, Reason::StoreUsable, "x")];
        let conditions = merge(&[], &ready, None, noon());
        store.status = Some(EtcdBackupStoreStatus { conditions, ..EtcdBackupStoreStatus::default() });
        let mut schedule = schedule();
        let applied = [
            Wanted::yes(Type::RetentionApplied, Reason::AsDesired, "x"),
            Wanted::no(Type::LogCurrent, Reason::LogBehind, "x"),
        ];
        schedule.spec.log = Some(Log::default());
        schedule.status.as_mut().unwrap().log = Some(LogStatus {
            revision: Some(70),
            time: Some("2026-01-01T11:59:55Z".to_owned()),
            rpo_seconds: Some(15),
            merges: Some(Merges {
                last_succeeded: Some("2026-01-01T10:30:05Z".to_owned()),
                consecutive_failures: 1,
                ..Merges::default()
            }),
            ..LogStatus::default()
        });
        schedule.status.as_mut().unwrap().conditions = merge(&[], &applied, None, noon());
        schedule.spec.drill = Some(Drill::default());
        schedule.status.as_mut().unwrap().drill = Some(DrillStatus {
            active_since: Some("2026-01-01T01:00:00Z".to_owned()),
            last_passed: Some(PassedDrill {
                at: "2026-01-01T03:00:00Z".to_owned(),
                restore_seconds: 7,
                serve_seconds: 2,
                kubernetes: Some(DecodedObjects { ready_seconds: 5, ..DecodedObjects::default() }),
                ..PassedDrill::default()
            }),
            ..DrillStatus::default()
        });
        registry(&[Arc::new(cluster)], &[Arc::new(store)], &[Arc::new(schedule)], noon())
    }

    /// An hourly schedule whose newest backup was taken two hours before noon.
    fn schedule() -> EtcdSnapshotSchedule {
        let mut schedule = EtcdSnapshotSchedule::default();
        (schedule.metadata.namespace, schedule.metadata.name) = (Some("ns".to_owned()), Some("nightly".to_owned()));
        schedule.spec.cluster_ref = Some(LocalRef { name: "a".to_owned() });
        schedule.spec.schedule = "@hourly".to_owned();
        schedule.status = Some(EtcdSnapshotScheduleStatus {
            active_since: Some("2026-01-01T01:00:00Z".to_owned()),
            last_time: Some("2026-01-01T10:00:00Z".to_owned()),
            next_time: Some("2026-01-01T13:00:00Z".to_owned()),
            last_successful: Some(LastSuccessful {
                taken_at: "2026-01-01T10:00:00Z".to_owned(),
                level: Level::HashKV,
                db_bytes: 5,
                stored_bytes: 3,
                seconds: 40,
                ..LastSuccessful::default()
            }),
            ..EtcdSnapshotScheduleStatus::default()
        });
        schedule
    }

    /// The status may be old: the time of the scrape counts.
    #[test]
    fn whether_a_backup_is_overdue_is_judged_by_the_time_of_the_scrape() {
        let at = |now: &str| text(&registry(&[], &[], &[Arc::new(schedule())], now.parse().unwrap()));
        let labels = "{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"}";
        let says = |text: &str, fresh: i64, overdue: i64| {
            let lines = [
                format!("holdfast_schedule_fresh{labels} {fresh}"),
                format!("holdfast_schedule_overdue{labels} {overdue}"),
            ];
            assert!(lines.iter().all(|line| text.lines().any(|there| there == line)), "{text}");
        };
        says(&at("2026-01-01T12:09:59Z"), 1, 0);
        says(&at("2026-01-01T12:10:00Z"), 0, 1);
        let mut suspended = schedule();
        suspended.status.as_mut().unwrap().active_since = None;
        let text = text(&registry(&[], &[], &[Arc::new(suspended)], noon()));
        assert!(
            !text.contains("schedule_fresh{") && text.contains("schedule_last_success_timestamp_seconds{"),
            "{text}"
        );
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode_registry(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn each_cluster_and_each_store_has_its_series() {
        let text = text(&example());
        for line in [
            "holdfast_cluster_ready{namespace=\"ns\",name=\"a\"} 1",
            "holdfast_cluster_degraded{namespace=\"ns\",name=\"a\"} 0",
            "holdfast_cluster_at_risk{namespace=\"ns\",name=\"a\"} 0",
            "holdfast_cluster_space_exhausted{namespace=\"ns\",name=\"a\"} 0",
            "holdfast_member_last_defragmentation_timestamp_seconds{namespace=\"ns\",name=\"a\",member=\"a-m0\"} 1767268800",
            "holdfast_member_last_reclaimed_bytes{namespace=\"ns\",name=\"a\",member=\"a-m0\"} 70",
            "holdfast_cluster_voters{namespace=\"ns\",name=\"a\"} 3",
            "holdfast_cluster_wanted_members{namespace=\"ns\",name=\"a\"} 3",
            "holdfast_cluster_last_snapshot_timestamp_seconds{namespace=\"ns\",name=\"a\",level=\"HashKV\"} 1767268800",
            "holdfast_tls_earliest_expiry_seconds{namespace=\"ns\",name=\"a\",plane=\"client\",kind=\"leaf\"} 1767268800",
            "holdfast_store_usable{namespace=\"ns\",name=\"vault\"} 1",
            "holdfast_schedule_last_success_timestamp_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\",level=\"HashKV\"} 1767261600",
            "holdfast_schedule_last_run_timestamp_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 1767261600",
            "holdfast_schedule_next_run_timestamp_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 1767272400",
            "holdfast_schedule_last_duration_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 40",
            "holdfast_schedule_last_stored_bytes{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 3",
            "holdfast_schedule_drill_last_passed_timestamp_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 1767236400",
            "holdfast_schedule_drill_restore_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 7",
            "holdfast_schedule_drill_serve_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 2",
            "holdfast_schedule_drill_ready_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 5",
            "holdfast_schedule_drill_failed{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 0",
            "holdfast_schedule_drill_overdue{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 0",
            "holdfast_schedule_log_revision{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 70",
            "holdfast_schedule_log_rpo_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 15",
            "holdfast_schedule_log_stored_timestamp_seconds{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 1767268795",
            "holdfast_schedule_log_behind{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 1",
            "holdfast_schedule_log_interrupted{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 0",
            "holdfast_schedule_consecutive_failures{namespace=\"ns\",cluster=\"a\",schedule=\"nightly\"} 0",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_full_database_is_told_apart_from_other_faults() {
        let of = |reason| {
            let mut cluster = formed(3, 3).cluster;
            let degraded = [Wanted::yes(Type::Degraded, reason, "x")];
            cluster.status.as_mut().unwrap().conditions = merge(&[], &degraded, None, noon());
            text(&registry(&[Arc::new(cluster)], &[], &[], noon()))
        };
        let says = |text: &str, value: i64| {
            let line = format!("holdfast_cluster_space_exhausted{{namespace=\"ns\",name=\"a\"}} {value}");
            assert!(text.lines().any(|there| there == line), "{text}");
        };
        says(&of(Reason::SpaceExhausted), 1);
        says(&of(Reason::AlarmRaised), 0);
    }

    #[test]
    fn a_cluster_without_a_snapshot_has_no_time_and_nothing_stays_of_deleted_objects() {
        let young = text(&registry(&[Arc::new(EtcdCluster::default())], &[], &[], noon()));
        assert!(young.contains("cluster_ready{") && !young.contains("timestamp_seconds{"), "{young}");
        let none = text(&registry(&[], &[], &[], noon()));
        assert!(!none.contains('{'), "{none}");
    }
}
