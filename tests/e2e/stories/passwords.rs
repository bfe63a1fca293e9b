//! A user's password changes while applications write with it: a client that reads the Secret again goes on, and no acknowledged
//! write is lost.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::auth::user_is;
use super::tls::{application, ask, ready, service};
use crate::support::kube_helpers::until;
use crate::support::make;
use crate::support::probe::Wrote;
use crate::support::world::{PATIENCE, World};

/// Clients, and writes a second of each.
const CLIENTS: usize = 10;
const RATE: u32 = 5;

/// The passwords, each of another length: a listing of the Pod's files shows which of them is mounted.
const PASSWORDS: [&str; 3] = ["canary-one", "canary-number-two", "canary-the-third-and-last"];

/// Time in which every client writes some keys.
const BETWEEN: Duration = Duration::from_secs(4);

/// The password changes twice under load, once in the mounted file first and once in etcd first.
///
/// etcd stores no session: with a changed password each member deletes the tokens of the user (`UserChangePassword` and
/// `invalidateUser` in etcd's `server/auth`), also those of connections that logged in before. The next request of such a connection
/// gets `invalid auth token`; etcd's client then logs in again with the password that it was made with, and its caller gets
/// `authentication failed`. Connections keep working until that moment, whatever the Secret holds. So the order decides how long an
/// application is kept out: with the new password in its file before etcd has it, for one failed request; with etcd first, until
/// kubelet has written the file.
pub async fn under_load(w: &World) -> Result<()> {
    let mut cluster = make::secured("p", 3);
    cluster["spec"]["auth"] = json!({"enabled": true});
    w.create(cluster).await?;
    ready(w, "p", 3).await?;
    let mut login = secret(PASSWORDS[0]);
    login["apiVersion"] = json!("v1");
    login["kind"] = json!("Secret");
    login["metadata"] = json!({"name": "till-login"});
    w.create(login).await?;
    let keys = json!([{"key": "writers/", "match": "Prefix", "access": "ReadWrite"}]);
    w.create(make::user("p", "till", &json!({"passwordSecretRef": {"name": "till-login"}}), &keys)).await?;
    user_is(w, "till", "True", "AsDesired").await?;
    application(w, "root", "p-operator-tls").await?;
    w.create(till(&w.env.probe_image)).await?;
    w.wait("Pod", "till", "running", |pod| pod["status"]["phase"] == "Running").await?;

    let (endpoint, clients, rate) = (service("p"), CLIENTS.to_string(), RATE.to_string());
    let load = ["--writers", &clients, "--rate", &rate, "--duration", "15m", "--until-file", "/flags/stop"];
    let login = ["--user", "till", "--password-file", "/login/password"];
    let begun = Instant::now();
    let writes = async {
        let out = ask(w, "till", "writers", &endpoint, &[&load[..], &login[..]].concat()).await?;
        Wrote::read(&out)
    };
    let changes = async {
        let changed = change_twice(w).await;
        w.exec("till", "probe", &["holdfast-probe", "mkdir", "/flags/stop"]).await?;
        changed
    };
    let (wrote, changed) = tokio::join!(writes, changes);
    changed?;
    let wrote = wrote?;
    eprintln!(
        "e2e: {}: {} writes in {:.0} s, {} failed, {} logins with another password, longest gap {:.0} ms",
        w.story,
        wrote.total,
        begun.elapsed().as_secs_f64(),
        wrote.failed,
        wrote.logins,
        wrote.longest_gap_ms
    );
    ensure!(wrote.logins >= 2 * CLIENTS, "{} logins of {CLIENTS} clients after two changes", wrote.logins);
    ensure!(wrote.acked.iter().all(|acked| *acked > 0), "a client wrote nothing: {wrote:?}");
    let acked = wrote.acked_flag();
    ask(w, "root", "written-by", &endpoint, &["--acked", &acked]).await?;
    for (password, works) in PASSWORDS.into_iter().zip([false, false, true]) {
        let answer = logs_in(w, password).await;
        let refused = |error: &anyhow::Error| format!("{error:#}").contains("invalid user ID or password");
        match answer {
            Ok(()) => ensure!(works, "an earlier password logs in"),
            Err(error) => ensure!(!works && refused(&error), "{error:#}"),
        }
    }
    Ok(())
}

async fn change_twice(w: &World) -> Result<()> {
    let [_, second, third] = PASSWORDS;
    tokio::time::sleep(BETWEEN).await;
    w.patch("Secret", "till-login", secret(second)).await?;
    w.step("the application's file has the second password", mounted(w, second)).await?;
    w.step("etcd has the second password", applied(w, second, "Retain")).await?;
    tokio::time::sleep(BETWEEN).await;
    w.patch("Secret", "till-login", secret(third)).await?;
    w.step("etcd has the third password", applied(w, third, "Delete")).await?;
    tokio::time::sleep(BETWEEN).await;
    w.step("the application's file has the third password", mounted(w, third)).await?;
    tokio::time::sleep(BETWEEN).await;
    Ok(())
}

fn secret(password: &str) -> Value {
    json!({"stringData": {"password": password}})
}

/// An application that mounts the certificates of clients, the password, and a folder in which a file ends its writes.
fn till(image: &str) -> Value {
    let mut pod = make::toolbox("till", image, &[]);
    pod["spec"]["volumes"] = json!([
        {"name": "tls", "secret": {"secretName": "p-client-tls"}},
        {"name": "login", "secret": {"secretName": "till-login"}},
        {"name": "flags", "emptyDir": {}},
    ]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "tls", "mountPath": "/tls", "readOnly": true},
        {"name": "login", "mountPath": "/login", "readOnly": true},
        {"name": "flags", "mountPath": "/flags"},
    ]);
    pod
}

/// Waits until kubelet has written the password into the application's file: a change of the Pod makes kubelet look at once.
async fn mounted(w: &World, password: &str) -> Result<()> {
    let look = password.len().to_string();
    w.patch("Pod", "till", json!({"metadata": {"annotations": {"holdfast.test/look": look}}})).await?;
    let size = format!("/password {}", password.len());
    until("kubelet to write the password", PATIENCE, async || {
        let files = w.files("till", "/login").await?;
        Ok(if files.iter().any(|file| file.ends_with(&size)) { Ok(()) } else { Err(format!("{files:?}")) })
    })
    .await
}

/// Has the operator look at the Secret at once, by an edit of the EtcdUser, and waits until the password logs in.
async fn applied(w: &World, password: &str, reclaim: &str) -> Result<()> {
    w.patch("EtcdUser", "till", json!({"spec": {"reclaimPolicy": reclaim}})).await?;
    until("etcd to have the password", PATIENCE, async || {
        Ok(logs_in(w, password).await.map_err(|error| format!("{error:#}")))
    })
    .await
}

async fn logs_in(w: &World, password: &str) -> Result<()> {
    let user = format!("till:{password}");
    let request = ["--key", "writers/none", "--user", &user, "--give-up", "10s"];
    ask(w, "till", "get", &service("p"), &request).await.map(drop)
}
