//! The command line of a Job that removes snapshots.
//!
//! Decides how a request becomes arguments: one element for each flag, so that a value stays a value (I28). A test holds that
//! the agent reads back what was rendered.

use std::fmt::Display;

use snapshot_agent::contract::{Policy, PruneRequest};

/// The arguments after `agent prune`.
pub fn to_args(request: &PruneRequest) -> Vec<String> {
    let PruneRequest {
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
        // Of the Pod, by the environment.
        pod_uid: _,
        dry_run,
        json,
        deadline_seconds,
    } = request;
    let Policy { keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly, keep_within } = policy;
    let mut args = store.to_args();
    let mut flag = |name: &str, value: Option<&dyn Display>| {
        args.extend(value.map(|value| format!("--{name}={value}")));
    };
    flag("expect-store-id", expect_store_id.as_ref().map(|id| id as &dyn Display));
    flag("namespace", Some(namespace));
    flag("cluster", Some(cluster));
    flag("cluster-uid", Some(cluster_uid));
    flag("schedule-uid", Some(schedule_uid));
    for (name, count) in [
        ("keep-last", keep_last),
        ("keep-hourly", keep_hourly),
        ("keep-daily", keep_daily),
        ("keep-weekly", keep_weekly),
        ("keep-monthly", keep_monthly),
        ("keep-yearly", keep_yearly),
    ] {
        flag(name, (*count > 0).then_some(count as &dyn Display));
    }
    flag("keep-within", keep_within.as_ref().map(|within| within as &dyn Display));
    flag("time-zone", Some(time_zone));
    flag("newest-after", newest_after.as_ref().map(|time| time as &dyn Display));
    for key in protect {
        flag("protect", Some(key));
    }
    flag("accept-anomaly", accept_anomaly.as_ref().map(|key| key as &dyn Display));
    flag("announced-seconds", Some(announced_seconds));
    flag("deadline-seconds", Some(deadline_seconds));
    args.extend(
        [("dry-run", dry_run), ("json", json)].into_iter().filter(|(_, on)| **on).map(|(name, _)| format!("--{name}")),
    );
    args
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};
    use jiff::SignedDuration;
    use snapshot_agent::contract::StoreFlags;

    use super::*;

    fn read(request: &PruneRequest) -> PruneRequest {
        let words = std::iter::once("prune".to_owned()).chain(to_args(request));
        let matches = PruneRequest::augment_args(Command::new("prune")).try_get_matches_from(words).unwrap();
        PruneRequest::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn the_agent_reads_back_what_was_rendered() {
        let least = PruneRequest {
            store: StoreFlags { url: "s3://b".to_owned(), ..StoreFlags::default() },
            namespace: "shop".to_owned(),
            cluster: "orders".to_owned(),
            cluster_uid: "u".to_owned(),
            schedule_uid: "s".to_owned(),
            policy: Policy { keep_last: 3, ..Policy::default() },
            time_zone: "Etc/UTC".to_owned(),
            announced_seconds: 3600,
            deadline_seconds: 600,
            ..PruneRequest::default()
        };
        assert_eq!(read(&least), least);
        let all = PruneRequest {
            expect_store_id: Some("m".to_owned()),
            policy: Policy {
                keep_last: 1,
                keep_hourly: 2,
                keep_daily: 3,
                keep_weekly: 4,
                keep_monthly: 5,
                keep_yearly: 6,
                keep_within: Some(SignedDuration::from_mins(90)),
            },
            newest_after: Some("2026-01-01T12:00:00Z".parse().unwrap()),
            protect: vec!["shop/orders/a/-x".to_owned(), "--dry-run".to_owned()],
            accept_anomaly: Some("shop/orders/a/b".to_owned()),
            dry_run: true,
            json: true,
            ..least
        };
        assert_eq!(read(&all), all);
    }
}
