//! Files in a store or on a volume, listed from outside: by the probe, in a Pod that mounts it.

use anyhow::{Context, Result};
use serde_json::Value;

use super::make;
use super::world::World;

/// The manifests among these files that belong to the object: the name of a folder contains the UID of its object.
pub fn manifests<'a>(files: &'a [String], object: &Value) -> Result<Vec<&'a String>> {
    let owner = object["metadata"]["uid"].as_str().and_then(|uid| uid.get(..8)).context("a UID")?;
    let mark = format!("-{owner}-");
    Ok(files.iter().filter(|file| file.contains("manifest.json") && file.contains(&mark)).collect())
}

impl World {
    /// Creates a Pod that sleeps, with these claims, and waits until it runs.
    pub async fn toolbox(&self, name: &str, claims: &[&str]) -> Result<()> {
        self.create(make::toolbox(name, &self.env.probe_image, claims)).await?;
        self.wait("Pod", name, "running", |p| p["status"]["phase"] == "Running").await.map(drop)
    }

    /// The files below a folder of a toolbox, with their sizes.
    pub async fn files(&self, toolbox: &str, folder: &str) -> Result<Vec<String>> {
        self.list(toolbox, "probe", folder).await
    }

    /// The S3 server's Pod.
    pub async fn s3_pod(&self) -> Result<String> {
        self.names_with("Pod", "app=s3").await?.into_iter().next().context("the S3 server's Pod")
    }

    /// Every file of the S3 server's bucket.
    pub async fn bucket(&self) -> Result<Vec<String>> {
        self.list(&self.s3_pod().await?, "versitygw", "/data/backups").await
    }

    async fn list(&self, pod: &str, container: &str, folder: &str) -> Result<Vec<String>> {
        let files = self.exec(pod, container, &["holdfast-probe", "ls", folder]).await?;
        Ok(files.lines().map(str::to_owned).collect())
    }
}
