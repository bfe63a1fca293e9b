//! Actions of a person, and failures of a node, in the small world.

use super::*;

impl World {
    pub fn edit(&mut self, change: impl FnOnce(&mut EtcdClusterSpec)) {
        let mut cluster = self.cluster.take().unwrap();
        change(&mut cluster.spec);
        cluster.metadata.generation = cluster.metadata.generation.map(|g| g + 1);
        self.touch(&mut cluster.metadata);
        self.cluster = Some(cluster);
    }

    /// Asks for a last snapshot.
    pub fn save_at_the_end(&mut self, on_failure: OnFailure) {
        let deadline_seconds = Some(60);
        let template =
            SnapshotTemplate { destination: backups().into(), deadline_seconds, ..SnapshotTemplate::default() };
        self.edit(|s| s.final_snapshot = Some(FinalSnapshot { template, on_failure: Some(on_failure) }));
    }

    /// `kubectl annotate`: the cluster goes without its last snapshot.
    pub fn skip_final_snapshot(&mut self) {
        self.write_cluster(|c| {
            c.metadata
                .annotations
                .get_or_insert_default()
                .insert(key::SKIP_FINAL_SNAPSHOT.to_owned(), "true".to_owned());
        });
    }

    /// `kubectl delete` of the last snapshot, after it failed.
    pub fn delete_final_snapshot(&mut self) {
        let name = cluster::name_of_final_snapshot(self.cluster.as_ref().unwrap());
        self.snapshots.remove(&name).unwrap();
        self.changed();
    }

    pub fn restore_from(&mut self, key: Option<&str>) {
        let source = key.map(|key| StoredSnapshot::at(backups(), key.to_owned()));
        let restore = source.map(|source| Restore { source: Some(source), ..Restore::default() });
        self.edit(|s| s.bootstrap = restore.map(|restore| Bootstrap { restore: Some(restore) }));
    }

    /// Restores up to a time.
    pub fn restore_at(&mut self, time: &str) {
        let at = RestorePoint { time: Some(time.to_owned()), ..RestorePoint::default() };
        self.edit(|s| {
            let restore = s.bootstrap.as_mut().and_then(|bootstrap| bootstrap.restore.as_mut());
            restore.expect("a restore").at = Some(at);
        });
    }

    pub fn restore_of_snapshot(&mut self, name: &str) {
        let restore = Restore { snapshot_ref: Some(LocalRef { name: name.to_owned() }), ..Restore::default() };
        self.edit(|s| s.bootstrap = Some(Bootstrap { restore: Some(restore) }));
    }

    pub fn snapshot(&mut self, name: &str, phase: Phase, key: &str) {
        let mut one = EtcdSnapshot::new(
            name,
            EtcdSnapshotSpec {
                cluster_ref: Some(LocalRef { name: "old".to_owned() }),
                template: SnapshotTemplate { destination: backups().into(), ..SnapshotTemplate::default() },
                ..EtcdSnapshotSpec::default()
            },
        );
        let artifact = Artifact { key: key.to_owned(), sha256: "5ha".to_owned(), ..Artifact::default() };
        one.status = Some(EtcdSnapshotStatus {
            phase,
            artifact: (phase == Phase::Complete).then_some(artifact),
            ..EtcdSnapshotStatus::default()
        });
        self.born(&mut one.metadata);
        self.snapshots.insert(name.to_owned(), one);
        self.changed();
    }

    /// A complete snapshot of the cluster, saved from the oldest version that a member has.
    pub fn back_up(&mut self, name: &str) {
        self.snapshot(name, Phase::Complete, name);
        let (uid, now) = (self.cluster.as_ref().and_then(|c| c.metadata.uid.clone()), self.time().to_string());
        let version = self.members.values().map(|m| m.spec.process.version.clone()).min().unwrap_or_default();
        let status = self.snapshots.get_mut(name).and_then(|s| s.status.as_mut()).unwrap();
        (status.cluster_uid, status.completed_at) = (uid, Some(now));
        status.artifact.as_mut().unwrap().etcd_version = version;
        self.changed();
    }

    pub fn lose_status(&mut self) {
        let mut cluster = self.cluster.take().unwrap();
        cluster.status = None;
        self.touch(&mut cluster.metadata);
        self.cluster = Some(cluster);
    }

    pub fn foreign_service(&mut self, name: &str) {
        let mut service = Service::default();
        service.metadata.name = Some(name.to_owned());
        self.born(&mut service.metadata);
        self.services.insert(name.to_owned(), service);
        self.changed();
    }

    pub fn volumes_of_an_earlier_cluster(&mut self, states: &[(&str, bool)]) {
        self.foreign = states
            .iter()
            .map(|(claim, going)| cluster::ForeignVolume { claim: (*claim).to_owned(), going: *going })
            .collect();
        self.changed();
    }

    pub fn remove_service(&mut self, name: &str) {
        self.services.remove(name);
        self.changed();
    }

    pub fn delete_pod(&mut self, name: &str) {
        if let Some(mut pod) = self.pods.remove(name) {
            self.go("pod", name, &mut pod.metadata);
            self.pods.insert(name.to_owned(), pod);
        }
    }

    /// The name of the nth member.
    pub fn nth(&self, n: usize) -> String {
        self.members.keys().nth(n).unwrap().clone()
    }

    /// This member's etcd runs and stops answering.
    pub fn freeze(&mut self, n: usize) {
        let name = self.nth(n);
        self.frozen.insert(name);
        self.changed();
    }

    pub fn thaw(&mut self) {
        self.frozen.clear();
        self.changed();
    }

    /// Makes this member the leader.
    pub fn lead(&mut self, n: usize) {
        let name = self.nth(n);
        for group in self.groups.values_mut() {
            if let Some(listed) = group.members.iter().find(|l| l.name == name) {
                group.leader = Some(listed.id);
            }
        }
        self.changed();
    }

    /// Deletes the claim of a parked member behind Holdfast's back.
    pub fn lose_claim(&mut self, n: usize) {
        let name = self.nth(n);
        self.volumes.remove(&format!("data-{name}"));
        self.changed();
    }

    /// Empties a member's volume under the same claim, and ends its Pod.
    pub fn wipe(&mut self, n: usize) {
        let name = self.nth(n);
        self.volumes.get_mut(&format!("data-{name}")).unwrap().data = None;
        self.delete_pod(&name);
    }

    /// Corrupts a member's log: its etcd ends.
    pub fn corrupt(&mut self, n: usize) {
        let name = self.nth(n);
        self.corrupt.insert(name.clone());
        self.crash(&name);
        self.changed();
    }

    /// etcd finds that a member's data differ from the others'.
    pub fn diverge(&mut self, n: usize) {
        self.raise(n, AlarmKind::Corrupt);
        self.diverged.insert(self.nth(n));
    }

    /// etcd raises an alarm of this member.
    pub fn raise(&mut self, n: usize, kind: AlarmKind) {
        let name = self.nth(n);
        let listed = self.groups.values().flat_map(|group| &group.members).find(|l| l.name == name).unwrap();
        self.alarms.push(Alarm { member_id: listed.id, kind });
        self.changed();
    }

    /// Gives a member's file this size, and this part in use, in MiB.
    pub fn resize_file(&mut self, n: usize, mib: i64, used: i64) {
        self.files.insert(self.nth(n), (mib << 20, used << 20));
    }

    /// Removes the EtcdMember past its finalizer; Kubernetes' garbage collector deletes its Pod.
    pub fn orphan(&mut self, n: usize) {
        let name = self.nth(n);
        self.members.remove(&name);
        self.due.remove(&Who::Member(name.clone()));
        self.delete_pod(&name);
        self.changed();
    }

    /// Restarts the node of a Pod in memory: the same Pod continues without data.
    pub fn restart_node(&mut self, n: usize) {
        let name = self.nth(n);
        self.volumes.get_mut(&format!("data-{name}")).unwrap().data = None;
        self.crash(&name);
        self.changed();
    }

    /// `kubectl annotate`: requests the replacement of this member.
    pub fn ask_to_replace(&mut self, n: usize) {
        let name = self.nth(n);
        self.write_cluster(|c| {
            c.metadata.annotations.get_or_insert_default().insert(key::REPLACE.to_owned(), name);
        });
    }

    /// `kubectl annotate`: requests that a member leads.
    pub fn ask_to_lead(&mut self, name: &str) {
        self.write_cluster(|c| {
            c.metadata.annotations.get_or_insert_default().insert(key::MOVE_LEADER.to_owned(), name.to_owned());
        });
    }

    pub fn ask_to_restart(&mut self, value: &str) {
        self.write_cluster(|c| {
            c.metadata.annotations.get_or_insert_default().insert(key::RESTART.to_owned(), value.to_owned());
        });
    }

    /// `etcdctl member remove` by hand.
    pub fn unlist(&mut self, n: usize) {
        let name = self.nth(n);
        for group in self.groups.values_mut() {
            group.members.retain(|l| l.name != name);
        }
        self.changed();
    }

    pub fn delete_member(&mut self, name: &str) {
        if let Some(mut object) = self.members.remove(name) {
            self.go("member", name, &mut object.metadata);
            self.members.insert(name.to_owned(), object);
        }
    }

    /// `kubectl delete`: the cluster goes after its finalizer, and the members go after the cluster.
    pub fn delete_cluster(&mut self) {
        let Some(mut cluster) = self.cluster.take() else { return };
        cluster.metadata.deletion_timestamp = Some(Time(self.time()));
        let held = cluster.metadata.finalizers.is_some();
        self.touch(&mut cluster.metadata);
        self.cluster = Some(cluster);
        if !held {
            self.collect_members();
        }
    }

    /// Kubernetes' garbage collector, after the end of the cluster.
    pub(super) fn collect_members(&mut self) {
        self.cluster = None;
        self.going.clear();
        let names: Vec<String> = self.members.keys().cloned().collect();
        for name in names {
            self.delete_member(&name);
        }
        self.changed();
    }

    /// A node kills the Pod: the Pod has ended and its object stays.
    pub fn evict_pod(&mut self, name: &str) {
        self.processes.remove(name);
        self.empty_memory(name);
        if let Some(mut pod) = self.pods.remove(name) {
            pod.status = Some(PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() });
            self.touch(&mut pod.metadata);
            self.pods.insert(name.to_owned(), pod);
        }
    }

    pub fn crash(&mut self, name: &str) {
        if let Some(process) = self.processes.get_mut(name) {
            if matches!(process.stage, Stage::Serving | Stage::Booting) {
                process.stage = Stage::Failed("etcd", 2);
                process.since = self.now;
                // The container starts again in the same Pod.
                let pod = self.pods[name].clone();
                self.load_cas(name, &pod);
            }
        }
        self.show_pods();
    }
}
