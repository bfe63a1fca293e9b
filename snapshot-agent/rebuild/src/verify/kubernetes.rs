//! The last part of a drill: a kube-apiserver boots on the restored etcd, and decodes every object of the snapshot.
//!
//! Decides what counts as decoded: kube-apiserver lists each resource that it serves at the snapshot's revision, so none of its own
//! writes counts. A page fails as a whole, so the agent then gets the objects of that resource one by one, by their keys. Keys of
//! resources that kube-apiserver does not serve are left out, and named. The snapshot's bytes are proven by now: an object that
//! cannot be decoded is broken in the cluster too, and is no fault of the backup.

mod api;
mod apiserver;
mod registry;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client};
use futures::stream::{self, StreamExt, TryStreamExt};
use holdfast_contract::error::{Error, Result};
use holdfast_contract::{ExitClass, KubernetesReport, Origin, VerifyRequest};
use holdfast_io::process::{IMAGES_BIN, find_program};
use tokio::time::{Instant, sleep};

use self::api::{Api, Listed, Resource};
use self::apiserver::{Apiserver, Setup, not_ready};
use self::registry::Registry;
use holdfast_etcd::connect::etcd_error;
use holdfast_verbs_common::seconds_since;

/// Keys of undecodable objects in a report.
const MAX_KEYS: usize = 20;

/// Objects that the agent gets at the same time.
const GETS: usize = 8;

/// Time until kube-apiserver serves the custom resources that it has just read.
const SERVED_WITHIN: Duration = Duration::from_mins(1);

/// kube-apiserver's answer to a list with an undecodable object.
const BROKEN: u16 = 500;

/// The kube-apiserver of a request.
pub(super) struct Decoder {
    program: PathBuf,
    encryption: Option<PathBuf>,
}

impl Decoder {
    /// Finds the program and its file, before the agent reads the snapshot.
    pub(super) fn of_request(request: &VerifyRequest) -> Result<Option<Self>> {
        let Some(named) = &request.kubernetes else { return Ok(None) };
        let program =
            if named.components().count() > 1 { Some(named.clone()) } else { named.to_str().and_then(find_program) };
        let program = program.filter(|path| path.is_file()).ok_or_else(|| {
            Error::config(format!(
                "{} is neither in PATH nor in {IMAGES_BIN}: a drill with --kubernetes needs this program. Name its path \
                 with --kubernetes=PATH, or an image of kube-apiserver in spec.drill.kubernetes.image",
                named.display()
            ))
        })?;
        let encryption = request.encryption_config.clone();
        if let Some(missing) = encryption.as_ref().filter(|path| !path.is_file()) {
            return Err(Error::config(format!(
                "--encryption-config={} is no file. Create the Secret of spec.drill.kubernetes.encryptionConfigSecretRef \
                 with the key {}",
                missing.display(),
                missing.file_name().unwrap_or_default().display()
            )));
        }
        Ok(Some(Self { program, encryption }))
    }

    /// Starts the kube-apiserver, and lets it decode every object of this revision. Returns the report, and the checks that were
    /// left out.
    pub(super) async fn decode(
        &self,
        (client, etcd): (&Client, &str),
        revision: i64,
        folder: PathBuf,
    ) -> Result<(KubernetesReport, Vec<String>)> {
        let mut registry = Registry::read(client.kv_client(), etcd, revision).await?;
        disarm(client).await.map_err(|error| etcd_error(etcd, &error))?;
        registry.cut_calls().await?;
        let began = std::time::Instant::now();
        let (program, encryption) = (&*self.program, self.encryption.as_deref());
        let prefix = registry.prefix().to_owned();
        let mut server = Apiserver::spawn(Setup { program, folder, etcd, prefix: &prefix, encryption })?;
        let decoded = async {
            let failing = server.ready().await?;
            let report = KubernetesReport {
                version: server.api.version().await?,
                ready_seconds: seconds_since(began),
                ..KubernetesReport::default()
            };
            let (report, left_out) =
                Reading { registry: &registry, api: &server.api, report, left_out: vec![] }.read().await?;
            if !failing.is_empty() && judge(&report).is_ok() {
                return Err(not_ready(&failing.join(", ")));
            }
            Ok((report, left_out))
        };
        let decoded = decoded.await;
        server.stop().await;
        decoded
    }
}

/// Ends the alarms that the snapshot holds: because of them etcd would refuse kube-apiserver's writes.
async fn disarm(client: &Client) -> std::result::Result<(), etcd_client::Error> {
    let mut client = client.maintenance_client();
    for raised in client.alarm(AlarmAction::Get, AlarmType::None, None).await?.alarms() {
        let mut options = AlarmOptions::new();
        options.with_member(raised.member_id());
        client.alarm(AlarmAction::Deactivate, raised.alarm(), Some(options)).await?;
    }
    Ok(())
}

/// Returns the error of a snapshot with objects that kube-apiserver cannot decode.
pub(super) fn judge(found: &KubernetesReport) -> Result<()> {
    let KubernetesReport { version, undecodable, encrypted, .. } = found;
    let mut words = vec![];
    if !encrypted.is_empty() {
        words.push(format!(
            "kube-apiserver {version} cannot decrypt {}. Put the provider and its key into the EncryptionConfiguration of \
             spec.drill.kubernetes.encryptionConfigSecretRef (--encryption-config)",
            encrypted.join(", ")
        ));
    }
    if !undecodable.is_empty() {
        let first = if undecodable.len() >= MAX_KEYS { ", and perhaps more" } else { "" };
        words.push(format!(
            "kube-apiserver {version} cannot decode {}{first}. The bytes are those of the cluster: correct or delete these \
             objects there, or name an image that serves them in spec.drill.kubernetes.image, then save another snapshot",
            undecodable.join(", ")
        ));
    }
    if words.is_empty() { Ok(()) } else { Err(Error::new(ExitClass::Undecodable, words.join(". "))) }
}

/// A reading of all objects.
struct Reading<'a> {
    registry: &'a Registry,
    api: &'a Api,
    report: KubernetesReport,
    left_out: Vec<String>,
}

impl Reading<'_> {
    async fn read(mut self) -> Result<(KubernetesReport, Vec<String>)> {
        let mut covered = BTreeSet::new();
        for resource in self.resources().await? {
            let (folder, keys) = self.registry.keys_of(&resource);
            let name = resource.name();
            let objects = match self.api.list(&resource, self.registry.revision()).await? {
                Listed::Decoded(objects) => {
                    if objects != keys {
                        self.left_out
                            .push(format!("{name}: etcd has {keys} keys, and kube-apiserver lists {objects} objects"));
                    }
                    objects
                }
                Listed::Refused(BROKEN) => self.search(&resource, &folder).await?,
                Listed::Refused(status) => {
                    return Err(Error::transient(format!("kube-apiserver refused to list {name}: status {status}"))
                        .with_origin(Origin::Own));
                }
            };
            covered.insert(folder);
            self.report.objects += objects;
            if objects > 0 {
                self.report.resources.insert(name, objects);
            }
        }
        for (folder, keys) in self.registry.without(&covered) {
            *self.report.left_out_keys.get_or_insert_default() += keys;
            self.left_out
                .push(format!("{keys} keys below {folder}: this kube-apiserver does not serve their resource"));
        }
        Ok((self.report, self.left_out))
    }

    /// Returns the resources, as soon as all custom resources are among them.
    async fn resources(&self) -> Result<BTreeSet<Resource>> {
        let until = Instant::now() + SERVED_WITHIN;
        loop {
            let found = self.api.resources().await?;
            // The keys of a custom resource that stays missing are left out by name.
            if self.registry.missing(&found).is_empty() || Instant::now() > until {
                return Ok(found);
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Gets the objects of a resource one by one, until enough of them cannot be decoded. Returns how many can.
    async fn search(&mut self, resource: &Resource, folder: &str) -> Result<u64> {
        let (mut decoded, mut broken, mut last) = (0, 0, None);
        while broken < MAX_KEYS {
            let names = self.registry.names_after(folder, last.as_deref()).await?;
            let Some(end) = names.last() else { break };
            last = Some(end.clone());
            let api = self.api;
            let ask = |name: String| async move { Ok::<_, Error>((api.decodes(resource, &name).await?, name)) };
            let asked = names.into_iter().map(ask);
            let mut answers = stream::iter(asked).buffered(GETS);
            while let Some((is_decoded, name)) = answers.try_next().await? {
                // The second answer: a busy etcd leads to the same status.
                if is_decoded || api.decodes(resource, &name).await? {
                    decoded += 1;
                } else {
                    self.note(resource, self.registry.key(folder, &name)).await?;
                    broken += 1;
                }
                if broken == MAX_KEYS {
                    break;
                }
            }
        }
        if broken == 0 {
            let name = resource.name();
            let message = format!("kube-apiserver refused to list {name}, and decodes each of its objects");
            return Err(Error::transient(message).with_origin(Origin::Own));
        }
        Ok(decoded)
    }

    /// Records an object that cannot be decoded: the provider of an encrypted value, or the key.
    async fn note(&mut self, resource: &Resource, key: String) -> Result<()> {
        let KubernetesReport { undecodable, encrypted, .. } = &mut self.report;
        match self.registry.provider(&key).await? {
            Some(provider) => {
                let named = format!("{} {provider}", resource.name());
                if !encrypted.contains(&named) && encrypted.len() < MAX_KEYS {
                    encrypted.push(named);
                }
            }
            None if undecodable.len() < MAX_KEYS => undecodable.push(key),
            None => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_program_is_a_path_or_a_name_in_path() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("kube-apiserver");
        let asked = |kubernetes: &Path, encryption: Option<&Path>| VerifyRequest {
            kubernetes: Some(kubernetes.to_owned()),
            encryption_config: encryption.map(Path::to_owned),
            ..VerifyRequest::default()
        };
        assert!(Decoder::of_request(&VerifyRequest::default()).unwrap().is_none());
        for missing in [&*program, Path::new("no-such-apiserver")] {
            let error = Decoder::of_request(&asked(missing, None)).err().unwrap();
            assert!(error.class() == ExitClass::Config && error.message().contains("--kubernetes=PATH"), "{error}");
        }
        std::fs::write(&program, "").unwrap();
        assert_eq!(Decoder::of_request(&asked(&program, None)).unwrap().unwrap().program, program);
        let missing = folder.path().join("encryption-config.yaml");
        let error = Decoder::of_request(&asked(&program, Some(&missing))).err().unwrap();
        assert!(error.message().contains("the key encryption-config.yaml"), "{error}");
    }

    #[test]
    fn a_failure_names_keys_and_providers() {
        let sound = KubernetesReport { version: "v1.36.3".to_owned(), objects: 7, ..KubernetesReport::default() };
        assert_eq!(judge(&sound), Ok(()));
        let undecodable = vec!["/registry/pods/default/a".to_owned()];
        let encrypted = vec!["secrets k8s:enc:aescbc:v1:key1".to_owned()];
        let error = judge(&KubernetesReport { undecodable, encrypted, ..sound }).unwrap_err();
        assert_eq!((error.class(), error.failure().reason), (ExitClass::Undecodable, "DrillFailed"));
        for word in
            ["/registry/pods/default/a", "secrets k8s:enc:aescbc:v1:key1", "encryptionConfigSecretRef", "v1.36.3"]
        {
            assert!(error.message().contains(word), "{word}: {error}");
        }
    }
}
