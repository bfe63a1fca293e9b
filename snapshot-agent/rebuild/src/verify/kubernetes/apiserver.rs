//! The kube-apiserver process of a drill: on loopback only, with a certificate and a token of its own, stopped at the end.
//!
//! Decides the flags, and when the process is ready. The connection trusts the process's own certificate only, so the
//! kube-apiserver of another drill is never asked. `kubernetes.rs` decides what is asked.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use holdfast_contract::Origin;
use holdfast_contract::error::{Error, Result, io_error};
use holdfast_io::files;
use holdfast_io::process::random_uid;
use rcgen::{CertificateParams, KeyPair};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::api::Api;
use holdfast_etcd::server::child::{TAKEN, TRIES, classify_failed_start, log_text, ports, spawn_server, stop_server};

/// Time until a kube-apiserver is ready that has the smallest share of a busy node's CPU.
const READY_WITHIN: Duration = Duration::from_mins(5);

/// Pause between two questions.
const INTERVAL: Duration = Duration::from_millis(250);

/// Files of the process, below its folder.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const TOKENS: &str = "tokens.csv";
const LOG: &str = "log";

/// Programs and files of a kube-apiserver.
pub(super) struct Setup<'a> {
    pub(super) program: &'a Path,
    /// A folder that is removed after the drill.
    pub(super) folder: PathBuf,
    /// URL of the restored etcd.
    pub(super) etcd: &'a str,
    /// `--etcd-prefix`.
    pub(super) prefix: &'a str,
    /// The `EncryptionConfiguration`.
    pub(super) encryption: Option<&'a Path>,
}

/// A running kube-apiserver.
pub(super) struct Apiserver<'a> {
    setup: Setup<'a>,
    certificate: String,
    token: String,
    child: Child,
    pub(super) api: Api,
}

impl<'a> Apiserver<'a> {
    /// Writes the files, and starts the process.
    pub(super) fn spawn(setup: Setup<'a>) -> Result<Self> {
        fs::create_dir(&setup.folder).map_err(io_error(format!("making {}", setup.folder.display())))?;
        let (certificate, token) = (write_certificate(&setup.folder)?, random_uid()?);
        put(&setup.folder.join(TOKENS), &format!("{token},drill,drill,\"system:masters\"\n"))?;
        let (child, api) = start(&setup, &certificate, &token)?;
        Ok(Self { setup, certificate, token, child, api })
    }

    /// Waits until the kube-apiserver is ready. Returns the checks that still fail after the time limit: an object of its own that
    /// it cannot decode may be the cause, and the lists show that.
    pub(super) async fn ready(&mut self) -> Result<Vec<String>> {
        let until = Instant::now() + READY_WITHIN;
        let mut tries = TRIES;
        while !self.api.is_ready().await {
            if let Some(status) = self.child.try_wait().map_err(io_error("waiting for kube-apiserver"))? {
                let log = log_text(&self.setup.folder.join(LOG));
                tries -= 1;
                if !log.contains(TAKEN) || tries == 0 {
                    return Err(not_started(status, &log));
                }
                (self.child, self.api) = start(&self.setup, &self.certificate, &self.token)?;
            }
            if Instant::now() > until {
                let checks = self.api.failing_checks().await?;
                return if checks.is_empty() { Err(not_ready("nothing that it names")) } else { Ok(checks) };
            }
            sleep(INTERVAL).await;
        }
        Ok(vec![])
    }

    /// Kills the process, and returns after it has ended.
    pub(super) async fn stop(self) {
        stop_server("kube-apiserver", self.child).await;
    }
}

/// Returns the error of a kube-apiserver that does not become ready.
pub(super) fn not_ready(checks: &str) -> Error {
    Error::deadline(format!(
        "kube-apiserver is not ready within {} s: {checks}. Give the drill more CPU and memory \
         (spec.drill.resources)",
        READY_WITHIN.as_secs()
    ))
    .with_origin(Origin::Own)
}

/// Writes a key, and a certificate of that key for loopback, which signs itself.
fn write_certificate(folder: &Path) -> Result<String> {
    let failed = |error: rcgen::Error| Error::transient(format!("making kube-apiserver's certificate: {error}"));
    let key = KeyPair::generate().map_err(failed)?;
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?.pem();
    put(&folder.join(KEY), &key.serialize_pem())?;
    put(&folder.join(CERTIFICATE), &certificate)?;
    Ok(certificate)
}

fn put(path: &Path, text: &str) -> Result<()> {
    files::put(path, 0o600, |file| file.write_all(text.as_bytes()))
}

fn start(setup: &Setup<'_>, certificate: &str, token: &str) -> Result<(Child, Api)> {
    let Setup { program, folder, etcd, prefix, encryption } = setup;
    let [port, _] = ports().map_err(io_error("choosing a port for kube-apiserver"))?;
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    let mut command = Command::new(program);
    command
        .arg(format!("--etcd-servers={etcd}"))
        .arg(format!("--etcd-prefix={prefix}"))
        .args(encryption.map(|path| file("encryption-provider-config", path)))
        // The revision of the snapshot has to stay readable.
        .arg("--etcd-compaction-interval=0")
        .arg("--etcd-count-metric-poll-period=0")
        // Lists come from etcd, and every object is decoded for them.
        .arg("--watch-cache=false")
        .arg("--bind-address=127.0.0.1")
        .arg("--advertise-address=127.0.0.1")
        .arg("--endpoint-reconciler-type=none")
        .arg(format!("--secure-port={port}"))
        .arg(file("tls-cert-file", &folder.join(CERTIFICATE)))
        .arg(file("tls-private-key-file", &folder.join(KEY)))
        .arg(file("cert-dir", folder))
        .arg("--anonymous-auth=false")
        .arg(file("token-auth-file", &folder.join(TOKENS)))
        .arg("--authorization-mode=AlwaysAllow")
        .arg("--service-account-issuer=https://drill.holdfast.dev")
        .arg(file("service-account-key-file", &folder.join(CERTIFICATE)))
        .arg(file("service-account-signing-key-file", &folder.join(KEY)))
        .arg("--disable-admission-plugins=MutatingAdmissionWebhook,ValidatingAdmissionWebhook")
        .arg("--enable-priority-and-fairness=false")
        .arg("--profiling=false");
    let child = spawn_server("kube-apiserver", program, &mut command, [], &folder.join(LOG))?;
    Ok((child, Api::new(port, certificate, token)?))
}

/// Returns the error of a failed start, which shows no fault of the snapshot: memory, a flag that this version lacks, an
/// `EncryptionConfiguration` that cannot be read.
fn not_started(status: ExitStatus, log: &str) -> Error {
    let (class, line) = classify_failed_start(log);
    let message = format!("kube-apiserver does not start on the restored etcd ({status}): {line}");
    Error::new(class, message).with_origin(Origin::Own)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::ExitStatusExt as _;

    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn that_it_does_not_start_is_not_held_against_the_snapshot() {
        for (raw, output, class) in [
            (1 << 8, "Error: unknown flag: --watch-cache\n", ExitClass::Transient),
            (9, "", ExitClass::Transient),
            (1 << 8, "write log: no space left on device\n", ExitClass::Full),
        ] {
            let error = not_started(ExitStatus::from_raw(raw), output);
            assert_eq!((error.class(), error.origin()), (class, Some(Origin::Own)), "{error}");
            assert!(error.message().contains(output.trim()), "{error}");
        }
    }

    #[test]
    fn the_key_is_for_us_alone() {
        let folder = tempfile::tempdir().unwrap();
        let certificate = write_certificate(folder.path()).unwrap();
        assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
        let mode = fs::metadata(folder.path().join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
