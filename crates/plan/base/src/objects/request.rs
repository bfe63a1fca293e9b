//! The request of a container: written into its environment, and read back from there.
//!
//! Decides the command and the variable. What runs is what later passes read: a container with another command has no request.

use holdfast_contract::{REQUEST, Request};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};

/// The verb that reads the variable, and no arguments.
const VERB: [&str; 2] = ["agent", "run"];

/// Returns the container that carries out the request with this program.
pub(super) fn with_request(container: Container, program: &str, request: &Request) -> Container {
    let variable = EnvVar { name: REQUEST.to_owned(), value: Some(request.to_text()), value_from: None };
    Container {
        command: Some(std::iter::once(program).chain(VERB).map(str::to_owned).collect()),
        args: None,
        env: Some(std::iter::once(variable).chain(container.env.into_iter().flatten()).collect()),
        ..container
    }
}

/// Returns the text of a container's request; `None` for a container that runs another command.
fn text(container: &Container) -> Option<&str> {
    let runs = container.command.as_ref().is_some_and(|words| words.get(1..).is_some_and(|verb| verb == VERB));
    if !runs || container.args.as_ref().is_some_and(|args| !args.is_empty()) {
        return None;
    }
    let variable = container.env.iter().flatten().find(|variable| variable.name == REQUEST)?;
    variable.value.as_deref()
}

/// Returns the request of a container; `None`: it has none, or one that this version does not know.
pub fn read(container: &Container) -> Option<Request> {
    Request::from_text(text(container)?).ok()
}

/// Returns the container of this name.
pub fn find_container<'a>(pod: Option<&'a PodSpec>, name: &str) -> Option<&'a Container> {
    let pod = pod?;
    pod.containers.iter().chain(pod.init_containers.iter().flatten()).find(|container| container.name == name)
}

/// Returns the request of a container of a Pod.
pub fn of_container(pod: Option<&PodSpec>, name: &str) -> Option<Request> {
    read(find_container(pod, name)?)
}

/// Whether a container has the same request in two Pods.
pub fn is_same(one: Option<&PodSpec>, other: Option<&PodSpec>, name: &str) -> bool {
    let text = |pod| find_container(pod, name).and_then(text);
    text(one) == text(other)
}
