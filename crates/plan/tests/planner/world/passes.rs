//! The operator in the small world: its view, and its passes, judged as they happen.

use super::writes::english;
use super::*;
use holdfast_api::transport::Transport;
use holdfast_plan::pods;

impl World {
    pub fn observe_cluster(&self) -> Option<cluster::Observed> {
        let object = self.cluster.clone()?;
        let members: Vec<cluster::Member> = self
            .members
            .values()
            .filter(|m| m.spec.cluster_ref.uid == meta::uid(&object.metadata))
            .map(|m| {
                let uid = meta::uid(&m.metadata);
                let name = meta::name(&m.metadata);
                cluster::Member {
                    object: m.clone(),
                    pod: self.pods.get(name).filter(|p| meta::controlled_by(&p.metadata, uid)).cloned(),
                    claim: self.claim(name),
                }
            })
            .collect();
        let (members, others) = Self::by_timeline(&object, members);
        let mut answers = BTreeMap::new();
        for name in self.pods.keys().filter(|n| members.iter().any(|m| m.name() == **n)) {
            if let Some(answer) = self.answer(name) {
                answers.insert(name.clone(), answer);
            }
        }
        let returns = self.seen_return(&object);
        let first = object.spec.bootstrap.as_ref().and_then(|b| b.restore.as_ref());
        let restore = returns.as_ref().map_or(first, |returns| returns.spec.from.as_ref());
        let named = restore.and_then(|r| r.snapshot_ref.as_ref());
        let store = restore.and_then(Restore::store);
        Some(cluster::Observed {
            store: store.map(|name| Seen::Known(self.stores.get(name).cloned())),
            etcd: self.membership(),
            answers,
            snapshot: named.map(|n| Seen::Known(self.snapshots.get(&n.name).cloned())),
            peer_service: self.services.get("a").cloned(),
            client_service: self.services.get("a-client").cloned(),
            budget: self.budget.clone(),
            foreign: self.foreign.clone(),
            foreign_members: vec![],
            others,
            safety_snapshot: self.safety_snapshot(&object),
            prunes: self.schedule.iter().filter_map(|s| schedule::live_run(s, self.time())).collect(),
            stray_pods: self.stray_pods(),
            hashes: self.hashes(),
            auth: self.seen_auth(&object),
            searches: self.seen_searches(),
            rehearsals: self.seen_rehearsals(),
            requested: self.requested(),
            ending: ending::asked_for_snapshot(&object).then(|| self.ending(&object)),
            backup: self.newest_backup(),
            refusal: None,
            refused_growth: self.refused_growth(&object),
            next_pods: self.next_pods(&object, &members),
            client_endpoints: Some(self.client_endpoints()),
            certificates: self.seen_certificates(),
            unread_certificates: None,
            last_snapshot: cluster::newest(meta::uid(&object.metadata), self.snapshots.values()),
            has_turn: true,
            refused_for: None,
            saving: cluster::saving(meta::uid(&object.metadata), self.snapshots.values(), self.time()),
            backups: holdfast_plan::schedule::healthy(self.schedule.iter()),
            fresh_suffix: format!("m{:03}", self.counter),
            settings: settings(),
            returns,
            cluster: object,
            members,
        })
    }

    /// Whether authentication is on. In plaintext the operator does not ask, but on the way to TLS.
    fn seen_auth(&self, object: &EtcdCluster) -> Option<bool> {
        let leader = self.groups.values().find_map(|group| {
            let listed = group.members.iter().find(|l| Some(l.id) == group.leader)?;
            self.pods.get(&listed.name)
        });
        let asks = |pod| pods::transport(pod).has_certificates() || object.transport() == Transport::PeersPlaintext;
        leader.is_some_and(asks).then_some(self.auth)
    }

    /// The endpoints of the client Service, without the delay of Kubernetes.
    fn client_endpoints(&self) -> Vec<String> {
        let reached = |pod: &&Pod| {
            let voter = meta::label(&pod.metadata, key::ROLE) == Some("voter");
            voter && pods::ready(pod) && self.services.contains_key("a-client")
        };
        self.pods.values().filter(reached).map(|pod| meta::uid(&pod.metadata).to_owned()).collect()
    }

    pub(super) fn claim(&self, member: &str) -> Option<PersistentVolumeClaim> {
        let volume = self.volumes.get(&format!("data-{member}")).filter(|_| !self.in_memory());
        volume.map(|volume| volume.claim.clone())
    }

    fn stray_pods(&self) -> Vec<String> {
        let owned =
            |pod: &Pod| self.members.values().any(|m| meta::controlled_by(&pod.metadata, meta::uid(&m.metadata)));
        self.pods.iter().filter(|(_, pod)| !owned(pod)).map(|(name, _)| name.clone()).collect()
    }

    pub fn observe_member(&self, name: &str) -> Option<member::Observed> {
        let object = self.members.get(name)?.clone();
        let same = |c: &&EtcdCluster| meta::uid(&c.metadata) == object.spec.cluster_ref.uid;
        Some(member::Observed {
            cluster: Seen::Known(self.cluster.as_ref().filter(same).cloned()),
            pod: self.pods.get(name).cloned(),
            claim: self.claim(name),
            settings: settings(),
            member: object,
        })
    }

    /// Makes one pass over every object that is due. Returns the number of attempted acts.
    pub fn passes(&mut self) -> usize {
        if self.away {
            return 0;
        }
        let due: Vec<Who> = self.due.iter().filter(|(_, at)| **at <= self.now).map(|(w, _)| w.clone()).collect();
        due.into_iter().map(|who| self.pass(&who)).sum()
    }

    pub fn pass(&mut self, who: &Who) -> usize {
        self.due.remove(who);
        let now = self.time();
        match who {
            Who::Cluster => {
                let Some(seen) = self.observe_cluster() else { return 0 };
                let plan = cluster::plan(&seen, now);
                assert_eq!(plan, cluster::plan(&seen, now), "the same facts give the same plan");
                safety::cluster(&seen, &plan).unwrap_or_else(|v| panic!("{v}\n{plan:#?}"));
                let mut again = seen.clone();
                again.cluster.status = Some(plan.status.clone());
                assert_eq!(cluster::plan(&again, now).status, plan.status, "a written status is not written again");
                if seen.cluster.status.as_ref() != Some(&plan.status) {
                    let status = plan.status.clone();
                    self.write_cluster(|c| c.status = Some(status));
                    self.tell("cluster", &plan.status.conditions);
                }
                for ensure in &plan.ensures {
                    self.apply(ensure);
                }
                let tried = self.finish(who, plan);
                self.check_timelines();
                self.pass_restore();
                tried
            }
            Who::Member(name) => {
                let Some(seen) = self.observe_member(name) else { return 0 };
                let plan = member::plan(&seen, now);
                assert_eq!(plan, member::plan(&seen, now), "the same facts give the same plan");
                safety::member(&seen, &plan).unwrap_or_else(|v| panic!("{v}\n{plan:#?}"));
                if seen.member.status.as_ref() != Some(&plan.status) {
                    let status = plan.status.clone();
                    self.write_member(name, |m| m.status = Some(status));
                    self.tell(name, &plan.status.conditions);
                }
                self.finish(who, plan)
            }
            Who::Store(name) => {
                let Some(seen) = self.observe_store(name) else { return 0 };
                let plan = store::plan(&seen, now);
                assert_eq!(plan, store::plan(&seen, now), "the same facts give the same plan");
                if seen.store.status.as_ref() != Some(&plan.status) {
                    let status = plan.status.clone();
                    let mut object = seen.store.clone();
                    object.status = Some(status);
                    self.writes += 1;
                    self.touch(&mut object.metadata);
                    self.stores.insert(name.clone(), object);
                    self.tell(&format!("store {name}"), &plan.status.conditions);
                }
                self.finish(who, plan)
            }
            Who::Schedule => {
                let Some(seen) = self.observe_schedule() else { return 0 };
                let plan = schedule::plan(&seen, now);
                assert_eq!(plan, schedule::plan(&seen, now), "the same facts give the same plan");
                safety::schedule(&seen, &plan).unwrap_or_else(|v| panic!("{v}\n{plan:#?}"));
                let mut again = seen.clone();
                again.schedule.status = Some(plan.status.clone());
                assert_eq!(schedule::plan(&again, now).status, plan.status, "a written status is not written again");
                if seen.schedule.status.as_ref() != Some(&plan.status) {
                    let mut object = seen.schedule.clone();
                    object.status = Some(plan.status.clone());
                    self.writes += 1;
                    self.touch(&mut object.metadata);
                    self.schedule = Some(object);
                    self.tell("schedule", &plan.status.conditions);
                }
                for ensure in &plan.ensures {
                    self.apply(ensure);
                }
                self.finish(who, plan)
            }
            Who::Record(name) => {
                let Some(seen) = self.observe_record(name) else { return 0 };
                let plan = snapshot::plan(&seen, now);
                assert_eq!(plan, snapshot::plan(&seen, now), "the same facts give the same plan");
                if seen.snapshot.status.as_ref() != Some(&plan.status) {
                    let mut object = seen.snapshot.clone();
                    object.status = Some(plan.status.clone());
                    self.writes += 1;
                    self.touch(&mut object.metadata);
                    self.snapshots.insert(name.clone(), object);
                    self.say(format!("record {name} is {:?}", plan.status.phase));
                }
                self.finish(who, plan)
            }
        }
    }

    pub(super) fn finish<S>(&mut self, who: &Who, plan: Plan<S>) -> usize {
        let settled = plan.act.is_none() && plan.waiting.is_none();
        if settled {
            let applies = matches!(who, Who::Cluster | Who::Schedule);
            assert!(plan.ensures.is_empty() || plan.wake != Wake::OnChange || applies);
        }
        let tried = usize::from(plan.act.is_some());
        let mut retry = false;
        if let Some(act) = plan.act {
            let fault = self.faults.pop().or_else(|| self.interrupt());
            retry = match fault {
                Some(Fault::Conflict) => true,
                Some(Fault::LostAnswer) => {
                    let _ = self.perform(&act);
                    true
                }
                Some(Fault::Late) => {
                    self.late.push(act);
                    true
                }
                None => {
                    let line = format!("{}: {}", name_of(who), english(&act));
                    if self.perform(&act).is_ok() {
                        self.say(line);
                        false
                    } else {
                        true
                    }
                }
            };
        }
        let at = match plan.wake {
            _ if retry => Some(self.now + 1),
            Wake::Now => Some(self.now),
            Wake::AfterMillis(ms) => Some(self.now + (ms / TICK.unsigned_abs()).max(1)),
            Wake::OnChange => None,
        };
        if let Some(at) = at {
            let due = self.due.entry(who.clone()).or_insert(at);
            *due = (*due).min(at);
        }
        tried
    }

    /// Returns the fault that is due now, once.
    fn interrupt(&mut self) -> Option<Fault> {
        let (left, fault) = self.interrupts.take()?;
        match left.checked_sub(1) {
            Some(left) => {
                self.interrupts = Some((left, fault));
                None
            }
            None => Some(fault),
        }
    }

    /// Logs the changes of an object's conditions.
    pub(super) fn tell(
        &mut self,
        whose: &str,
        conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    ) {
        for c in conditions {
            let id = format!("{whose} {}", c.type_);
            let state = format!("{}={}/{}", c.type_, c.status, c.reason);
            if self.said.get(&id) != Some(&state) {
                self.said.insert(id, state.clone());
                if c.reason == "NoSchedule" {
                    continue;
                }
                if whose == "cluster" || whose == "schedule" || whose.starts_with("store ") {
                    self.say(format!("{whose} is {state}: {}", c.message));
                }
            }
        }
    }
}

fn name_of(who: &Who) -> &str {
    match who {
        Who::Cluster => "cluster",
        Who::Schedule => "nightly",
        Who::Member(name) | Who::Store(name) | Who::Record(name) => name,
    }
}
