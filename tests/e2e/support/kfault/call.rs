//! Verb and object of a request to the API server, read from its method, path and body. Decides nothing about the request.

use serde_json::Value;

/// Verb of a request, in the words of Kubernetes' access rules; `Apply` is a server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Apply,
    Delete,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    /// Empty for the core group and for paths that are no resource.
    pub group: String,
    /// In the plural; empty for paths that are no resource.
    pub resource: String,
    pub subresource: Option<String>,
    pub namespace: Option<String>,
    /// For a create: the name in the body.
    pub name: Option<String>,
    /// Ordinal number of the write, where the request counts as a write.
    pub nth_write: Option<u64>,
}

impl Call {
    /// Reads a request.
    pub fn read(method: &str, path: &str, query: &str, content_type: &str, body: &[u8]) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        let group = match parts.next().as_deref() {
            Some("apis") => parts.next().unwrap_or_default(),
            _ => String::new(),
        };
        let _version = parts.next();
        let rest: Vec<String> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            // The namespace object itself is a resource like others.
            [word, namespace, rest @ ..] if word == "namespaces" && !rest.is_empty() => {
                (Some(namespace.clone()), rest.to_vec())
            }
            rest => (None, rest.to_vec()),
        };
        let mut rest = rest.into_iter();
        let (resource, name, subresource) = (rest.next().unwrap_or_default(), rest.next(), rest.next());
        let watches = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
        let verb = match method {
            "POST" => Verb::Create,
            "PUT" => Verb::Update,
            "PATCH" if content_type.starts_with("application/apply-patch") => Verb::Apply,
            "PATCH" => Verb::Patch,
            "DELETE" => Verb::Delete,
            _ if watches => Verb::Watch,
            _ if name.is_none() && !resource.is_empty() => Verb::List,
            _ => Verb::Get,
        };
        let name = name.or_else(|| (verb == Verb::Create).then(|| name_in(body)).flatten());
        Self { verb, group, resource, subresource, namespace, name, nth_write: None }
    }

    /// Whether the request is a write that counts. Events are best effort, and the operator renews Leases all the time.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch) && !self.is_aside()
    }

    /// Whether the request concerns Events or Leases.
    pub fn is_aside(&self) -> bool {
        self.resource == "events" || self.resource == "leases"
    }

    /// Whether the request has this verb and concerns this resource itself, not a subresource.
    pub fn is(&self, verb: Verb, resource: &str) -> bool {
        self.verb == verb && self.resource == resource && self.subresource.is_none()
    }

    /// Identity of an object among all objects.
    pub fn key(&self) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        format!("{}/{}/{}/{}", self.group, self.resource, part(&self.namespace), part(&self.name))
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.verb, self.resource)?;
        self.name.iter().chain(&self.subresource).try_for_each(|part| write!(f, "/{part}"))
    }
}

fn name_in(body: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(body).ok()?;
    let meta = &object["metadata"];
    let whole = meta["name"].as_str().map(str::to_owned);
    whole.or_else(|| meta["generateName"].as_str().map(|prefix| format!("{prefix}*")))
}

/// Checks that requests are read correctly.
pub fn check() -> Result<(), String> {
    let read = |method, path, query, kind, body: &str| {
        let call = Call::read(method, path, query, kind, body.as_bytes());
        format!("{call} of {:?} in {:?}", call.group, call.namespace.as_deref().unwrap_or("-"))
    };
    let merge = "application/merge-patch+json";
    let cases = [
        (read("GET", "/apis/holdfast.dev/v1alpha1", "", "", ""), "Get  of \"holdfast.dev\" in \"-\""),
        (read("GET", "/api/v1/namespaces/n/pods", "limit=500", "", ""), "List pods of \"\" in \"n\""),
        (read("GET", "/api/v1/namespaces/n/pods", "a=b&watch=true", "", ""), "Watch pods of \"\" in \"n\""),
        (read("GET", "/api/v1/namespaces/n", "", "", ""), "Get namespaces/n of \"\" in \"-\""),
        (read("GET", "/api/v1/pods", "", "", ""), "List pods of \"\" in \"-\""),
        (
            read("POST", "/apis/batch/v1/namespaces/n/jobs", "", "", r#"{"metadata":{"name":"j"}}"#),
            "Create jobs/j of \"batch\" in \"n\"",
        ),
        (
            read("POST", "/api/v1/namespaces/n/pods", "", "", r#"{"metadata":{"generateName":"p-"}}"#),
            "Create pods/p-* of \"\" in \"n\"",
        ),
        (
            read("PUT", "/apis/holdfast.dev/v1alpha1/namespaces/n/etcdclusters/a/status", "", "", ""),
            "Update etcdclusters/a/status of \"holdfast.dev\" in \"n\"",
        ),
        (read("PATCH", "/api/v1/namespaces/n/pods/p", "", merge, ""), "Patch pods/p of \"\" in \"n\""),
        (
            read("PATCH", "/api/v1/namespaces/n/services/s", "force=true", "application/apply-patch+yaml", ""),
            "Apply services/s of \"\" in \"n\"",
        ),
        (read("DELETE", "/api/v1/namespaces/n/pods/p", "", "", ""), "Delete pods/p of \"\" in \"n\""),
    ];
    cases.iter().try_for_each(|(is, should)| {
        if is == should { Ok(()) } else { Err(format!("read as {is:?}, and should be {should:?}")) }
    })
}
