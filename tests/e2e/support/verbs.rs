//! A user's operations on objects, and a story's reads of them, by the story's client. It decides nothing about the objects.

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, EvictParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::apply::apply;
use super::exec::exec;
use super::kube_helpers::{self, patiently, until, wait_for};
use super::world::{PATIENCE, World};

impl World {
    /// Applies YAML or JSON; objects without a namespace go into the story's namespace.
    pub async fn apply(&self, text: &str) -> Result<()> {
        apply(&self.client, &self.ns, text).await
    }

    /// Starts a run of a `CronJob` by hand, as `kubectl create job --from` does.
    pub async fn run_now(&self, cron: &str, name: &str) -> Result<()> {
        let crons: Api<CronJob> = Api::namespaced(self.client.clone(), &self.ns);
        let cron = patiently(async |_| crons.get(cron).await).await?;
        let template = cron.spec.as_ref().context("a spec")?.job_template.clone();
        let mut metadata = json!(template.metadata.unwrap_or_default());
        metadata["name"] = json!(name);
        metadata["annotations"]["cronjob.kubernetes.io/instantiate"] = json!("manual");
        metadata["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "CronJob", "name": cron.name_any(), "uid": cron.uid(), "controller": true,
        }]);
        self.create(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template.spec}))
            .await
            .map(drop)
    }

    /// Reads a path of the API server, as `kubectl get --raw` does.
    pub async fn get_raw(&self, path: &str) -> Result<String> {
        let request = || hyper::Request::get(path).body(vec![]).map_err(kube::Error::HttpError);
        Ok(patiently(async |_| self.client.request_text(request()?).await).await?)
    }

    /// Creates an object with `dryRun`; returns the object as admission leaves it.
    pub async fn try_create(&self, object: &Value) -> Result<Value> {
        let kind = object["kind"].as_str().context("kind")?.to_owned();
        let (api, object): (_, DynamicObject) = (self.api(&kind), serde_json::from_value(object.clone())?);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        Ok(kube_helpers::json(&patiently(async |_| api.create(&dry, &object).await).await?))
    }

    /// Creates an object as a user would.
    pub async fn create(&self, object: Value) -> Result<Value> {
        let kind = object["kind"].as_str().context("kind")?.to_owned();
        let object: DynamicObject = serde_json::from_value(object)?;
        let (api, name) = (self.api(&kind), object.name_any());
        let made = patiently(async |again| match api.create(&PostParams::default(), &object).await {
            // The API server created the object at the first try, and the answer was lost.
            Err(kube::Error::Api(status)) if again && status.is_already_exists() => api.get(&name).await,
            answer => answer,
        });
        Ok(kube_helpers::json(&made.await?))
    }

    /// Merge-patches an object as a user would.
    pub async fn patch(&self, kind: &str, name: &str, patch: Value) -> Result<Value> {
        let (api, patch) = (self.api(kind), Patch::Merge(patch));
        let patched = patiently(async |_| api.patch(name, &PatchParams::default(), &patch).await);
        Ok(kube_helpers::json(&patched.await?))
    }

    /// Merge-patches an object's status, as a careless tool would.
    pub async fn patch_status(&self, kind: &str, name: &str, status: Value) -> Result<()> {
        let (api, patch) = (self.api(kind), Patch::Merge(json!({ "status": status })));
        patiently(async |_| api.patch_status(name, &PatchParams::default(), &patch).await).await.map(drop)?;
        Ok(())
    }

    /// Evicts a Pod, as `kubectl drain` does.
    pub async fn evict(&self, pod: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.ns);
        patiently(async |_| pods.evict(pod, &EvictParams::default()).await).await.map(drop)?;
        Ok(())
    }

    /// Deletes an object as a user would.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        kube_helpers::delete(&self.api(kind), name).await
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete_and_wait(&self, kind: &str, name: &str) -> Result<()> {
        self.delete(kind, name).await?;
        let api = self.api(kind);
        until(&format!("{kind} {name} to go"), PATIENCE, async || {
            Ok(match api.get_opt(name).await? {
                None => Ok(()),
                Some(left) => Err(format!("finalizers {:?}", left.metadata.finalizers)),
            })
        })
        .await
    }

    /// Reads the object.
    pub async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        let api = self.api(kind);
        Ok(kube_helpers::json(&patiently(async |_| api.get(name).await).await?))
    }

    /// Waits until the object satisfies `good`.
    pub async fn wait(&self, kind: &str, name: &str, what: &str, good: impl Fn(&Value) -> bool) -> Result<Value> {
        wait_for(&self.api(kind), name, what, PATIENCE, good).await
    }

    /// Waits until a cluster is `Ready`, and checks that etcd lists that many voters and no other member.
    pub async fn wait_ready(&self, cluster: &str, voters: usize) -> Result<()> {
        self.wait("EtcdCluster", cluster, &format!("Ready with {voters} voters"), |c| {
            kube_helpers::is_ready(c, voters)
        })
        .await?;
        let members = self.members(cluster).await?;
        anyhow::ensure!(
            members.members.len() == voters && members.members.iter().all(|m| !m.is_learner),
            "etcd lists {members:?}, not {voters} voters"
        );
        Ok(())
    }

    /// Names of all objects of a kind.
    pub async fn names(&self, kind: &str) -> Result<Vec<String>> {
        kube_helpers::names(&self.api(kind), "").await
    }

    /// Names of objects of a kind with these labels.
    pub async fn names_with(&self, kind: &str, selector: &str) -> Result<Vec<String>> {
        kube_helpers::names(&self.api(kind), selector).await
    }

    /// Runs a command in a container; returns its standard output.
    pub async fn exec(&self, pod: &str, container: &str, command: &[&str]) -> Result<String> {
        exec(&self.client, &self.ns, pod, container, command).await
    }
}
