//! A larger quota for a full database: when, how large, and how it reaches the members.

use holdfast_api::defragmentation::{DefragmentationMode, Window};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use holdfast_base::template;

/// The quota of a volume of 8Gi, in MiB.
const DEFAULT: i64 = 3584;

/// A formed cluster whose quota may grow to this size. All files have this size and these bytes in use, in MiB.
fn with_files(most: &str, mib: i64, used: i64) -> Observed {
    let mut seen = formed(3, 3);
    seen.cluster.spec.defragmentation.get_or_insert_default().grow_quota_to = Some(Quantity(most.to_owned()));
    files(&mut seen, mib, used);
    seen
}

fn files(seen: &mut Observed, mib: i64, used: i64) {
    for answer in seen.answers.values_mut() {
        let Seen::Known(answer) = answer else { continue };
        (answer.db_bytes, answer.used_bytes) = (mib << 20, used << 20);
    }
}

fn raise(seen: &mut Observed) {
    for member_id in [0x10, 0x11, 0x12] {
        etcd(seen).alarms.push(Alarm { member_id, kind: AlarmKind::NoSpace });
    }
}

/// Returns the quota in MiB that the next act grants.
fn granted(seen: &Observed) -> Option<i64> {
    match act(seen) {
        Some(Act::Latch(latches)) => latches.granted_quota.map(|bytes| bytes >> 20),
        _ => None,
    }
}

fn latch(seen: &mut Observed) {
    let Some(Act::Latch(latches)) = act(seen) else { panic!("{:?}", act(seen)) };
    seen.cluster.status.as_mut().unwrap().latches = *latches;
}

fn wanted_quota(seen: &Observed) -> Option<i64> {
    template::wanted(&seen.cluster).options.and_then(|options| options.quota_backend_bytes).map(|bytes| bytes >> 20)
}

#[test]
fn the_quota_doubles_up_to_the_limit_of_the_spec() {
    let mut seen = with_files("7Gi", DEFAULT + 10, DEFAULT);
    seen.cluster.spec.options = Some(Options { quota_backend_bytes: Some(2 << 30), ..Options::default() });
    for member in &mut seen.members {
        let template = template::wanted(&seen.cluster);
        template::put(&mut member.object, &template);
        member.pod = Some(pod_of(&member.object));
    }
    raise(&mut seen);
    assert_eq!(granted(&seen), Some(4096));
    seen.cluster.spec.defragmentation.as_mut().unwrap().grow_quota_to = Some(Quantity("3Gi".to_owned()));
    assert_eq!(granted(&seen), Some(3072));
    seen.cluster.spec.defragmentation.as_mut().unwrap().grow_quota_to = Some(Quantity("2Gi".to_owned()));
    assert_eq!(granted(&seen), None, "the quota of the spec is the largest");
    assert_eq!(condition(&seen, "Degraded"), pair("True", "SpaceExhausted"));
    seen.cluster.spec.defragmentation = None;
    assert_eq!(act(&seen), None);
}

#[test]
fn a_nearly_full_file_of_data_needs_a_larger_quota_before_the_alarm() {
    let grows = |mib, used| granted(&with_files("7Gi", mib, used)).is_some();
    // 80 % are 2867.2 MiB.
    assert!(grows(2868, 2868) && grows(2868, 2295) && !grows(2867, 2867));
    // A fifth of the file is free: a defragmentation comes first.
    assert!(!grows(2868, 2294));
    let mut full = with_files("7Gi", 3600, 3000);
    raise(&mut full);
    assert!(matches!(act(&full), Some(Act::Latch(latches)) if latches.defragmenting.is_some()));
    full.cluster.spec.defragmentation.as_mut().unwrap().mode = Some(DefragmentationMode::Never);
    assert_eq!(granted(&full), Some(7168));
}

#[test]
fn before_the_alarm_the_user_chooses_the_time_of_a_restart_that_stops_writes() {
    let mut seen = formed(1, 1);
    let grows = seen.cluster.spec.defragmentation.get_or_insert_default();
    grows.grow_quota_to = Some(Quantity("7Gi".to_owned()));
    files(&mut seen, 3000, 3000);
    assert_eq!(granted(&seen), None);
    let window = |schedule: &str| Window { schedule: schedule.to_owned(), seconds: 3600, time_zone: None };
    seen.cluster.spec.defragmentation.as_mut().unwrap().window = Some(window("0 0 * * *"));
    assert_eq!(granted(&seen), None, "at noon");
    seen.cluster.spec.defragmentation.as_mut().unwrap().window = Some(window("0 12 * * *"));
    assert_eq!(granted(&seen), Some(7168));
    seen.cluster.spec.defragmentation.as_mut().unwrap().window = None;
    files(&mut seen, 3600, 3590);
    etcd(&mut seen).alarms.push(Alarm { member_id: 0x10, kind: AlarmKind::NoSpace });
    assert_eq!(granted(&seen), Some(7168), "writes are refused already");
}

#[test]
fn the_smallest_volume_limits_the_quota() {
    let mut seen = with_files("15Gi", 3600, 3590);
    raise(&mut seen);
    seen.cluster.spec.storage.size = Some(Quantity("16Gi".to_owned()));
    for (n, size) in [(0, "16Gi"), (1, "16Gi"), (2, "8Gi")] {
        seen.members[n].object.spec.storage.size = Some(Quantity(size.to_owned()));
        seen.members[n].pod = Some(pod_of(&seen.members[n].object));
    }
    assert_eq!(granted(&seen), None, "the default of the spec is 7.5 GiB, and the smallest volume has room for 7 GiB");
    seen.members[2].object.spec.storage.size = Some(Quantity("16Gi".to_owned()));
    seen.members[2].pod = Some(pod_of(&seen.members[2].object));
    files(&mut seen, 7600, 7590);
    assert_eq!(granted(&seen), Some(15 << 10));
}

#[test]
fn nothing_grows_beside_a_change_or_a_doubt() {
    let held = |change: fn(&mut Observed)| {
        let mut seen = with_files("7Gi", 3600, 3590);
        raise(&mut seen);
        assert!(granted(&seen).is_some());
        change(&mut seen);
        granted(&seen)
    };
    assert_eq!(held(|seen| etcd(seen).alarms.push(Alarm { member_id: 0x12, kind: AlarmKind::Corrupt })), None);
    assert_eq!(held(|seen| seen.cluster.spec.replicas = 4), None);
    assert_eq!(held(|seen| seen.cluster.spec.paused = true), None);
    let rolls = |seen: &mut Observed| {
        seen.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
    };
    assert_eq!(held(rolls), None, "each member has the present quota first");
}

/// A roll needs no write, and the alarm ends when each member has the larger quota.
#[test]
fn the_granted_quota_rolls_while_writes_are_refused_and_the_alarm_ends() {
    let mut seen = with_files("7Gi", 3600, 3590);
    raise(&mut seen);
    let spec = seen.cluster.spec.clone();
    latch(&mut seen);
    assert_eq!((&seen.cluster.spec, wanted_quota(&seen)), (&spec, Some(7168)));
    assert_eq!(condition(&seen, "Degraded"), pair("True", "AlarmRaised"));
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Rolling"));
    let mut done = vec![];
    while let Some(next) = act(&seen) {
        let place = |name: &str| (0..3).find(|n| named(*n) == name).unwrap();
        done.push(match next {
            Act::SetTemplate { member, template, .. } => {
                template::put(&mut seen.members[place(&member.name)].object, &template);
                format!("template {}", place(&member.name))
            }
            Act::EvictPod { pod, .. } => {
                let n = place(&pod.name);
                let mut next = pod_of(&seen.members[n].object);
                running(&mut next, true);
                seen.members[n].pod = Some(next);
                format!("restart {n}")
            }
            Act::MoveLeader { to, .. } => {
                etcd(&mut seen).leader = Some(to);
                for said in seen.answers.values_mut() {
                    if let Seen::Known(said) = said {
                        said.leader = to;
                    }
                }
                "leader".to_owned()
            }
            Act::Disarm { alarm, .. } => {
                etcd(&mut seen).alarms.retain(|raised| *raised != alarm);
                format!("clear {:x}", alarm.member_id)
            }
            other => panic!("{other:?}"),
        });
    }
    let in_turn =
        ["template 1", "restart 1", "clear 11", "template 2", "restart 2", "clear 12", "template 0", "leader"];
    assert_eq!(done[..8], in_turn);
    assert_eq!(done[8..], ["restart 0", "clear 10"]);
    assert_eq!(condition(&seen, "Degraded").1, "NothingWrong");
}

#[test]
fn the_larger_of_both_quotas_is_in_force_as_far_as_the_spec_allows() {
    let mut seen = with_files("6Gi", 100, 100);
    assert_eq!(wanted_quota(&seen), None);
    seen.cluster.status.as_mut().unwrap().latches.granted_quota = Some(7 << 30);
    assert_eq!(wanted_quota(&seen), Some(6144), "not above the limit");
    seen.cluster.status.as_mut().unwrap().latches.granted_quota = Some(1 << 30);
    assert_eq!(wanted_quota(&seen), Some(DEFAULT));
    seen.cluster.spec.options = Some(Options { quota_backend_bytes: Some(5 << 30), ..Options::default() });
    assert_eq!(wanted_quota(&seen), Some(5120));
    seen.cluster.spec.defragmentation = None;
    seen.cluster.status.as_mut().unwrap().latches.granted_quota = Some(7 << 30);
    assert_eq!(wanted_quota(&seen), Some(5120), "the field is gone");
}
