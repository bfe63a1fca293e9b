//! Runs etcdutl, which comes with the target version, so that this etcd can read its output.
//!
//! This file decides how to classify etcdutl's exit, and when etcdutl is stuck; `output.rs` in its folder classifies the text.
//! The hash check is on whenever the file has a hash. The size of etcdutl's output shows the progress, and the kernel's
//! counters of its reads and writes show that it works.

pub mod disk;
pub mod output;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use holdfast_contract::error::{Error, Result, io_error};
use holdfast_contract::{ExitClass, Origin, RestoreRequest};
use holdfast_io::progress::Progress;
use tokio::process::{Child, Command};

use crate::etcdutl::output::classify_output;
use crate::version::Minor;
use holdfast_format::trailer::database_of;
use holdfast_gate::data_dir::DATABASE;

/// Space that etcd's own files need beside the database: two preallocated WAL segments of 64 MiB.
pub const BESIDE_DATABASE: u64 = 128 << 20;

/// Copies on the volume: the snapshot, and the database that etcdutl makes of it.
pub const COPIES: u64 = 2;

/// The only member in the rebuilt data.
pub struct Initial<'a> {
    /// Name of the member.
    pub name: &'a str,
    /// Its peer URL.
    pub peer_url: &'a str,
    /// The value of etcd's `--initial-cluster`.
    pub cluster: &'a str,
    /// The value of etcd's `--initial-cluster-token`.
    pub token: &'a str,
}

impl<'a> Initial<'a> {
    /// Reads the member from a request.
    pub fn parse(request: &'a RestoreRequest) -> Result<Self> {
        let cluster = request.initial_cluster.as_str();
        let wrong = |what: &str| Error::config(format!("--initial-cluster={cluster:?} {what}"));
        let (name, peer_url) = cluster.split_once('=').ok_or_else(|| wrong("is not name=peerURL"))?;
        if peer_url.contains([',', '=']) {
            return Err(wrong(
                "names more than one member: a restore makes one seed, and the other members join the seed",
            ));
        }
        if name != request.identity.member_name {
            return Err(wrong(&format!("does not name the member {}", request.identity.member_name)));
        }
        if !(peer_url.starts_with("http://") || peer_url.starts_with("https://")) {
            return Err(wrong("has no http or https peer URL"));
        }
        Ok(Self { name, peer_url, cluster, token: &request.identity.cluster_token })
    }
}

/// `version` reads nothing and answers immediately; a cold image on a slow disk takes a moment.
const VERSION_WITHIN: Duration = Duration::from_secs(15);

/// Maximum time without reads and writes: etcdutl waits for its copied data to reach the disk, or works on data in memory. The
/// speed is that of the slowest disk. Measured: 250 to 560 MiB/s.
const RESTORE_BASE: Duration = Duration::from_mins(1);
const RESTORE_BYTES_PER_SECOND: u64 = 4 << 20;

/// An etcdutl with a known version.
pub struct Etcdutl {
    program: PathBuf,
    version: Minor,
    /// A lock that etcdutl keeps while it runs, even after the agent has ended.
    lock: Option<File>,
}

impl Etcdutl {
    /// Asks the program for its version.
    pub async fn find(program: &Path) -> Result<Self> {
        let version = version_of(program, "etcdutl", "version", "etcdutl version:").await?;
        Ok(Self { program: program.to_owned(), version, lock: None })
    }

    /// Passes a locked file to etcdutl: a killed agent may leave etcdutl running.
    #[must_use]
    pub fn holding(self, lock: File) -> Self {
        Self { lock: Some(lock), ..self }
    }

    /// Returns the program's minor version.
    pub const fn version(&self) -> Minor {
        self.version
    }

    /// Makes a data directory for one member from a snapshot file, with its revision raised by `bump`. `trailer`: whether the
    /// file ends with etcd's sha256.
    pub async fn restore(
        &self,
        snapshot: &Path,
        data: &Path,
        initial: &Initial<'_>,
        bytes: u64,
        bump: u64,
        trailer: bool,
    ) -> Result<()> {
        let flag = |name: &str, value: &str| format!("--{name}={value}").into();
        let path = |name: &str, value: &Path| {
            let mut flag = std::ffi::OsString::from(format!("--{name}="));
            flag.push(value);
            flag
        };
        // Both or none (I10; etcd pull request 16029): without the compaction, watchers of lost revisions wait forever.
        let bumped = (bump > 0).then(|| [flag("bump-revision", &bump.to_string()), "--mark-compacted".into()]);
        let args = [
            "snapshot".into(),
            "restore".into(),
            snapshot.as_os_str().to_owned(),
            flag("name", initial.name),
            flag("initial-cluster", initial.cluster),
            flag("initial-cluster-token", initial.token),
            flag("initial-advertise-peer-urls", initial.peer_url),
            path("data-dir", data),
        ];
        let within = RESTORE_BASE + Duration::from_secs(bytes / RESTORE_BYTES_PER_SECOND);
        // Without a trailer there is no hash, and etcdutl would read the last page as one.
        let unchecked = (!trailer).then(|| "--skip-hash-check".into());
        let args = args.into_iter().chain(bumped.into_iter().flatten()).chain(unchecked);
        // etcdutl prints nothing until it has ended.
        let size = tokio::fs::metadata(snapshot).await.map_err(io_error("looking at the snapshot's file"))?.len();
        let progress = Progress::new("copying the snapshot with etcdutl", database_of(size).0);
        let database = data.join(DATABASE);
        // etcdutl does not read its standard input.
        let stdin = match &self.lock {
            Some(lock) => lock.try_clone().map_err(io_error("handing on the volume's lock"))?.into(),
            None => Stdio::null(),
        };
        let output = at_work(&progress, &database, within, start(&self.program, args, stdin)?).await?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(&output))
    }
}

/// Waits for the process that writes this file, however slow it is, but at most `within` while it makes no progress.
async fn at_work(progress: &Progress, file: &Path, within: Duration, process: Started) -> Result<Output> {
    let pid = process.child.id();
    progress.watch(within, progress.follow(file, pid, process.ended())).await.map_err(|error| {
        if error.class() != ExitClass::Deadline {
            return error;
        }
        Error::deadline(format!(
            "{}: the volume's disk is stuck or too slow. Check the disk and the other users of the disk",
            error.message()
        ))
    })
}

/// Returns the version of an etcd program: `ask` is its argument, `before` the text before the version.
pub async fn version_of(program: &Path, name: &str, ask: &str, before: &str) -> Result<Minor> {
    let asked = start(program, [ask.into()], Stdio::null())?;
    let output = tokio::time::timeout(VERSION_WITHIN, asked.ended()).await.unwrap_or_else(|_| {
        let seconds = VERSION_WITHIN.as_secs();
        Err(Error::deadline(format!("{} did not end within {seconds} s", program.display())))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|line| line.strip_prefix(before)).and_then(Minor::parse);
    version.ok_or_else(|| Error::config(format!("{} prints no {name} version", program.display())))
}

/// A running program; dropping it kills the program.
struct Started {
    program: PathBuf,
    child: Child,
}

impl Started {
    /// Waits for the program's end, and returns its whole output.
    async fn ended(self) -> Result<Output> {
        let Self { program, child } = self;
        child.wait_with_output().await.map_err(io_error(format!("running {}", program.display())))
    }
}

fn start(program: &Path, args: impl IntoIterator<Item = std::ffi::OsString>, stdin: Stdio) -> Result<Started> {
    let mut command = Command::new(program);
    // An argument vector and an empty environment: the program reads none of the agent's environment as a setting.
    command.args(args).env_clear().stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().map_err(|error| {
        let failure = io_error(format!("running {}", program.display()))(error);
        match failure.class() {
            // The file is missing in the image, not in a store.
            ExitClass::Denied | ExitClass::NotFound => Error::config(format!(
                "{}. The program comes with etcd: use an image that has the program (spec.image), or name its path",
                failure.message()
            )),
            _ => failure,
        }
    })?;
    Ok(Started { program: program.to_owned(), child })
}

fn failed(output: &Output) -> Error {
    let text = String::from_utf8_lossy(&output.stderr);
    let (class, line) = classify_output(&text);
    let message = format!("etcdutl could not restore ({}): {line}", output.status);
    if text.contains("unknown flag: --bump-revision") {
        Error::config(
            "this etcdutl cannot raise the revision, which needs etcd 3.5.10 or later. Use a newer version, or \
             revisionBump: 0 (--revision-bump=0)",
        )
    } else if text.contains("unknown flag: ") {
        Error::config(format!("{message}. Use the etcdutl of a supported etcd version"))
    } else if output.status.code().is_none() && class != ExitClass::Full {
        // Killed, most likely for memory; the same request may succeed on another node.
        Error::transient(message).with_origin(Origin::Own)
    } else {
        // Corrupt and Config have one row; the other classes are faults of the machine.
        Error::new(class, message).with_origin(Origin::Own)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use holdfast_contract::IdentityFlags;

    use super::*;

    fn class(raw: i32, stderr: &str) -> ExitClass {
        let output = Output { status: ExitStatus::from_raw(raw), stdout: vec![], stderr: stderr.into() };
        failed(&output).class()
    }

    #[test]
    fn its_ways_to_fail() {
        assert_eq!(class(1 << 8, "Error: write: no space left on device"), ExitClass::Full);
        assert_eq!(class(1 << 8, "Error: unknown flag: --bump-revision"), ExitClass::Config);
        assert_eq!(class(1 << 8, "Error: unknown flag: --initial-cluster\nUsage:\n"), ExitClass::Config);
        assert_eq!(class(1 << 8, "Error: expected sha256 [1], got [2]"), ExitClass::Corrupt);
        // These errors show nothing about the snapshot.
        for unknown in ["", "Error: it had a bad day", "Error: read snapshot.db: input/output error"] {
            assert_eq!(class(1 << 8, unknown), ExitClass::Transient, "{unknown}");
        }
        assert_eq!(class(9, ""), ExitClass::Transient);
        assert_eq!(class(9, "Error: expected sha256 [1], got [2]"), ExitClass::Transient);
        assert_eq!(class(9, "Error: write: no space left on device"), ExitClass::Full);
    }

    /// A limit for the whole run ended each attempt on a slow volume at the same place.
    #[tokio::test]
    async fn what_is_at_work_is_waited_for_and_what_is_stuck_names_the_disk() {
        const WITHIN: Duration = Duration::from_secs(4);
        let folder = tempfile::tempdir().unwrap();
        let does = async |name: &str, does: &str| {
            let file = folder.path().join(name);
            let args = ["-c".into(), does.into(), file.clone().into_os_string()];
            let started = start(Path::new("/bin/sh"), args, Stdio::null()).unwrap();
            at_work(&Progress::new("copying", 100), &file, WITHIN, started).await
        };
        let writes = "for piece in 0 1 2 3 4 5; do echo piece >>\"$0\"; /bin/sleep 1; done";
        let large = folder.path().join("large");
        std::fs::write(&large, vec![7; 1 << 20]).unwrap();
        let reads = format!("for time in 0 1 2 3 4 5; do /bin/cat {} >/dev/null; /bin/sleep 1; done", large.display());
        let stands = format!("{writes}; while /bin/sleep 1; do :; done");
        let (slow, reads, stuck) = tokio::join!(
            // Grows for longer than the limit, and hashes for a while.
            does("slow", writes),
            // Reads the written data again, for longer than the limit.
            does("reads", &reads),
            does("stuck", &stands),
        );
        assert!(slow.unwrap().status.success() && reads.unwrap().status.success());
        let error = stuck.unwrap_err();
        assert_eq!(error.class(), ExitClass::Deadline, "{error}");
        for word in ["no byte has moved for 4 s after 36 bytes", "the volume's disk", "stuck"] {
            assert!(error.message().contains(word), "no {word:?} in {error}");
        }
    }

    #[tokio::test]
    async fn something_else_is_no_etcdutl() {
        assert_eq!(Etcdutl::find(Path::new("/bin/true")).await.err().unwrap().class(), ExitClass::Config);
        assert_eq!(Etcdutl::find(Path::new("/nonexistent")).await.err().unwrap().class(), ExitClass::Config);
        let error = version_of(Path::new("/bin/true"), "etcd", "--version", "etcd Version:").await.unwrap_err();
        assert!(error.class() == ExitClass::Config && error.message().contains("no etcd version"), "{error}");
    }

    #[test]
    fn a_restore_names_exactly_its_own_member() {
        let initial = |cluster: &str| {
            let identity = IdentityFlags { member_name: "m".to_owned(), ..IdentityFlags::default() };
            let request = RestoreRequest { initial_cluster: cluster.to_owned(), identity, ..RestoreRequest::default() };
            Initial::parse(&request).map(|initial| initial.peer_url.to_owned()).map_err(|error| error.class())
        };
        assert_eq!(initial("m=http://m.db.ns.svc:2380"), Ok("http://m.db.ns.svc:2380".to_owned()));
        for bad in ["", "m", "m=", "x=http://m:1", "m=http://m:1,x=http://x:1", "m=ftp://m", "m=--force"] {
            assert_eq!(initial(bad), Err(ExitClass::Config), "{bad:?}");
        }
    }
}
