//! Stores in the small world: what people say of them, and probes that take a while and end as the story wants.

use super::*;

/// Ticks a probe of a store takes.
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

    /// Nobody is woken: Secrets are not watched.
    pub fn secret(&mut self, name: &str) {
        let version = self.next();
        self.secrets.insert(name.to_owned(), version);
    }

    pub(super) fn end_probes(&mut self) {
        let (now, time, trouble) = (self.now, self.time(), self.store_trouble);
        let mut ended = false;
        for (_, born, end) in self.probes.values_mut().filter(|(_, born, end)| end.is_none() && now >= born + PROBE) {
            let _ = born;
            *end = Some(probe_pod(trouble, time));
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
            refusal: None,
            settings: settings(),
            store: object,
            secrets,
        })
    }
}

/// The Pod of a probe that has ended so.
fn probe_pod(trouble: Option<ExitClass>, at: Timestamp) -> Pod {
    let findings = Trial::ALL.map(|trial| Finding {
        trial,
        outcome: if trouble.is_some() { Outcome::NotTried } else { Outcome::Yes },
        needed: trial.needed(),
        detail: String::new(),
    });
    let report = Report::Probed(Probed {
        store: "s3://".to_owned(),
        usable: trouble.is_none(),
        findings: findings.to_vec(),
        left_behind: None,
        failed: trouble.map(|class| FailedReport { class, message: format!("the store answers {}", class.as_str()) }),
    });
    let end = ContainerStateTerminated {
        exit_code: trouble.map_or(0, |class| class.code().into()),
        message: serde_json::to_string(&report).ok(),
        finished_at: Some(Time(at)),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let agent = ContainerStatus { name: "agent".to_owned(), state, ..ContainerStatus::default() };
    let status = PodStatus { container_statuses: Some(vec![agent]), ..PodStatus::default() };
    Pod { status: Some(status), ..Pod::default() }
}
