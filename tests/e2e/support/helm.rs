//! Runs helm in the story's namespace, as a user does who has a checkout. It decides nothing about charts and values.

use anyhow::{Context, Result, bail};

use super::world::World;

/// The values of the chart holdfast that name this image.
pub fn image_values(image: &str) -> Result<Vec<String>> {
    if let Some((repository, digest)) = image.split_once('@') {
        return Ok(vec![format!("image.repository={repository}"), format!("image.digest={digest}")]);
    }
    let (repository, tag) = image.rsplit_once(':').context("an image with a tag")?;
    Ok(vec![format!("image.repository={repository}"), format!("image.tag={tag}")])
}

impl World {
    /// Runs helm in the root of the checkout; returns its output, or an error with it.
    pub async fn helm(&self, args: &[&str]) -> Result<String> {
        let mut command = tokio::process::Command::new("helm");
        command.current_dir(env!("CARGO_MANIFEST_DIR")).arg("--kubeconfig").arg(&self.env.kubeconfig);
        command.args(["-n", &self.ns]).args(args).kill_on_drop(true);
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(folder, self.env.logs.join("helm"));
        }
        let out = command.output().await.context("run helm (is it in PATH? `make` puts the testbed's there)")?;
        let told = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        if !out.status.success() {
            bail!("helm {}: {}", args.join(" "), told.trim());
        }
        Ok(told)
    }
}
