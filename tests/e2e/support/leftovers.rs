//! What killed runs left on the testbed: taken away before a new run, so that it does not compete for the machine.
//!
//! Only on the testbed, never on somebody's own cluster, and never what a run that still lives is using.

use anyhow::Result;
use serde_json::Value;

use super::env::Env;

/// Label of our namespaces: the process that made them.
pub const RUN: &str = "holdfast.dev/run";

/// Sweeps.
pub fn sweep(env: &Env) -> Result<()> {
    // The demo's operator watches every namespace: two operators on one object would only fight.
    env.kubectl(&["-n", "holdfast-system", "delete", "deployment", "holdfast", "--ignore-not-found"])?;
    let namespaces: Value =
        serde_json::from_str(&env.kubectl(&["get", "namespaces", "-l", "holdfast.dev/test=e2e", "-o", "json"])?)?;
    for namespace in namespaces["items"].as_array().into_iter().flatten() {
        let run = namespace["metadata"]["labels"][RUN].as_str().unwrap_or_default();
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        if name.is_empty() || lives(run) {
            continue;
        }
        eprintln!("e2e: taking away {name}, left by an earlier run");
        // Its operator may be gone, and with it whoever would remove the finalizers.
        for member in env.kubectl(&["-n", name, "get", "etcdmembers", "-o", "name"])?.lines() {
            env.kubectl(&["-n", name, "patch", member, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])?;
        }
        env.kubectl(&["delete", "namespace", name, "--wait=false"])?;
    }
    Ok(())
}

fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("e2e"))
}
