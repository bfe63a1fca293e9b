//! Admission in the small world: a limit range or a policy that refuses Pods with certain requests.

use holdfast_plan::cluster::Judgement;

use super::*;

impl World {
    /// Returns the words with which admission refuses a Pod.
    pub(super) fn refuse(&self, pod: &Pod) -> Option<String> {
        let forbidden = self.forbidden_cpu.as_ref()?;
        let etcd = pod.spec.as_ref()?.containers.first()?;
        let cpu = etcd.resources.as_ref()?.requests.as_ref()?.get("cpu")?;
        (cpu.0 == *forbidden).then(|| {
            format!("pods \"{}\" is forbidden: no container requests {forbidden} of CPU", meta::name(&pod.metadata))
        })
    }

    /// The API server's judgements of next Pods.
    pub(super) fn next_pods(
        &self,
        cluster: &EtcdCluster,
        members: &[cluster::Member],
    ) -> BTreeMap<String, Seen<Judgement>> {
        let judge = |(member, pod): (&cluster::Member, Pod)| {
            let since = self.refused_since.get(member.name()).copied().unwrap_or(self.now);
            let lasted = SignedDuration::from_millis(i64::try_from(self.now - since).unwrap() * TICK);
            let judged = self.refuse(&pod).map_or(Judgement::Permitted, |words| Judgement::Refused { words, lasted });
            (member.name().to_owned(), Seen::Known(judged))
        };
        cluster::next_pods(cluster, members, &settings()).into_iter().map(judge).collect()
    }

    /// Refuses a Pod that is created, or forgets its earlier refusal.
    pub(super) fn admit_pod(&mut self, pod: &Pod) -> Result<(), ()> {
        let name = meta::name(&pod.metadata).to_owned();
        if self.refuse(pod).is_some() {
            self.refused_since.entry(name).or_insert(self.now);
            return Err(());
        }
        self.refused_since.remove(&name);
        Ok(())
    }
}
