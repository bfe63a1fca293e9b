//! The return of the cluster to a snapshot, in place: the `EtcdRestore`, its pass, and the facts that the cluster's pass reads.

use holdfast_api::timeline::{self, FromMember, ReturnPhase};
use holdfast_api::{EtcdRestore, EtcdRestoreSpec, name};
use holdfast_plan::cluster::timeline::find_turn;
use holdfast_plan::returns;

use super::*;

impl World {
    /// Creates an `EtcdRestore` of the cluster to a snapshot.
    pub fn return_to(&mut self, snapshot: &str, timeline: u32, saves: bool) {
        let from = Restore { snapshot_ref: Some(LocalRef { name: snapshot.to_owned() }), ..Restore::default() };
        self.ask_for_return(EtcdRestoreSpec {
            timeline,
            from: Some(from),
            safety_snapshot: saves.then(SnapshotTemplate::default),
            skip_safety_snapshot: (!saves).then(|| "the data is broken".to_owned()),
            ..EtcdRestoreSpec::default()
        });
    }

    /// Creates an `EtcdRestore` of the cluster to the data of a member.
    pub fn return_from(&mut self, member: &str, accept_loss: bool) {
        let from_member = Some(FromMember { name: member.to_owned(), accept_loss });
        let timeline = self.next_timeline();
        self.ask_for_return(EtcdRestoreSpec { timeline, from_member, ..EtcdRestoreSpec::default() });
    }

    fn ask_for_return(&mut self, spec: EtcdRestoreSpec) {
        let spec =
            EtcdRestoreSpec { cluster_ref: LocalRef { name: "a".to_owned() }, deadline_seconds: Some(60), ..spec };
        let mut restore = EtcdRestore::new("back", spec);
        restore.metadata.namespace = Some("ns".to_owned());
        self.born(&mut restore.metadata);
        self.returns_made.insert(meta::uid(&restore.metadata).to_owned());
        self.restore = Some(restore);
        self.changed();
    }

    /// Deletes the `EtcdRestore`.
    pub fn forget_return(&mut self) {
        self.restore = None;
        self.changed();
    }

    /// Whether the return has reached a phase, by its own status.
    pub fn has_returned(&self, phase: ReturnPhase) -> bool {
        let status = self.restore.as_ref().and_then(|restore| restore.status.as_ref());
        status.is_some_and(|status| status.phase == phase)
    }

    /// Whether no return is under way, by the status of the `EtcdRestore`.
    pub fn return_has_ended(&self) -> bool {
        let status = self.restore.as_ref().map(|restore| restore.status.clone().unwrap_or_default());
        status.is_none_or(|status| status.phase.is_final())
    }

    /// The timeline that another `EtcdRestore` makes.
    pub fn next_timeline(&self) -> u32 {
        let latched = |cluster: &EtcdCluster| timeline::of_cluster(cluster, self.members.values());
        self.cluster.as_ref().map_or(timeline::FIRST, latched) + 1
    }

    /// Whether a member carries the record of a return.
    pub fn is_set_aside(&self) -> bool {
        self.members.values().any(|member| member.spec.aside.is_some())
    }

    /// The etcd cluster that answers.
    pub fn serving_group(&self) -> Option<u64> {
        self.membership().known().map(|etcd| etcd.cluster_id)
    }

    /// Whether the cluster knows an etcd cluster as one of its earlier timelines.
    pub fn knows_earlier(&self, group: Option<u64>) -> bool {
        let formed = self.cluster.as_ref().and_then(|cluster| cluster.status.as_ref()?.latches.formed.as_ref());
        let earlier = formed.map(|formed| formed.earlier_cluster_ids.clone()).unwrap_or_default();
        group.is_some_and(|group| earlier.contains(&format!("{group:x}")))
    }

    /// A plan that starts the next timeline before the present one has ended.
    pub fn start_beside(&mut self) {
        let latched = self.cluster.as_ref().and_then(|cluster| cluster.status.as_ref()?.latches.returning.clone());
        let name = latched.and_then(|returning| returning.member).unwrap();
        let member = self.members[&name].clone();
        let mut pod = self.pods.values().next().unwrap().clone();
        pod.metadata.name = member.metadata.name;
        self.pods.insert(name.clone(), pod);
        let process = Process { stage: Stage::Booting, since: self.now, restored: true, behind: 0, crashes: 0 };
        self.processes.insert(name, process);
        self.check_timelines();
    }

    /// A plan that prepares the next timeline without an `EtcdRestore`.
    pub fn prepare_for_nothing(&mut self) {
        self.returns_made.clear();
        self.run_until(1000, |_| false);
    }

    /// A plan that deletes a member of the earlier timeline before its time.
    pub fn clear_early(&mut self) {
        let aside = self.members.values().find(|member| member.spec.aside.is_some()).unwrap();
        let member = Target::from(&aside.metadata);
        let _done = self.perform(&Act::DeleteMember { member, why: "too early".to_owned() });
    }

    /// Asserts that a member of an earlier timeline stays for its time, unless the cluster goes (I4).
    pub(super) fn check_kept(&self, named: &str) {
        let stays = self.cluster.as_ref().is_some_and(|cluster| !meta::deleting(&cluster.metadata));
        let Some(aside) = self.members.get(named).and_then(|member| member.spec.aside.as_ref()).filter(|_| stays)
        else {
            return;
        };
        let until = aside.kept_until().unwrap();
        assert!(self.time() >= until, "the claim of an earlier timeline went before {until}");
    }

    /// Returns the members of the cluster's timeline, and the others.
    pub(super) fn by_timeline(
        object: &EtcdCluster,
        all: Vec<cluster::Member>,
    ) -> (Vec<cluster::Member>, Vec<cluster::Member>) {
        let present = timeline::of_cluster(object, all.iter().map(|member| &member.object));
        all.into_iter().partition(|m| m.object.spec.aside.is_none() && timeline::of_member(&m.object) == present)
    }

    pub(super) fn seen_return(&self, object: &EtcdCluster) -> Option<EtcdRestore> {
        let members: Vec<&EtcdMember> = self.members.values().collect();
        find_turn(object, &members, self.restore.iter()).cloned()
    }

    pub(super) fn safety_snapshot(&self, object: &EtcdCluster) -> Option<EtcdSnapshot> {
        let returning = object.status.as_ref()?.latches.returning.as_ref()?;
        let saves = returning.phase() == ReturnPhase::Saving;
        self.snapshots.get(&name::safety_snapshot("a", &returning.uid)).filter(|_| saves).cloned()
    }

    /// Makes a pass over the `EtcdRestore`.
    pub(super) fn pass_restore(&mut self) {
        let Some(restore) = self.restore.clone() else { return };
        let seen = returns::Observed { cluster: self.observe_cluster(), restore };
        let plan = returns::plan(&seen, self.time());
        safety::Checked::reports(plan.clone()).unwrap_or_else(|(_, broken)| panic!("{broken}"));
        if seen.restore.status.as_ref() != Some(&plan.status) {
            let mut object = seen.restore;
            object.status = Some(plan.status.clone());
            self.writes += 1;
            self.touch(&mut object.metadata);
            self.restore = Some(object);
            self.tell("restore back", &plan.status.conditions);
            self.changed();
        }
    }

    /// The member whose volume the Pod of a preparation mounts.
    pub(super) fn survivor_of(pod: &Pod) -> Option<String> {
        Self::flag(pod, "restore", "from-volume")?;
        let claims = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let claims = claims.filter(|volume| volume.name == "backup");
        let claim = claims.filter_map(|volume| volume.persistent_volume_claim.as_ref()).next()?;
        claim.claim_name.strip_prefix("data-").map(str::to_owned)
    }

    /// Asserts that no etcd runs while a survivor's volume is read.
    pub fn check_at_rest(&self) {
        let runs = |(_, process): &(&String, &Process)| matches!(process.stage, Stage::Booting | Stage::Serving);
        let running: Vec<&String> = self.processes.iter().filter(runs).map(|(name, _)| name).collect();
        assert!(running.is_empty(), "a survivor's volume is read while etcd runs in {running:?}");
    }

    /// The report of a preparation.
    pub(super) fn report_of_preparation(&self, pod: &Pod) -> String {
        let survivor = Self::survivor_of(pod).and_then(|name| self.volumes.get(&format!("data-{name}"))?.data.clone());
        let survivor = survivor.map(|data| {
            format!(
                r#","survivor":{{"clusterId":"{:x}","memberId":"{:x}","lastIndex":9000000,"lastTerm":3,"beyondCommit":2}}"#,
                data.group, data.member_id
            )
        });
        format!(
            r#"{{"kind":"restored","restoreUid":"u","uri":"file:///backup/k","dbBytes":7,"sha256":"5ha","takenAt":"2025-12-31T00:00:00Z","fromCluster":"ns/old","revision":900,"revisionBump":1000001000,"already":false,"millis":5{}}}"#,
            survivor.unwrap_or_default()
        )
    }

    /// Asserts that no two timelines have a running etcd (I2).
    pub(super) fn check_timelines(&self) {
        let runs = |name: &&String| {
            let stage = self.processes.get(*name).map(|process| process.stage.clone());
            matches!(stage, Some(Stage::Booting | Stage::Serving))
        };
        let groups: BTreeSet<u64> = self
            .pods
            .keys()
            .filter(runs)
            .filter_map(|name| self.volumes.get(&format!("data-{name}"))?.data.as_ref().map(|data| data.group))
            .collect();
        assert!(self.restore.is_none() || groups.len() < 2, "two timelines run etcd: {groups:?}");
    }
}
