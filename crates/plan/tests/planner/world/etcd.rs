//! etcd in the small world: the member list, the serving members, the leader, and the refused changes of the membership.

use super::*;

impl World {
    /// Founds an etcd cluster of one member. Fails after the operator latched that the cluster has formed (I2).
    pub(super) fn found(&mut self, name: &str, initial_cluster: &str) -> (u64, u64) {
        let status = self.cluster.as_ref().and_then(|c| c.status.clone()).unwrap_or_default();
        // A return prepares the first member of the next timeline, without etcd.
        let returning = status.latches.returning.filter(|returning| returning.member.as_deref() == Some(name));
        let is_asked = returning.as_ref().is_none_or(|returning| self.returns_made.contains(&returning.uid));
        assert!(is_asked, "a timeline was founded without an EtcdRestore");
        let prepared = returning.is_some();
        assert!(status.latches.formed.is_none() || prepared, "a second cluster was founded after the first had formed");
        let url = initial_cluster.strip_prefix(&format!("{name}=")).expect("the seed names itself").to_owned();
        let (group, id) = (0xc000 + self.next(), 0x1000 + self.next());
        let listed = Listed { id, name: name.to_owned(), peer_urls: vec![url], learner: false };
        self.groups.insert(group, Group { members: vec![listed], leader: None });
        (group, id)
    }

    pub(super) fn boot(&mut self, name: &str) -> bool {
        let Some(data) = self.volumes.get(&format!("data-{name}")).and_then(|v| v.data.clone()) else { return false };
        let Some(group) = self.groups.get_mut(&data.group) else { return false };
        let Some(listed) = group.members.iter_mut().find(|l| l.id == data.member_id) else { return false };
        listed.name = name.to_owned();
        true
    }

    pub(super) fn serving(&self, name: &str) -> Option<(&Data, &Process)> {
        let process = self.processes.get(name).filter(|p| p.stage == Stage::Serving && !self.frozen.contains(name))?;
        Some((self.volumes.get(&format!("data-{name}"))?.data.as_ref()?, process))
    }

    /// Serving voters of a group, by name.
    pub(super) fn up(&self, group: u64) -> Vec<(String, u64)> {
        let Some(known) = self.groups.get(&group) else { return vec![] };
        let voters = known.members.iter().filter(|l| !l.learner);
        voters
            .filter(|l| self.serving(&l.name).is_some_and(|(d, _)| d.group == group))
            .map(|l| (l.name.clone(), l.id))
            .collect()
    }

    pub(super) fn elect(&mut self, id: u64) {
        let up = self.up(id);
        let group = self.groups.get_mut(&id).unwrap();
        let voters = group.members.iter().filter(|l| !l.learner).count();
        if up.len() < voters / 2 + 1 {
            group.leader = None;
        } else if !up.iter().any(|(_, id)| Some(*id) == group.leader) {
            group.leader = up.first().map(|(_, id)| *id);
        }
    }

    pub(super) fn answer(&self, name: &str) -> Option<Seen<Answer>> {
        if self.now < self.silent_until {
            return Some(Seen::unknown("timed out"));
        }
        if let Some((data, process)) = self.serving(name) {
            let group = &self.groups[&data.group];
            let listed = group.members.iter().find(|l| l.id == data.member_id)?;
            // Without a leader etcd applies no entry.
            let index = self.filled + if group.leader.is_some() { 1_000_000 + self.now } else { 1_000_000 };
            let (db_bytes, used_bytes) = self.files.get(name).copied().unwrap_or((self.db_bytes, self.db_bytes));
            return Some(Seen::Known(Answer {
                member_id: data.member_id,
                cluster_id: data.group,
                version: self.members.get(name).map(|m| m.spec.process.version.clone()).unwrap_or_default(),
                db_bytes,
                used_bytes,
                term: 3,
                applied_index: if listed.learner { index - process.behind } else { index },
                learner: listed.learner,
                leader: group.leader.unwrap_or_default(),
                revision: 1_000,
            }));
        }
        if self.frozen.contains(name) && self.processes.contains_key(name) {
            return Some(Seen::unknown("no answer within 2 s"));
        }
        let booting = self.processes.get(name).is_some_and(|p| p.stage == Stage::Booting);
        booting.then(|| Seen::unknown("connection refused"))
    }

    pub(super) fn membership(&self) -> Seen<Membership> {
        if self.now < self.silent_until {
            return Seen::unknown("timed out");
        }
        let aside = |name: &&String| self.members.get(*name).is_some_and(|member| member.spec.aside.is_some());
        let asked = self.pods.keys().filter(|name| !aside(name));
        for id in asked.filter_map(|n| self.serving(n)).map(|(d, _)| d.group) {
            let group = &self.groups[&id];
            if group.leader.is_some() {
                let members = group.members.clone();
                let alarms = self.alarms.clone();
                return Seen::Known(Membership { cluster_id: id, leader: group.leader, members, alarms });
            }
        }
        Seen::unknown("no member answers")
    }

    /// HashKV of the serving members.
    pub(super) fn hashes(&self) -> BTreeMap<String, KeyHash> {
        let named = self.alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt && alarm.member_id != 0);
        let serve = self.pods.keys().filter(|name| named && self.serving(name).is_some());
        let hash =
            |name: &String| KeyHash { revision: 7, compact_revision: 3, hash: self.diverged.contains(name).into() };
        serve.map(|name| (name.clone(), hash(name))).collect()
    }

    pub(super) fn add_learner(&mut self, peer_url: &str, cluster_id: u64) -> Result<(), ()> {
        self.calls_to_membership += 1;
        let up = self.up(cluster_id);
        let connected = up.iter().filter(|(n, _)| self.now - self.processes[n].since >= CONNECTED).count();
        let most = if self.cluster.as_ref().is_some_and(|c| c.spec.version.starts_with("3.5.")) { 1 } else { 9 };
        let id = 0x1000 + self.next();
        let group = self.groups.get_mut(&cluster_id).filter(|g| g.leader.is_some()).ok_or(())?;
        if group.members.iter().any(|l| l.peer_urls.iter().any(|u| u == peer_url)) {
            return Ok(());
        }
        let voters = group.members.iter().filter(|l| !l.learner).count();
        let learners = group.members.len() - voters;
        if learners >= most || (voters > 1 && connected < (voters + 1) / 2 + 1) {
            return Err(());
        }
        group.members.push(Listed { id, name: String::new(), peer_urls: vec![peer_url.to_owned()], learner: true });
        Ok(())
    }

    /// MemberUpdate.
    pub(super) fn move_peer(&mut self, member_id: u64, peer_url: String, cluster_id: u64) -> Result<(), ()> {
        let group = self.groups.get_mut(&cluster_id).filter(|g| g.leader.is_some()).ok_or(())?;
        let listed = group.members.iter_mut().find(|l| l.id == member_id).ok_or(())?;
        listed.peer_urls = vec![peer_url];
        Ok(())
    }

    /// MoveLeader, sent to the leader.
    pub(super) fn move_leader(&mut self, from: u64, to: u64, cluster_id: u64) -> Result<(), ()> {
        self.calls_to_membership += 1;
        let up = self.up(cluster_id);
        let group = self.groups.get_mut(&cluster_id).filter(|g| g.leader == Some(from)).ok_or(())?;
        if !up.iter().any(|(_, id)| *id == to) {
            return Err(());
        }
        group.leader = Some(to);
        Ok(())
    }

    /// MemberRemove, with etcd's own refusals (server/etcdserver: `mayRemoveMember`).
    pub(super) fn remove_member(&mut self, member_id: u64, learner: bool, cluster_id: u64) -> Result<(), ()> {
        self.calls_to_membership += 1;
        let up = self.up(cluster_id);
        let connected = up.iter().filter(|(n, _)| self.now - self.processes[n].since >= CONNECTED).count();
        let group = self.groups.get_mut(&cluster_id).filter(|g| g.leader.is_some()).ok_or(())?;
        let Some(listed) = group.members.iter().find(|l| l.id == member_id) else { return Ok(()) };
        if listed.learner != learner {
            return Err(());
        }
        let voters = group.members.iter().filter(|l| !l.learner).count();
        let is_up = up.iter().any(|(_, id)| *id == member_id);
        if !learner && is_up && voters > 2 && connected < 2 + (voters - 1) / 2 {
            return Err(());
        }
        group.members.retain(|l| l.id != member_id);
        // I1, judged by the world: the remaining voters are a quorum.
        let left = group.members.iter().filter(|l| !l.learner).count();
        let still = up.iter().filter(|(_, id)| *id != member_id).count();
        assert!(learner || still > left / 2, "the quorum was removed: {still} of {left} are up");
        Ok(())
    }

    pub(super) fn promote(&mut self, member_id: u64, cluster_id: u64) -> Result<(), ()> {
        self.calls_to_membership += 1;
        let group = self.groups.get(&cluster_id).filter(|g| g.leader.is_some()).ok_or(())?;
        let listed = group.members.iter().find(|l| l.id == member_id).ok_or(())?;
        let (_, process) = self.serving(&listed.name).ok_or(())?;
        if process.behind > 0 {
            return Err(());
        }
        let group = self.groups.get_mut(&cluster_id).ok_or(())?;
        if let Some(listed) = group.members.iter_mut().find(|l| l.id == member_id) {
            listed.learner = false;
        }
        Ok(())
    }
}
