//! A login by the program that a kubeconfig names (`users[].user.exec`): once for a command, and again before the login ends.
//!
//! Decides when the program runs, and the words about its failure. kube's own client runs the program twice for each client, before
//! each request with a token of a minute, and never again for a certificate.

use std::process::Stdio;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;
use tokio::sync::Mutex;

/// The shortest time between two runs of the program, in seconds.
const AT_LEAST: i64 = 5;

/// The login of a kubeconfig's user, shared by all clients of a process.
#[derive(Debug)]
pub(crate) struct ExecLogin {
    exec: ExecConfig,
    present: Mutex<Option<Present>>,
}

/// The present login.
#[derive(Debug)]
struct Present {
    login: Login,
    /// Number of the run of the program.
    number: u64,
    since: Timestamp,
    renew_at: Option<Timestamp>,
}

/// A login as the program reports it.
#[derive(Clone, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Login {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

#[derive(Deserialize)]
struct Credential {
    status: Option<Login>,
}

impl Login {
    /// Writes the login into the user of a client's settings.
    pub(crate) fn put_into(self, user: &mut AuthInfo) {
        user.exec = None;
        user.token = self.token.map(Into::into);
        if let (Some(certificate), Some(key)) = (self.client_certificate_data, self.client_key_data) {
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key).into());
        }
    }

    /// When the program runs again: after nine tenths of the login's time.
    fn renew_at(&self, now: Timestamp) -> anyhow::Result<Option<Timestamp>> {
        let Some(text) = &self.expiration_timestamp else { return Ok(None) };
        let end: Timestamp = text.parse().context("its expirationTimestamp is no time")?;
        let seconds = end.duration_since(now).as_secs() / 10 * 9;
        Ok(Some(now + jiff::SignedDuration::from_secs(seconds.max(AT_LEAST))))
    }
}

impl ExecLogin {
    pub(crate) fn new(exec: ExecConfig) -> Self {
        Self { exec, present: Mutex::default() }
    }

    /// Returns the present login and the number of its run. Runs the program where there is no login, or where it ends soon.
    pub(crate) async fn present(&self) -> anyhow::Result<(u64, Login)> {
        let mut present = self.present.lock().await;
        let now = holdfast_io::clock::now();
        let stands = present.as_ref().filter(|present| present.renew_at.is_none_or(|at| now < at));
        if let Some(Present { login, number, .. }) = stands {
            return Ok((*number, login.clone()));
        }
        let number = present.as_ref().map_or(0, |present| present.number) + 1;
        let login = self.run().await?;
        let now = holdfast_io::clock::now();
        let renew_at = login.renew_at(now).with_context(|| self.describe())?;
        *present = Some(Present { login: login.clone(), number, since: now, renew_at });
        Ok((number, login))
    }

    /// Has the next request run the program: the API server refused the login of this run.
    pub(crate) async fn refuse(&self, number: u64) {
        let mut present = self.present.lock().await;
        if let Some(present) = present.as_mut().filter(|present| present.number == number) {
            present.renew_at = Some(present.since + jiff::SignedDuration::from_secs(AT_LEAST));
        }
    }

    fn describe(&self) -> String {
        let command = self.exec.command.as_deref().unwrap_or_default();
        format!("the kubeconfig's login program {command} (users[].user.exec)")
    }

    async fn run(&self) -> anyhow::Result<Login> {
        let exec = &self.exec;
        let program = exec.command.as_deref().context("users[].user.exec of the kubeconfig names no command")?;
        let mut command = Command::new(program);
        command.args(exec.args.iter().flatten());
        for variable in exec.env.iter().flatten() {
            if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
                command.env(name, value);
            }
        }
        let asks = exec.interactive_mode != Some(ExecInteractiveMode::Never);
        let mut spec = json!({"interactive": asks});
        if exec.provide_cluster_info {
            spec["cluster"] = serde_json::to_value(&exec.cluster)?;
        }
        let info = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        // A program that asks a person shows its questions itself.
        let (input, errors) = if asks { (Stdio::inherit(), Stdio::inherit()) } else { (Stdio::null(), Stdio::piped()) };
        command.stdin(input).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
        let child = match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let hint = exec.install_hint.as_deref().unwrap_or("install it, or correct the kubeconfig");
                bail!("{} is not there: {}", self.describe(), hint.trim())
            }
            spawned => spawned.with_context(|| format!("starting {}", self.describe()))?,
        };
        let ended = child.wait_with_output().await.with_context(|| format!("waiting for {}", self.describe()))?;
        if !ended.status.success() {
            let errors = String::from_utf8_lossy(&ended.stderr);
            let last = errors.lines().rev().find(|line| !line.trim().is_empty());
            let last = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
            bail!("{} failed ({}){last}", self.describe(), ended.status);
        }
        // Programs may answer in YAML, as kubectl permits. The parser's error would show the login.
        let read: Option<Credential> = serde_saphyr::from_slice(&ended.stdout).ok();
        let login = read.and_then(|credential| credential.status);
        let login = login.filter(|login| login.token.is_some() || login.client_certificate_data.is_some());
        login.with_context(|| format!("{} printed no ExecCredential with a token or a certificate", self.describe()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A login by a script, which writes a line into `runs` each time.
    fn scripted(folder: &std::path::Path, script: &str) -> ExecLogin {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
            "args": ["-c", format!("echo x >> {}/runs; {script}", folder.display())]});
        ExecLogin::new(serde_json::from_value(exec).unwrap())
    }

    fn runs(folder: &std::path::Path) -> usize {
        std::fs::read_to_string(folder.join("runs")).unwrap().lines().count()
    }

    #[tokio::test]
    async fn a_login_of_a_minute_is_used_for_its_minute() {
        let folder = tempfile::tempdir().unwrap();
        let until = holdfast_io::clock::now() + jiff::SignedDuration::from_secs(60);
        let script = format!(r#"echo '{{"status": {{"token": "t", "expirationTimestamp": "{until}"}}}}'"#);
        let login = scripted(folder.path(), &script);
        for _ in 0..6 {
            let (number, found) = login.present().await.unwrap();
            assert_eq!((number, found.token.as_deref()), (1, Some("t")));
        }
        assert_eq!(runs(folder.path()), 1);
    }

    #[tokio::test]
    async fn a_login_that_ends_is_renewed_and_a_refused_one_after_some_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let login = scripted(folder.path(), "echo 'status: {clientCertificateData: C, clientKeyData: K}'");
        let (number, found) = login.present().await.unwrap();
        let mut user = AuthInfo::default();
        found.put_into(&mut user);
        assert_eq!(user.client_certificate_data.as_deref(), Some("Qw=="), "as the kubeconfig has it");
        login.refuse(number).await;
        assert_eq!(login.present().await.unwrap().0, 1, "a refusal at once is no reason to ask a person again");
        let ago = holdfast_io::clock::now() - jiff::SignedDuration::from_secs(AT_LEAST);
        login.present.lock().await.as_mut().unwrap().since = ago;
        login.refuse(number).await;
        assert_eq!(login.present().await.unwrap().0, 2);
        login.refuse(number).await;
        assert_eq!(login.present().await.unwrap().0, 2, "another request has renewed it");
        login.present.lock().await.as_mut().unwrap().renew_at = Some(ago);
        assert_eq!((login.present().await.unwrap().0, runs(folder.path())), (3, 3));
    }

    #[tokio::test]
    async fn a_failed_login_is_told_in_the_programs_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let said = async |script: &str| format!("{:#}", scripted(folder.path(), script).present().await.unwrap_err());
        let failed = said("echo canary; echo 'expired: sign in again' >&2; exit 7").await;
        assert!(failed.contains("exit status: 7): expired: sign in again") && !failed.contains("canary"), "{failed}");
        let wrong = said("echo '{\"status\": {\"canary\": 1}}'").await;
        assert!(wrong.contains("printed no ExecCredential") && !wrong.contains("canary"), "{wrong}");
        let exec = json!({"command": "/no/such", "installHint": "brew install it"});
        let absent = ExecLogin::new(serde_json::from_value(exec).unwrap()).present().await.unwrap_err().to_string();
        assert!(absent.contains("/no/such") && absent.contains("brew install it"), "{absent}");
    }
}
