//! Collects a story's namespace at the story's end, for the search for Secrets after the last story: objects, Events and the logs
//! of each container go to files, Secrets stay in memory. It searches nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, LogParams};
use serde_json::Value;

use super::kube_helpers::{json, patiently};
use super::world::World;

/// Kinds whose objects are kept whole.
const KINDS: [&str; 15] = [
    "EtcdCluster",
    "EtcdMember",
    "EtcdSnapshot",
    "EtcdSnapshotSchedule",
    "EtcdBackupStore",
    "EtcdUser",
    "EtcdRestore",
    "Pod",
    "Job",
    "CronJob",
    "Deployment",
    "ConfigMap",
    "Service",
    "Event",
    "PersistentVolumeClaim",
];

/// The Secrets and the files of one story.
#[derive(Debug)]
pub struct Collected {
    /// The story.
    pub story: &'static str,
    /// Its Secrets, as the API server has them.
    pub secrets: Vec<Value>,
    /// Objects and logs, with the logs of operators that the story started.
    pub files: Vec<PathBuf>,
}

impl World {
    /// Collects; the files replace those of an earlier run.
    pub async fn collect(&self) -> Result<Collected> {
        let folder = self.env.logs.join("collected").join(self.story);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let (secrets, (), ()) =
            futures::future::try_join3(self.everything("Secret"), self.objects(&folder), self.logs(&folder)).await?;
        let mut files = self.operator_logs()?;
        for entry in std::fs::read_dir(&folder)? {
            files.push(entry?.path());
        }
        Ok(Collected { story: self.story, secrets, files })
    }

    async fn objects(&self, folder: &Path) -> Result<()> {
        let lists = try_join_all(KINDS.map(|kind| self.everything(kind))).await?;
        ensure!(lists.iter().any(|list| !list.is_empty()), "{} holds no objects to search", self.ns);
        for (kind, list) in KINDS.iter().zip(lists) {
            let mut lines = String::new();
            list.iter().try_for_each(|object| writeln!(lines, "{object}"))?;
            std::fs::write(folder.join(format!("{kind}.json")), lines)?;
        }
        Ok(())
    }

    /// Writes the log of each container, and of the container before a restart.
    async fn logs(&self, folder: &Path) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.ns);
        let every = ListParams::default();
        let mut wanted = vec![];
        for pod in patiently(async |_| pods.list(&every).await).await?.items {
            for container in started(&pod) {
                wanted.push((pod.name_any(), container.name.clone(), false));
                if container.restart_count > 0 {
                    wanted.push((pod.name_any(), container.name.clone(), true));
                }
            }
        }
        let pods = &pods;
        try_join_all(wanted.into_iter().map(|(pod, container, previous)| async move {
            let params = LogParams { container: Some(container.clone()), previous, ..LogParams::default() };
            let log = patiently(async |_| match pods.logs(&pod, &params).await {
                // A Pod that goes meanwhile has no log any more.
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => Ok(String::new()),
                answer => answer,
            });
            let log = log.await.with_context(|| format!("the log of {pod} {container}"))?;
            let which = if previous { ".previous" } else { "" };
            Ok(std::fs::write(folder.join(format!("{pod}.{container}{which}.log")), log)?)
        }))
        .await
        .map(drop)
    }

    async fn everything(&self, kind: &str) -> Result<Vec<Value>> {
        let (api, every) = (self.api(kind), ListParams::default());
        Ok(patiently(async |_| api.list(&every).await).await?.items.iter().map(json).collect())
    }
}

/// The containers of a Pod that run or have run.
fn started(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let lists =
        status.map(|it| [&it.init_container_statuses, &it.container_statuses, &it.ephemeral_container_statuses]);
    let all = lists.into_iter().flatten().flatten().flatten();
    all.filter(|it| it.restart_count > 0 || it.state.as_ref().is_some_and(|state| state.waiting.is_none()))
}
