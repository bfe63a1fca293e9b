//! The flags that choose a Kubernetes cluster, as kubectl names them, and the requests with the person's own rights.
//!
//! Decides the namespace, the words about a refused request, and the deadlines. `holdfast_kube::api_server` reads kubeconfigs.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use holdfast_kube::api_server::Way;
use holdfast_kube::kinds::Object;
use holdfast_kube::requests;
use kube::api::{GetParams, ListParams, Patch, PatchParams};
use kube::core::Request;
use kube::{Client, Error};
use serde_json::Value;

use super::end::wrong_use;
use holdfast_manifests::names::namespace;

/// Longest wait for an answer. A watch and a log have none.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Page of a list: no answer holds a whole fleet.
const PAGE: u32 = 500;

/// Field manager of the writes that a person asks for.
pub const MANAGER: &str = "kubectl-holdfast";

/// Flags that choose the Kubernetes cluster and the namespace.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Namespace. Default: the namespace of the kubeconfig's context, or of the Pod that runs this command.
    #[arg(short, long, value_name = "NS", value_parser = namespace, help_heading = "Kubernetes")]
    pub namespace: Option<String>,
    /// The Kubernetes cluster.
    #[command(flatten)]
    pub entry: Entry,
}

/// Flags that choose the Kubernetes cluster.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Context of the kubeconfig. Default: its current context.
    #[arg(long, value_name = "NAME", help_heading = "Kubernetes")]
    pub context: Option<String>,
    /// Kubeconfig file. Default: the files that KUBECONFIG lists, or ~/.kube/config.
    #[arg(long, value_name = "FILE", help_heading = "Kubernetes")]
    pub kubeconfig: Option<PathBuf>,
}

impl Access {
    /// Makes the client. Contacts no server.
    pub async fn open(&self) -> anyhow::Result<Session> {
        self.entry.open(self.namespace.as_deref()).await
    }
}

impl Entry {
    /// Makes the client for this namespace. Contacts no server.
    pub async fn open(&self, namespace: Option<&str>) -> anyhow::Result<Session> {
        let way = Way::choose(self.kubeconfig.as_deref(), self.context.as_deref()).await;
        let way = way.map_err(|error| {
            let words = "no Kubernetes to talk to: set KUBECONFIG, name a file with --kubeconfig, or run this in a Pod";
            let is_named = self.kubeconfig.is_some() || self.context.is_some();
            if is_named { wrong_use(format!("{error:#}")) } else { error.context(words) }
        })?;
        way.sign_in().await?;
        let chosen = namespace.unwrap_or(&way.config.default_namespace).to_owned();
        Ok(Session { client: way.client()?, namespace: chosen, is_named: namespace.is_some() })
    }
}

/// A client, and the namespace of the command.
#[derive(Clone)]
pub struct Session {
    /// The client, with the person's rights.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    is_named: bool,
}

/// Which objects a list holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Only<'a> {
    /// Label selector.
    pub labels: Option<&'a str>,
    /// Field selector.
    pub fields: Option<&'a str>,
    /// Whether the list is of every namespace.
    pub everywhere: bool,
}

impl Session {
    /// Returns the flag that names the namespace in a command to paste, where the person named it.
    pub fn flag(&self) -> String {
        if self.is_named { format!(" -n {}", self.namespace) } else { String::new() }
    }

    /// Reads an object by its name.
    pub async fn get<K: Object>(&self, name: &str) -> anyhow::Result<Option<K>> {
        let read = requests::get_opt::<K>(&self.client, &self.namespace, name);
        in_time(read).await.map_err(|error| self.answer::<K>(&error, "get"))
    }

    /// Reads an object that the command line names.
    pub async fn named<K: Object>(&self, name: &str) -> anyhow::Result<K> {
        self.get(name).await?.ok_or_else(|| self.missing::<K>(name))
    }

    /// Returns the error about an object that is not there.
    fn missing<K: Object>(&self, name: &str) -> anyhow::Error {
        let (kind, namespace) = (K::NAME, &self.namespace);
        wrong_use(format!("there is no {kind} {name} in namespace {namespace}: name another namespace with -n"))
    }

    /// Reads every page of a list.
    pub async fn list<K: Object>(&self, only: Only<'_>) -> anyhow::Result<Vec<K>> {
        let place = (!only.everywhere).then_some(self.namespace.as_str());
        let request = Request::new(K::url_path(&(), place));
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector = only.labels.map(str::to_owned);
        params.field_selector = only.fields.map(str::to_owned);
        let mut all = vec![];
        loop {
            let page = async {
                let page = request.list(&params).map_err(Error::BuildRequest)?;
                let text = self.client.request_text(page).await?;
                K::list_from_json(&text).map_err(Error::SerdeError)
            };
            let page = in_time(page).await.map_err(|error| self.answer::<K>(&error, "list"))?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => return Ok(all),
            }
        }
    }

    /// Merges a change into an object.
    pub async fn merge<K: Object>(&self, name: &str, change: Value) -> anyhow::Result<K> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let change = Patch::Merge(change);
        let patched = requests::patch::<K>(&self.client, &self.namespace, name, &params, &change);
        in_time(patched).await.map_err(|error| match &error {
            Error::Api(status) if status.code == 404 => self.missing::<K>(name),
            _ => self.answer::<K>(&error, "patch"),
        })
    }

    /// Returns the error of a request: of a right that is missing, its name.
    fn answer<K: Object>(&self, error: &Error, verb: &str) -> anyhow::Error {
        let plural = K::plural(&());
        match error {
            Error::Api(status) if status.code == 403 => {
                let namespace = &self.namespace;
                anyhow::anyhow!(
                    "your rights do not permit to {verb} {plural} in namespace {namespace} (docs/plugin.md#rights)"
                )
            }
            _ => refused(error, &format!("{verb} {plural}")),
        }
    }

    /// Reads an object of any kind by the path of its collection. `None` after the answer 404.
    pub async fn raw(&self, collection: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let read = async {
            let request = Request::new(collection).get(name, &GetParams::default()).map_err(Error::BuildRequest)?;
            self.client.request::<Value>(request).await
        };
        match in_time(read).await {
            Ok(object) => Ok(Some(object)),
            Err(Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(refused(&error, &format!("reading {name}"))),
        }
    }

    /// Lists objects of any kind by the path of their collection.
    pub async fn raw_list(&self, collection: &str, labels: &str) -> anyhow::Result<Vec<Value>> {
        let read = async {
            let params = ListParams::default().labels(labels);
            let request = Request::new(collection).list(&params).map_err(Error::BuildRequest)?;
            self.client.request::<Value>(request).await
        };
        let mut list = in_time(read).await.map_err(|error| anyhow::anyhow!(words(&error)))?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(vec![]),
        }
    }
}

/// Waits for an answer, and no longer than [`ANSWER_WITHIN`].
async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(|_| {
        let why = format!("no answer from the API server within {} s", ANSWER_WITHIN.as_secs());
        Err(Error::Service(why.into()))
    })
}

/// Returns the error of a request in the API server's own words.
pub fn refused(error: &Error, doing: &str) -> anyhow::Error {
    anyhow::anyhow!("{doing}: {}", words(error))
}

/// Returns the API server's message, or the cause that kept the request from the API server.
pub fn words(error: &Error) -> String {
    match error {
        // For a kind that it does not serve, the API server reports no object, only that the path leads nowhere.
        Error::Api(status) if status.code == 404 && status.message.starts_with("404 page not found") => {
            "the API server does not know the kind: install Holdfast first (kubectl holdfast install)".to_owned()
        }
        Error::Api(status) if status.message.is_empty() => format!("{} {}", status.code, status.reason),
        Error::Api(status) => status.message.clone(),
        other => {
            // The outermost words name a library; the innermost ones name the cause.
            let mut cause: &dyn std::error::Error = other;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            cause.to_string()
        }
    }
}
