//! `version`: the versions of this program, of the operators, of the served kinds and of Kubernetes.
//!
//! Decides the lines. A part that cannot be read is one line; the program's own version needs no Kubernetes.

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::access::{Access, Session, words};
use super::end::{DONE, print};
use super::operators::{self, Operator};
use super::screen::{Output, plain};
use holdfast_api::GROUP;
use holdfast_contract::BuildInfo;

/// Flags of `version`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct VersionFlags {
    /// Only the version of this program; contact no server.
    #[arg(long)]
    pub client: bool,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
    /// Output.
    #[command(flatten)]
    pub output: Output,
}

/// The versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// Version of this program.
    pub client: String,
    /// Commit that this program was compiled from; `unknown` for one that is not of a release.
    pub commit: String,
    /// Processor of this program.
    pub architecture: String,
    /// Operators of the Kubernetes cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators: Option<Vec<Operator>>,
    /// Served versions of the custom resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<Vec<String>>,
    /// Version of Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Parts that could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

impl Versions {
    /// Returns the versions before any server is asked.
    fn from_build(BuildInfo { version, commit, architecture }: BuildInfo) -> Self {
        let [client, commit, architecture] = [version, commit, architecture].map(str::to_owned);
        Self { client, commit, architecture, ..Self::default() }
    }
}

/// Prints the versions.
pub async fn run(flags: VersionFlags, build: BuildInfo) -> anyhow::Result<u8> {
    let mut versions = Versions::from_build(build);
    if !flags.client {
        match flags.access.open().await {
            Ok(session) => ask(&session, &mut versions).await,
            Err(error) => versions.unread.push(format!("{error:#}")),
        }
    }
    let text = flags.output.encoded(&versions)?;
    print(&text.unwrap_or_else(|| render(&versions)))?;
    Ok(DONE)
}

async fn ask(session: &Session, versions: &mut Versions) {
    let kubernetes = tokio::time::timeout(std::time::Duration::from_secs(10), session.client.apiserver_version());
    match kubernetes.await {
        Ok(Ok(version)) => versions.kubernetes = Some(version.git_version),
        Ok(Err(error)) => return versions.unread.push(format!("Kubernetes: {}", words(&error))),
        Err(_) => return versions.unread.push("Kubernetes: the API server does not answer".to_owned()),
    }
    match operators::find(session).await {
        Ok(found) => versions.operators = Some(found),
        Err(error) => versions.unread.push(format!("operators: {error:#}")),
    }
    match served(session).await {
        Ok(found) => versions.served = Some(found),
        Err(error) => versions.unread.push(format!("custom resources: {error:#}")),
    }
}

/// Returns the served versions of the group. Every user may ask for them.
pub async fn served(session: &Session) -> anyhow::Result<Vec<String>> {
    let group = session.raw("/apis", GROUP).await?.unwrap_or_default();
    let versions = group["versions"].as_array().into_iter().flatten();
    Ok(versions.filter_map(|version| version["version"].as_str()).map(str::to_owned).collect())
}

fn render(versions: &Versions) -> String {
    let commit = match versions.commit.as_str() {
        BuildInfo::NO_COMMIT => "no release".to_owned(),
        commit => format!("commit {commit}"),
    };
    let mut out = format!("holdfast {} ({commit}, {})\n", versions.client, versions.architecture);
    if let Some(operators) = &versions.operators {
        for Operator { namespace, name, image, ready, wanted, .. } in operators {
            out.push_str(&format!("operator {namespace}/{name}: {image} ({ready} of {wanted} ready)\n"));
        }
        if operators.is_empty() {
            out.push_str("operator: none (kubectl holdfast install)\n");
        }
    }
    if let Some(served) = &versions.served {
        let words = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
        out.push_str(&format!("custom resources {GROUP}: {words}\n"));
    }
    if let Some(kubernetes) = &versions.kubernetes {
        out.push_str(&format!("Kubernetes {kubernetes}\n"));
    }
    for unread in &versions.unread {
        out.push_str(&format!("not read: {}\n", plain(unread)));
    }
    out
}

/// Returns the plural of the kinds that an answer of discovery lists.
pub fn plurals(list: &Value) -> Vec<&str> {
    let resources = list["resources"].as_array().into_iter().flatten();
    resources.filter_map(|resource| resource["name"].as_str()).filter(|name| !name.contains('/')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_not_read_have_a_line_each() {
        let build = BuildInfo { version: "0.1.0", commit: "0123456789ab", architecture: "arm64" };
        let alone = Versions::from_build(build);
        assert_eq!(render(&alone), "holdfast 0.1.0 (commit 0123456789ab, arm64)\n");
        let own = Versions::from_build(BuildInfo { commit: BuildInfo::NO_COMMIT, ..build });
        assert_eq!(render(&own), "holdfast 0.1.0 (no release, arm64)\n");
        let operator = Operator {
            namespace: "holdfast-system".to_owned(),
            name: "holdfast".to_owned(),
            image: "holdfast:0.1.0".to_owned(),
            ready: 1,
            wanted: 1,
            watches: None,
        };
        let all = Versions {
            operators: Some(vec![operator]),
            served: Some(vec!["v1alpha1".to_owned()]),
            kubernetes: Some("v1.36.0".to_owned()),
            unread: vec!["x: forbidden\nfor you".to_owned()],
            ..alone
        };
        let wanted = "holdfast 0.1.0 (commit 0123456789ab, arm64)\noperator holdfast-system/holdfast: holdfast:0.1.0 (1 of 1 ready)\n\
                      custom resources holdfast.dev: v1alpha1\nKubernetes v1.36.0\nnot read: x: forbidden for you\n";
        assert_eq!(render(&all), wanted);
    }
}
