//! Separate credentials for reading: the probe tries these beside the credentials for writing.

use holdfast_contract::{ProbeRequest, Request, SaveRequest};

use super::*;
use crate::fixtures::flags;
use holdfast_base::objects::job::{AgentJob, job};

/// A store with these credentials, all of whose Secrets exist.
fn naming(credentials: Option<Credentials>) -> Observed {
    let mut seen = fresh();
    seen.store.spec.credentials = credentials;
    seen.secrets = secrets(&seen.store).into_iter().map(|name| (name, Seen::Known(Some("u/1".to_owned())))).collect();
    seen
}

/// The agent's flags that name credentials, and the Secrets by mount path.
fn mounted(job: &Job) -> (Vec<String>, Vec<(String, String)>) {
    let pod = job.spec.clone().unwrap().template.spec.unwrap();
    let container = pod.containers[0].clone();
    let mut args: Vec<_> = flags(&container).into_iter().filter(|arg| arg.contains("credentials-dir")).collect();
    let volumes = pod.volumes.unwrap();
    let mounts = container.volume_mounts.unwrap_or_default().into_iter().filter_map(|mount| {
        let volume = volumes.iter().find(|volume| volume.name == mount.name).unwrap();
        let secret = volume.secret.clone()?;
        // Readable only, by the agent alone, and required: the Pod's message names a missing Secret.
        assert_eq!((mount.read_only, secret.default_mode, secret.optional), (Some(true), Some(0o400), None));
        Some((mount.mount_path, secret.secret_name.unwrap()))
    });
    args.sort();
    (args, mounts.collect())
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(path, secret)| ((*path).to_owned(), (*secret).to_owned())).collect()
}

const WRITES: &str = "--credentials-dir=/etc/holdfast/credentials";
const READS: &str = "--read-credentials-dir=/etc/holdfast/read-credentials";

#[test]
fn a_probe_has_both_secrets_where_those_who_read_have_their_own() {
    let with = |read: Option<&str>| Credentials {
        write: "writes".to_owned(),
        read: read.map(str::to_owned),
        prune: Some("prunes".to_owned()),
    };
    let (writes, ca) = (("/etc/holdfast/credentials", "writes"), ("/etc/holdfast/ca", "ca"));
    let reads = ("/etc/holdfast/read-credentials", "reads");
    for (credentials, flags, secrets) in [
        (Some(with(Some("reads"))), vec![WRITES, READS], vec![writes, ca, reads]),
        (Some(with(Some("writes"))), vec![WRITES], vec![writes, ca]),
        (Some(with(None)), vec![WRITES], vec![writes, ca]),
        (None, vec![], vec![ca]),
    ] {
        let plan = planned(&naming(credentials.clone()));
        let (args, mounts) = mounted(started(&plan));
        assert_eq!(args, flags, "{credentials:?}");
        assert_eq!(mounts, pairs(&secrets), "{credentials:?}");
    }
    // A volume has no credentials, also if the API server accepted some.
    let mut seen = naming(Some(with(Some("reads"))));
    seen.store.spec.place = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None }).into();
    let (args, mounts) = mounted(started(&planned(&seen)));
    assert!(args.is_empty() && mounts.is_empty(), "{args:?} {mounts:?}");
}

/// Only the probe needs the credentials for reading.
#[test]
fn only_a_probe_gets_the_secret_of_those_who_read() {
    let seen = naming(None);
    let place = seen.store.record().place.location().unwrap();
    let made = |work: Request| {
        let readers = Some(LocalRef { name: "reads".to_owned() });
        job(&AgentJob { readers, ..AgentJob::new("j".to_owned(), work, place.clone(), "r/holdfast:1".to_owned()) })
    };
    assert_eq!(mounted(&made(Request::Probe(ProbeRequest::default()))).0, [READS]);
    let (args, mounts) = mounted(&made(Request::Save(SaveRequest::default())));
    assert!(args.is_empty(), "{args:?}");
    assert_eq!(mounts, pairs(&[("/etc/holdfast/ca", "ca")]));
}
