//! Stores in the small world: their objects, and probes that take a while and end as the story demands.

use holdfast_contract::Origin;
use holdfast_fixtures::flags_of_job;

use super::*;

/// Ticks of a probe.
const PROBE: u64 = 30;

impl World {
    pub fn restore_from_store(&mut self, store: &str, key: &str) {
        let store_ref = Some(LocalRef { name: store.to_owned() });
        let source = StoredSnapshot { store_ref, key: key.to_owned(), ..StoredSnapshot::default() };
        let restore = Restore { source: Some(source), ..Restore::default() };
        self.edit(|s| s.bootstrap = Some(Bootstrap { restore: Some(restore) }));
    }

    pub fn store(&mut self, name: &str, bucket: &str, secret: &str) {
        let s3 = S3Location { bucket: bucket.to_owned(), ..S3Location::default() };
        let credentials = Some(Credentials { write: secret.to_owned(), ..Credentials::default() });
        let spec = EtcdBackupStoreSpec { place: Location::S3(s3).into(), credentials, agent: None };
        let mut store = self.stores.remove(name).unwrap_or_else(|| {
            let mut store = EtcdBackupStore::new(name, EtcdBackupStoreSpec::default());
            self.born(&mut store.metadata);
            store.metadata.generation = Some(0);
            store
        });
        store.spec = spec;
        store.metadata.generation = store.metadata.generation.map(|g| g + 1);
        self.stores.insert(name.to_owned(), store);
        self.changed();
    }

    /// Changes a Secret. No object becomes due, because the operator does not watch Secrets.
    pub fn secret(&mut self, name: &str) {
        let version = self.next();
        self.secrets.insert(name.to_owned(), version);
    }

    pub fn accept(&mut self, name: &str, mark: &str) {
        let store = self.stores.get_mut(name).unwrap();
        let annotations = store.metadata.annotations.get_or_insert_default();
        annotations.insert(key::ACCEPT_STORE.to_owned(), mark.to_owned());
        self.changed();
    }

    pub(super) fn end_probes(&mut self) {
        let (now, time, trouble) = (self.now, self.time(), self.store_trouble);
        let mut ended = false;
        for (job, born, end) in self.probes.values_mut().filter(|(_, born, end)| end.is_none() && now >= born + PROBE) {
            let _ = born;
            let (trouble, mark) = match trouble {
                Some(trouble) => (Some(trouble), None),
                None => marked(job, &mut self.marks, now),
            };
            *end = Some(probe_pod(trouble, mark, time));
            ended = true;
        }
        if ended {
            self.changed();
        }
    }

    pub fn observe_store(&self, name: &str) -> Option<store::Observed> {
        let object = self.stores.get(name)?.clone();
        let version = |name: &String| self.secrets.get(name).map(ToString::to_string);
        let secrets = store::secrets(&object).into_iter().map(|n| (n.clone(), Seen::Known(version(&n)))).collect();
        let probe = self.probes.get(&store::job_name(&object, &store::inputs(&object, &secrets)));
        Some(store::Observed {
            job: probe.map(|(job, ..)| job.clone()),
            pods: probe.and_then(|(_, _, pod)| pod.clone()).into_iter().collect(),
            claim_users: vec![],
            refusal: None,
            settings: settings(),
            store: object,
            secrets,
        })
    }
}

/// Checks a store's ID as a probe does: the failure, if any, and the ID that the probe finds or creates.
fn marked(job: &Job, marks: &mut BTreeMap<String, String>, now: u64) -> (Option<ExitClass>, Option<String>) {
    let args = flags_of_job(job);
    let flag = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(&format!("--{name}=")));
    let (url, there) = (flag("store").unwrap(), marks.get(flag("store").unwrap()).cloned());
    let said = there.as_deref().unwrap_or(NEW_STORE);
    if flag("expect-store-id").is_some_and(|expected| expected != said && flag("accept-store-id") != Some(said)) {
        return (Some(ExitClass::Refused), there);
    }
    (None, Some(marks.entry(url.to_owned()).or_insert_with(|| format!("mark-at-{now}")).clone()))
}

/// The Pod of a probe that ended like this.
fn probe_pod(trouble: Option<ExitClass>, store_id: Option<String>, at: Timestamp) -> Pod {
    let findings = Trial::ALL.map(|trial| Finding {
        trial,
        outcome: if trouble.is_some() { Outcome::NotTried } else { Outcome::Yes },
        needed: trial.needed(),
        detail: String::new(),
    });
    let failed = trouble.map(|class| {
        let origin = (class == ExitClass::Refused).then_some(Origin::Store);
        FailedReport { class, origin, message: format!("the store answers {}", class.as_str()) }
    });
    let exit_code = failed.as_ref().map_or(0, |failed| failed.failure().code.into());
    let report = Report::Probed(Probed {
        store: "s3://".to_owned(),
        usable: trouble.is_none(),
        findings: findings.to_vec(),
        store_id,
        left_behind: None,
        failed,
    });
    let end = ContainerStateTerminated {
        exit_code,
        message: serde_json::to_string(&report).ok(),
        finished_at: Some(Time(at)),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let agent = ContainerStatus { name: "agent".to_owned(), state, ..ContainerStatus::default() };
    let status = PodStatus { container_statuses: Some(vec![agent]), ..PodStatus::default() };
    Pod { status: Some(status), ..Pod::default() }
}
