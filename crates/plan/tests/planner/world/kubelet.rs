//! Pods in the small world: how they start, the work of their containers, and their status by kubelet.

use super::*;
use holdfast_fixtures::flags_in;

/// A value of `options.snapshotCount` with which no etcd starts here.
const BAD_OPTION: &str = "13";

impl World {
    pub(super) fn advance(&mut self, name: &str) {
        let pod = self.pods[name].clone();
        if pods::ended(&pod) || meta::deleting(&pod.metadata) {
            self.processes.remove(name);
            return;
        }
        let fresh = Process { stage: Stage::Scheduling, since: self.now, restored: false, behind: 5000, crashes: 0 };
        let mut process = self.processes.remove(name).unwrap_or(fresh);
        let age = self.now - process.since;
        let restores = flags_in(&pod, "restore").is_some();
        let next = match process.stage {
            Stage::Scheduling
                if age >= SCHEDULE && !self.held && self.volumes.contains_key(&format!("data-{name}")) =>
            {
                Some(if restores { Stage::Restoring } else { self.start(name, &pod) })
            }
            Stage::Restoring if age >= RESTORE => Some(match self.rebuild(name, &pod) {
                Ok(()) if pods::prepares(&pod) => {
                    process.restored = true;
                    Stage::Prepared
                }
                Ok(()) => {
                    process.restored = true;
                    self.start(name, &pod)
                }
                Err(code) => Stage::Failed("restore", code),
            }),
            Stage::Failed("restore", _) if age >= BACK_OFF => Some(Stage::Restoring),
            Stage::Failed(_, _) if age >= BACK_OFF => Some(self.start(name, &pod)),
            Stage::Booting if age >= BOOT && (!self.long_snapshots || self.last_entry > process.since) => {
                self.boot(name).then_some(Stage::Serving)
            }
            Stage::Scheduling
            | Stage::Restoring
            | Stage::Failed(..)
            | Stage::Booting
            | Stage::Serving
            | Stage::Prepared => None,
        };
        if process.stage == Stage::Scheduling && next.is_some() {
            self.mount(name);
        }
        if let Some(next) = next {
            process.crashes += i32::from(matches!(next, Stage::Failed("etcd", _)));
            process.stage = next;
            process.since = self.now;
        }
        // A removed member's etcd ends.
        let removed = self.volumes.get(&format!("data-{name}")).and_then(|v| v.data.as_ref()).is_some_and(|data| {
            self.groups.get(&data.group).is_some_and(|g| g.members.iter().all(|l| l.id != data.member_id))
        });
        if process.stage == Stage::Serving && removed {
            process.stage = Stage::Failed("etcd", 1);
            process.since = self.now;
        }
        if process.stage == Stage::Serving {
            process.behind = process.behind.saturating_sub(2500);
        }
        self.processes.insert(name.to_owned(), process);
    }

    pub(super) fn flag(pod: &Pod, container: &str, name: &str) -> Option<String> {
        let prefix = format!("--{name}=");
        let all = flags_in(pod, container).unwrap_or_default();
        all.iter().filter_map(|a| a.strip_prefix(&prefix)).next_back().map(str::to_owned)
    }

    pub(super) fn permitted(pod: &Pod, claim: &str) -> bool {
        let said = pod.metadata.annotations.as_ref().and_then(|a| a.get(key::MAY_START_EMPTY));
        said.is_some_and(|s| s == claim)
    }

    /// The restore step; `Err` holds its exit code.
    pub(super) fn rebuild(&mut self, name: &str, pod: &Pod) -> Result<(), i32> {
        let flag = |n: &str| Self::flag(pod, "restore", n);
        let uid = flag("restore-uid");
        let volume = self.volumes.get(&format!("data-{name}")).cloned().unwrap_or_default();
        if let Some(data) = &volume.data {
            return if data.restore_uid == uid { Ok(()) } else { Err(71) };
        }
        if !Self::permitted(pod, meta::uid(&volume.claim.metadata)) {
            return Err(71);
        }
        self.restores_what_is_latched(flag("key").as_ref());
        let survivor = Self::survivor_of(pod);
        if survivor.is_some() {
            self.check_at_rest();
        }
        if self.broken.contains(&survivor.or_else(|| flag("key")).unwrap_or_default()) {
            return Err(66);
        }
        let (group, member_id) = self.found(name, &flag("initial-cluster").unwrap_or_default());
        let data = Data {
            group,
            member_id,
            member_uid: flag("member-uid").unwrap_or_default(),
            claim_uid: flag("claim-uid").unwrap_or_default(),
            restore_uid: uid,
            start: 0,
        };
        self.volumes.get_mut(&format!("data-{name}")).unwrap().data = Some(data);
        Ok(())
    }

    /// The gate, and etcd's start.
    pub(super) fn start(&mut self, name: &str, pod: &Pod) -> Stage {
        let flag = |n: &str| Self::flag(pod, "etcd", n);
        if flag("snapshot-count").as_deref() == Some(BAD_OPTION) {
            return Stage::Failed("etcd", 2);
        }
        let refused = Stage::Failed("etcd", 71);
        let volume = self.volumes.get(&format!("data-{name}")).cloned().unwrap_or_default();
        let claim = meta::uid(&volume.claim.metadata).to_owned();
        if flag("claim-uid").as_deref() != Some(&claim) {
            return refused;
        }
        let number = flag("start").and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        if self.corrupt.contains(name) {
            return Stage::Failed("etcd", 2);
        }
        if let Some(data) = &volume.data {
            if data.start < pods::knows_started(pod) {
                return refused;
            }
            self.volumes.get_mut(&format!("data-{name}")).unwrap().data.as_mut().unwrap().start =
                data.start.max(number);
            let same = flag("member-uid").as_deref() == Some(&data.member_uid)
                && data.claim_uid == claim
                && flag("restore-uid").is_none_or(|uid| data.restore_uid.as_ref() == Some(&uid));
            return if same { Stage::Booting } else { refused };
        }
        if flag("restore-uid").is_some() || !Self::permitted(pod, &claim) {
            return refused;
        }
        let initial_cluster = flag("initial-cluster").unwrap_or_default();
        let seed = pods::gate(pod).is_some_and(|gate| gate.seed);
        let (group, member_id) = if seed {
            self.found(name, &initial_cluster)
        } else {
            let mut told: Vec<&str> =
                initial_cluster.split(',').filter_map(|e| e.split_once('=')).map(|e| e.1).collect();
            told.sort_unstable();
            // etcd: "member count is unequal", or no leader to join.
            let joins = self.groups.iter().find_map(|(id, group)| {
                let mut urls: Vec<&str> = group.members.iter().flat_map(|l| &l.peer_urls).map(String::as_str).collect();
                urls.sort_unstable();
                let own =
                    group.members.iter().find(|l| l.peer_urls.iter().any(|u| u.contains(&format!("//{name}."))))?;
                (urls == told && group.leader.is_some()).then_some((*id, own.id))
            });
            let Some((group, id)) = joins else { return Stage::Failed("etcd", 1) };
            let listed = self.groups.get_mut(&group).unwrap().members.iter_mut().find(|l| l.id == id).unwrap();
            assert!(listed.learner, "the voter {name} started on an empty volume");
            (group, id)
        };
        self.volumes.get_mut(&format!("data-{name}")).unwrap().data = Some(Data {
            group,
            member_id,
            member_uid: flag("member-uid").unwrap_or_default(),
            claim_uid: claim,
            restore_uid: None,
            start: number,
        });
        Stage::Booting
    }

    /// The gate's report, or etcd's last message.
    fn last_words(&self, name: &str, code: i32) -> Option<String> {
        let started = self.pods.get(name).map_or(0, pods::knows_started);
        let data = self.volumes.get(&format!("data-{name}")).and_then(|v| v.data.as_ref());
        let verdict = match data {
            None if started > 0 => "EmptiedVolume",
            None => "EmptyVolume",
            Some(_) => "OlderVolume",
        };
        match code {
            71 => Some(format!(r#"{{"kind":"gate","verdict":"{verdict}","message":"the volume is refused"}}"#)),
            2 if self.corrupt.contains(name) => {
                Some("failed to read WAL, cannot be repaired: wal: crc mismatch".to_owned())
            }
            _ => None,
        }
    }

    /// Writes the Pods' status as kubelet does: only when it differs.
    pub(super) fn show_pods(&mut self) {
        let names: Vec<String> = self.processes.keys().cloned().collect();
        for name in names {
            let status = self.pod_status(&name);
            let Some(mut pod) = self.pods.remove(&name) else { continue };
            if pod.status.as_ref() != Some(&status) && !pods::ended(&pod) {
                pod.status = Some(status);
                self.touch(&mut pod.metadata);
            }
            self.pods.insert(name, pod);
        }
    }

    pub(super) fn pod_status(&self, name: &str) -> PodStatus {
        let process = &self.processes[name];
        let at =
            Time(self.time() - SignedDuration::from_millis(i64::try_from(self.now - process.since).unwrap() * TICK));
        let ended = |code: i32, message: Option<String>| ContainerStateTerminated {
            exit_code: code,
            message,
            finished_at: Some(at.clone()),
            ..ContainerStateTerminated::default()
        };
        let container = |name: &str, state: ContainerState, last: Option<ContainerState>| ContainerStatus {
            name: name.to_owned(),
            state: Some(state),
            last_state: last,
            ..ContainerStatus::default()
        };
        let running = || ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(at.clone()) }),
            ..ContainerState::default()
        };
        let waiting = || ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some("CrashLoopBackOff".to_owned()), message: None }),
            ..ContainerState::default()
        };
        let terminated = |t| ContainerState { terminated: Some(t), ..ContainerState::default() };
        let restores = flags_in(&self.pods[name], "restore").is_some();
        let mut init = vec![];
        let mut main: Vec<ContainerStatus> = vec![];
        match process.stage {
            Stage::Scheduling => {}
            Stage::Restoring => init.push(container("restore", running(), None)),
            Stage::Failed("restore", code) => {
                init.push(container(
                    "restore",
                    waiting(),
                    Some(terminated(ended(code, Some("no manifest.json".to_owned())))),
                ));
            }
            Stage::Failed(_, code) => {
                main.push(container("etcd", waiting(), Some(terminated(ended(code, self.last_words(name, code))))))
            }
            Stage::Prepared => {
                let report = self.report_of_preparation(&self.pods[name]);
                main.push(container("restore", terminated(ended(0, Some(report))), None));
            }
            Stage::Booting | Stage::Serving => {
                if restores && process.restored {
                    let report = r#"{"kind":"restored","restoreUid":"u","uri":"file:///backup/k","dbBytes":7,"sha256":"5ha","takenAt":"2025-12-31T00:00:00Z","fromCluster":"ns/old","already":false,"millis":5}"#;
                    // The container ended once; etcd's later restarts do not matter.
                    let state = ContainerStateTerminated {
                        message: Some(report.to_owned()),
                        ..ContainerStateTerminated::default()
                    };
                    init.push(container("restore", terminated(state), None));
                }
                main.push(container("etcd", running(), None));
            }
        }
        let ready = self.serving(name).is_some_and(|(data, _)| {
            let group = &self.groups[&data.group];
            group.leader.is_some() && group.members.iter().any(|l| l.id == data.member_id && !l.learner)
        });
        let resources = self.pods[name].spec.as_ref().and_then(|spec| spec.containers.first()?.resources.clone());
        for etcd in &mut main {
            etcd.restart_count = (process.crashes - 1).max(0);
            etcd.resources.clone_from(&resources);
        }
        let phase = match process.stage {
            Stage::Prepared => "Succeeded",
            _ if main.is_empty() => "Pending",
            _ => "Running",
        };
        PodStatus {
            phase: Some(phase.to_owned()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".to_owned(),
                status: if ready { "True" } else { "False" }.to_owned(),
                ..PodCondition::default()
            }]),
            container_statuses: Some(main),
            init_container_statuses: Some(init),
            ..PodStatus::default()
        }
    }
}
