//! Renders `agent prune` and `agent remove` as argument vectors.

use super::Argv;
use crate::{Policy, PruneRequest, RemoveRequest};

impl Policy {
    /// Returns the rules that keep snapshots, as elements of an argument vector.
    pub fn to_args(&self) -> Vec<String> {
        let Self {
            keep_last,
            keep_hourly,
            keep_daily,
            keep_weekly,
            keep_monthly,
            keep_yearly,
            keep_within,
            log_within,
        } = self;
        Argv::default()
            .flag("keep-last", keep_last)
            .flag("keep-hourly", keep_hourly)
            .flag("keep-daily", keep_daily)
            .flag("keep-weekly", keep_weekly)
            .flag("keep-monthly", keep_monthly)
            .flag("keep-yearly", keep_yearly)
            .option("keep-within", keep_within.map(|within| within.to_string()).as_ref())
            .option("log-within", log_within.map(|within| within.to_string()).as_ref())
            .0
    }
}

impl PruneRequest {
    /// Returns the arguments after `agent prune`.
    pub fn to_args(&self) -> Vec<String> {
        let Self {
            store,
            expect_store_id,
            namespace,
            cluster,
            cluster_uid,
            schedule_uid,
            policy,
            time_zone,
            newest_after,
            protect,
            accept_anomaly,
            announced_seconds,
            announced_after,
            not_after,
            pod_uid,
            dry_run,
            json,
            deadline_seconds,
        } = self;
        let argv = Argv::default()
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("namespace", namespace)
            .flag("cluster", cluster)
            .flag("cluster-uid", cluster_uid)
            .flag("schedule-uid", schedule_uid)
            .and(policy.to_args())
            .flag("time-zone", time_zone)
            .option("newest-after", newest_after.map(|at| at.to_string()).as_ref());
        protect
            .iter()
            .fold(argv, |argv, key| argv.flag("protect", key))
            .option("accept-anomaly", accept_anomaly.as_ref())
            .flag("announced-seconds", announced_seconds)
            .option("announced-after", announced_after.map(|at| at.to_string()).as_ref())
            .option("not-after", not_after.map(|at| at.to_string()).as_ref())
            .option("pod-uid", pod_uid.as_ref())
            .switch("dry-run", *dry_run)
            .switch("json", *json)
            .flag("deadline-seconds", deadline_seconds)
            .0
    }
}

impl RemoveRequest {
    /// Returns the arguments after `agent remove`.
    pub fn to_args(&self) -> Vec<String> {
        let Self {
            store,
            expect_store_id,
            key,
            manifest_sha256,
            owner_uid,
            allow_last,
            not_after,
            pod_uid,
            deadline_seconds,
        } = self;
        Argv::default()
            .and(store.to_args())
            .option("expect-store-id", expect_store_id.as_ref())
            .flag("manifest-sha256", manifest_sha256)
            .option("owner-uid", owner_uid.as_ref())
            .switch("allow-last", *allow_last)
            .option("not-after", not_after.map(|at| at.to_string()).as_ref())
            .option("pod-uid", pod_uid.as_ref())
            .flag("deadline-seconds", deadline_seconds)
            // The next argument is the key, whatever it looks like.
            .and(vec!["--".to_owned(), key.clone()])
            .0
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use proptest::option::of as option;
    use proptest::prelude::*;

    use super::*;
    use crate::StoreFlags;
    use crate::args::tests::parsed;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just("--allow-last".to_owned()), Just("--".to_owned()), Just("-v".to_owned()), "\\PC{1,30}"]
    }

    fn time() -> impl Strategy<Value = Option<Timestamp>> {
        option((0..4_000_000_000_i64).prop_map(|second| Timestamp::from_second(second).unwrap()))
    }

    prop_compose! {
        fn prune()(
            (url, namespace, cluster, cluster_uid, schedule_uid, time_zone) in
                (text(), text(), text(), text(), text(), text()),
            (expect_store_id, accept_anomaly, pod_uid) in (option(text()), option(text()), option(text())),
            counts: [u32; 6], [within, log] in [option(0..10_000_000_i64), option(0..10_000_000_i64)],
            (after, announced_after, not_after) in (time(), time(), time()),
            protect in proptest::collection::vec(text(), 0..4),
            announced_seconds: u32, dry_run: bool, json: bool, deadline_seconds: u32,
        ) -> PruneRequest {
            let [keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly] = counts;
            let [keep_within, log_within] = [within, log].map(|within| within.map(SignedDuration::from_secs));
            PruneRequest {
                store: StoreFlags { url, ..StoreFlags::default() },
                expect_store_id, namespace, cluster, cluster_uid, schedule_uid,
                policy: Policy {
                    keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly, keep_within, log_within,
                },
                time_zone, newest_after: after, protect, accept_anomaly, announced_seconds, announced_after, not_after,
                pod_uid, dry_run, json, deadline_seconds,
            }
        }
    }

    prop_compose! {
        fn remove()(
            (url, key, manifest_sha256) in (text(), text(), text()),
            (expect_store_id, owner_uid, pod_uid) in (option(text()), option(text()), option(text())),
            allow_last: bool, not_after in time(), deadline_seconds: u32,
        ) -> RemoveRequest {
            let store = StoreFlags { url, ..StoreFlags::default() };
            RemoveRequest {
                store, expect_store_id, key, manifest_sha256, owner_uid, allow_last, not_after, pod_uid,
                deadline_seconds,
            }
        }
    }

    proptest! {
        #[test]
        fn a_prune_request_survives_the_command_line(request in prune()) {
            prop_assert_eq!(parsed::<PruneRequest>(request.to_args())?, request);
        }

        #[test]
        fn a_remove_request_survives_the_command_line(request in remove()) {
            prop_assert_eq!(parsed::<RemoveRequest>(request.to_args())?, request);
        }
    }
}
