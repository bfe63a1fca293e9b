//! Leader election over a Lease: one process acts, others wait with warm caches.
//!
//! `evaluate` decides, the loop acts. Another holder's Lease counts as abandoned only after it stood unchanged for its duration by
//! this process's clock, so clocks need not agree. Every write carries the resourceVersion that was read, so of two takers one
//! gets a conflict. A holder that cannot renew in time stops before another process may take over, and asks for the lease again: its time
//! counts from the moment before it sends a renewal, however late the answer comes. Safety does not rest on the election but on the guards of each act
//! (I19). The operator needs `get`, `create` and `update` on its Lease.

use std::time::Duration;

use holdfast_api::FIELD_MANAGER;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::clock::{self, Instant};
use super::config::Config;

/// Duration of a Lease after its last renewal. After a crash a new leader starts within this time.
const DURATION: Duration = Duration::from_secs(15);

/// The times of a holder in production.
const PACE: Pace =
    Pace { give_up: Duration::from_secs(8), every: Duration::from_secs(2), deadline: Duration::from_secs(3) };

/// The times of a holder.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// A holder whose last successful renewal was sent this long ago stops, well before another process may start.
    give_up: Duration,
    /// Interval of renewals, or of reads by a standby: several tries fit before giving up.
    every: Duration,
    /// Deadline of one read with its write.
    deadline: Duration,
}

/// Next step for a Lease.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The Lease has no holder: take it.
    Take,
    /// This process holds the Lease: renew it.
    Renew,
    /// Another process holds the Lease.
    Wait,
}

/// The version of the Lease that was read last, and the first time it was read.
#[derive(Clone, Debug, PartialEq)]
struct Sight {
    version: Option<String>,
    since: Instant,
}

fn evaluate(lease: &Lease, me: &str, unchanged_for: Duration) -> Step {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|s| s.holder_identity.as_deref()).filter(|h| !h.is_empty());
    let stands = spec
        .and_then(|s| s.lease_duration_seconds)
        .and_then(|s| u64::try_from(s).ok())
        .map_or(DURATION, Duration::from_secs);
    match holder {
        None => Step::Take,
        Some(holder) if holder == me => Step::Renew,
        Some(_) if unchanged_for > stands => Step::Take,
        Some(_) => Step::Wait,
    }
}

/// The Lease with this process as its holder.
fn held_lease(mut lease: Lease, me: &str, step: &Step, now: Timestamp) -> Lease {
    let mut spec = lease.spec.take().unwrap_or_default();
    if *step == Step::Take {
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    }
    spec.holder_identity = Some(me.to_owned());
    spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
    spec.renew_time = Some(MicroTime(now));
    lease.spec = Some(spec);
    lease
}

/// The end of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// `stop` was cancelled.
    Stopped,
    /// Another process may hold the lease. Nothing is written any more.
    Lost,
}

/// Waits for the lease, and keeps it until `stop`, then gives it back; returns earlier where a held lease is lost. `leading` shows
/// whether this process holds it, and says no before the return. A process that leads again first ends the passes of the lost term.
pub(super) async fn run(
    client: Client,
    config: &Config,
    leading: &watch::Sender<bool>,
    stop: CancellationToken,
) -> End {
    keep(client, config, leading, stop, PACE).await
}

async fn keep(
    client: Client,
    config: &Config,
    leading: &watch::Sender<bool>,
    stop: CancellationToken,
    pace: Pace,
) -> End {
    let api: Api<Lease> = Api::namespaced(client, &config.lease_namespace);
    let lost = |why: &str| {
        // From now on this process writes nothing.
        leading.send_replace(false);
        tracing::warn!(lease = config.lease_name, "{why}: this process stands by");
        End::Lost
    };
    let mut sight: Option<Sight> = None;
    let mut renewed: Option<Instant> = None;
    loop {
        // Before the request: other processes count from when the API server stores the renewal, and its answer may come late.
        let sent = clock::instant();
        match clock::within(pace.deadline, step(&api, config, &mut sight))
            .await
            .unwrap_or_else(|| Err("no answer".to_owned()))
        {
            Ok(true) => {
                renewed = Some(sent);
                if leading.send_if_modified(|now| !std::mem::replace(now, true)) {
                    tracing::info!(identity = config.identity, "leading");
                }
            }
            Ok(false) if renewed.is_some() => return lost("the lease was taken by another process"),
            Ok(false) => {}
            Err(error) => tracing::warn!(error, lease = config.lease_name, "the lease could not be read or renewed"),
        }
        if renewed.is_some_and(|at| at.elapsed() > pace.give_up) {
            return lost("the lease could not be renewed in time");
        }
        tokio::select! {
            () = clock::sleep(pace.every) => {}
            () = stop.cancelled() => break,
        }
    }
    if renewed.is_some() {
        leading.send_replace(false);
        if clock::within(pace.deadline, give_back(&api, config)).await.is_none() {
            tracing::warn!("the lease was not given back in time");
        }
    }
    End::Stopped
}

/// Reads the Lease, and writes it where a write is due. `Ok(true)`: this process holds it.
async fn step(api: &Api<Lease>, config: &Config, sight: &mut Option<Sight>) -> Result<bool, String> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let Some(lease) = api.get_opt(&config.lease_name).await.map_err(|e| e.to_string())? else {
        let new = Lease {
            metadata: ObjectMeta { name: Some(config.lease_name.clone()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec::default()),
        };
        let new = held_lease(new, &config.identity, &Step::Take, clock::now());
        return match api.create(&params, &new).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(error.to_string()),
        };
    };
    let now = clock::instant();
    let version = lease.metadata.resource_version.clone();
    let since = match sight.as_ref() {
        Some(last) if last.version == version => last.since,
        Some(_) | None => now,
    };
    *sight = Some(Sight { version, since });
    let step = evaluate(&lease, &config.identity, now.duration_since(since));
    if step == Step::Wait {
        return Ok(false);
    }
    // The write carries the resourceVersion of the read: of two takers one gets a conflict.
    match api.replace(&config.lease_name, &params, &held_lease(lease, &config.identity, &step, clock::now())).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() && step == Step::Take => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Clears the holder of the Lease, so that the next leader starts at once.
async fn give_back(api: &Api<Lease>, config: &Config) {
    let Ok(Some(mut lease)) = api.get_opt(&config.lease_name).await else { return };
    let Some(spec) = lease.spec.as_mut() else { return };
    if spec.holder_identity.as_deref() != Some(&config.identity) {
        return;
    }
    spec.holder_identity = None;
    spec.renew_time = None;
    spec.acquire_time = None;
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.replace(&config.lease_name, &params, &lease).await {
        Ok(_) => tracing::info!("the lease was given back"),
        Err(error) => tracing::warn!(%error, "the lease was not given back"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, OnceLock};

    use axum::Router;
    use axum::extract::Request;
    use axum::http::StatusCode;
    use futures::TryFutureExt as _;
    use holdfast_plan::Proxies;

    use super::*;

    fn lease(holder: Option<&str>) -> Lease {
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn a_free_lease_is_taken() {
        assert_eq!(evaluate(&lease(None), "me", Duration::ZERO), Step::Take);
        assert_eq!(evaluate(&lease(Some("")), "me", Duration::ZERO), Step::Take);
        assert_eq!(evaluate(&Lease::default(), "me", Duration::ZERO), Step::Take);
    }

    #[test]
    fn our_own_is_renewed_even_after_long() {
        assert_eq!(evaluate(&lease(Some("me")), "me", Duration::from_secs(99)), Step::Renew);
    }

    #[test]
    fn anothers_is_taken_only_after_it_stood_still_by_our_clock() {
        assert_eq!(evaluate(&lease(Some("you")), "me", Duration::from_secs(15)), Step::Wait);
        assert_eq!(evaluate(&lease(Some("you")), "me", Duration::from_millis(15_001)), Step::Take);
    }

    #[test]
    fn a_holder_stops_before_another_may_begin() {
        let Pace { give_up, every, deadline } = PACE;
        assert!(give_up + every + deadline < DURATION);
        assert!(every + deadline < give_up, "one lost answer is no reason to stop");
    }

    /// An API server in this process: it stores the first renewal at once and answers it late, refuses the next three calls slowly,
    /// and then sends no answer. All times are a fifth of the real ones.
    #[tokio::test]
    async fn a_late_answer_does_not_lengthen_the_time_of_a_holder() {
        let fifth = |real: Duration| real / 5;
        let pace = Pace { give_up: fifth(PACE.give_up), every: fifth(PACE.every), deadline: fifth(PACE.deadline) };
        let calls = Arc::new(AtomicUsize::new(0));
        let stored: Arc<OnceLock<Instant>> = Arc::default();
        let (count, at) = (Arc::clone(&calls), Arc::clone(&stored));
        let server = Router::new().fallback(move |request: Request| {
            let (count, at) = (Arc::clone(&count), Arc::clone(&at));
            async move {
                let written = request.method() != "GET";
                match count.fetch_add(1, Ordering::SeqCst) {
                    0 => {}
                    1 => {
                        assert!(written && at.set(clock::instant()).is_ok());
                        clock::sleep(fifth(Duration::from_millis(2900))).await;
                    }
                    2..=4 => {
                        clock::sleep(fifth(Duration::from_millis(630))).await;
                        return (StatusCode::INTERNAL_SERVER_ERROR, String::new());
                    }
                    _ => futures::future::pending().await,
                }
                let mut lease = lease(None);
                lease.metadata.name = Some("l".to_owned());
                (StatusCode::OK, serde_json::to_string(&lease).unwrap())
            }
        });
        let config = Config {
            watch_namespace: None,
            lease_namespace: "ns".to_owned(),
            lease_name: "l".to_owned(),
            identity: "me".to_owned(),
            agent_image: String::new(),
            etcd_repository: String::new(),
            proxies: Proxies::default(),
            cluster_domain: None,
            allowed_names: vec![],
            pod_run_as: holdfast_api::pod_security::RunAs::default(),
            listen: "127.0.0.1:0".parse().unwrap(),
            die_after_writes: None,
        };
        let (leading, led) = watch::channel(false);
        let client = Client::new(server, "ns");
        let mut began = led.clone();
        let (end, held) = tokio::join!(
            keep(client, &config, &leading, CancellationToken::new(), pace),
            began.wait_for(|leads| *leads).map_ok(|leads| *leads),
        );
        assert!(held.unwrap(), "it held the lease");
        assert_eq!((end, *led.borrow()), (End::Lost, false));
        let acted = stored.get().unwrap().elapsed();
        assert!(acted < fifth(DURATION), "another may take the lease while this one acts, after {acted:?}");
    }

    #[test]
    fn taking_counts_a_transition_and_renewing_does_not() {
        let now = Timestamp::UNIX_EPOCH;
        let taken = held_lease(lease(Some("you")), "me", &Step::Take, now);
        let spec = taken.spec.clone().unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("me"), Some(1)));
        let renewed = held_lease(taken, "me", &Step::Renew, now).spec.unwrap();
        assert_eq!(renewed.lease_transitions, Some(1));
    }
}
