//! Spec to validated values, or a refusal that names the field and the remedy.
//!
//! Decides the rules that CEL cannot express: quantities, and fields that depend on each other. After validation there are no
//! raw strings, so the builders cannot fail. Does not decide the consequence of a refusal.

mod extra;
mod metadata;
mod names;
mod quantity;
mod restore;
mod version;

use std::fmt;

use k8s_openapi::api::core::v1::ResourceRequirements;

use crate::due_times::Line;
use holdfast_api::cluster::{CompactionMode, Options, Storage};
use holdfast_api::defragmentation::Defragmentation;
use holdfast_api::template::Template;
use holdfast_api::{EtcdCluster, EtcdClusterSpec, EtcdMember, name};
pub use names::{check_names, refused_names};
pub use quantity::{bytes, thousandths};
pub use version::Version;

/// 1 MiB.
const MIB: u64 = 1 << 20;
/// 1 GiB.
const GIB: u64 = 1 << 30;

/// etcd's suggested maximum for a database. Larger databases work, but start slowly, and etcd warns about them.
const LARGEST_DEFAULT_QUOTA: u64 = 8 * GIB;

/// Room on the volume for the write-ahead log and raft snapshots: etcd keeps up to five segments of 64 MB of each.
const LOG_RESERVE: u64 = GIB;

/// etcd's defaults, in milliseconds.
const DEFAULT_HEARTBEAT: i64 = 100;
const DEFAULT_ELECTION: i64 = 1000;

/// A field with a value that Holdfast refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Path of the field.
    pub field: &'static str,
    /// The problem, and a value that works.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.remedy)
    }
}

fn refuse<T>(field: &'static str, remedy: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { field, remedy: remedy.into() })
}

/// The validated spec of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Members.
    pub replicas: usize,
    /// Each member's server.
    pub server: Server,
}

/// The validated spec of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// etcd's version.
    pub version: Version,
    /// Size of the volume, in bytes.
    pub volume: u64,
    /// Largest size of the database, in bytes.
    pub quota: u64,
}

impl Server {
    /// Whether a follower that lags far behind has room to receive a whole snapshot beside its own database.
    pub const fn leaves_room(&self) -> bool {
        self.quota <= half(self.volume)
    }

    /// The largest quota that leaves room on the volume for the log.
    pub const fn most_quota(&self) -> u64 {
        self.volume - reserve(self.volume)
    }

    /// Whether the volume holds a database of this size, the log, and a copy of the part in use, with a tenth to spare.
    pub const fn holds_copy(&self, bytes: u64, used: u64) -> bool {
        bytes.saturating_add(used).saturating_add(used / 10).saturating_add(reserve(self.volume)) <= self.volume
    }
}

/// Validates the spec of a cluster.
pub fn cluster(cluster: &EtcdCluster) -> Result<Wanted, Refusal> {
    let spec = &cluster.spec;
    let Some(replicas) = usize::try_from(spec.replicas).ok().filter(|n| (0..=9).contains(n)) else {
        return refuse("spec.replicas", format!("{} is not between 0 and 9", spec.replicas));
    };
    let server = server(&spec.version, &spec.storage, options(cluster).as_ref())?;
    if let Some(resources) = &spec.resources {
        check_resources(resources)?;
    }
    check_metadata(spec)?;
    check_defragmentation(&spec.defragmentation())?;
    check_largest_quota(spec, &server)?;
    check_secrets(cluster)?;
    check_medium(cluster)?;
    if let Some(restore) = spec.bootstrap.as_ref().and_then(|b| b.restore.as_ref()) {
        restore::check(restore)?;
    }
    Ok(Wanted { replicas, server })
}

/// Refuses labels and annotations that the API server does not accept.
pub fn check_metadata(spec: &EtcdClusterSpec) -> Result<(), Refusal> {
    metadata::check_added("spec.podMetadata", spec.pod_metadata.as_ref())?;
    metadata::check_added("spec.additionalMetadata", spec.additional_metadata.as_ref())
}

/// Refuses a period without a beginning, and an amount that is no number of bytes.
fn check_defragmentation(wanted: &Defragmentation) -> Result<(), Refusal> {
    if let Some(window) = &wanted.window
        && let Err(why) = Line::parse(&window.schedule, window.time_zone.as_deref())
    {
        // The text begins with the field of a schedule's spec.
        let why = why.split_once(": ").map_or(why.as_str(), |(_, why)| why);
        return refuse("spec.defragmentation.window", why);
    }
    let free = wanted.free_bytes();
    if bytes(&free).is_none() {
        return refuse(
            "spec.defragmentation.freeBytes",
            format!("{:?} is not a number of bytes, such as 256Mi", free.0),
        );
    }
    Ok(())
}

/// Refuses a size up to which the quota may grow, where the quota of the spec is larger or the volume has no room.
fn check_largest_quota(spec: &EtcdClusterSpec, server: &Server) -> Result<(), Refusal> {
    const FIELD: &str = "spec.defragmentation.growQuotaTo";
    let Some(asked) = spec.defragmentation().grow_quota_to else { return Ok(()) };
    let Some(largest) = bytes(&asked) else {
        return refuse(FIELD, format!("{:?} is not a number of bytes, such as 8Gi", asked.0));
    };
    // A default that is larger, on a volume that grew, is in force.
    let chosen = spec.options.as_ref().and_then(|options| options.quota_backend_bytes);
    if let Some(chosen) = chosen.filter(|chosen| i64::try_from(largest).is_ok_and(|largest| largest < *chosen)) {
        return refuse(
            FIELD,
            format!(
                "{} is below spec.options.quotaBackendBytes, which is {chosen}. Name a larger size, or remove the field",
                asked.0
            ),
        );
    }
    if largest > server.most_quota() {
        return refuse(
            FIELD,
            format!(
                "{} leaves no room for the log on a volume of {} bytes. Name at most {} bytes, or raise spec.storage.size",
                asked.0,
                server.volume,
                server.most_quota()
            ),
        );
    }
    Ok(())
}

/// Refuses a parked or restored cluster in memory: data in memory does not outlive its Pod, and there is no volume to restore into.
fn check_medium(cluster: &EtcdCluster) -> Result<(), Refusal> {
    let spec = &cluster.spec;
    if !spec.storage.in_memory() {
        return Ok(());
    }
    if spec.replicas == 0 {
        return refuse(
            "spec.replicas",
            "0 would end every Pod, and the data in their memory. Delete the cluster instead",
        );
    }
    if spec.bootstrap.as_ref().is_some_and(|b| b.restore.is_some()) {
        const REMEDY: &str =
            "a cluster with spec.storage.medium Memory is not restored. Restore into a cluster with claims";
        return refuse("spec.bootstrap.restore", REMEDY);
    }
    Ok(())
}

/// Refuses a user's Secret under a name that Holdfast writes.
fn check_secrets(cluster: &EtcdCluster) -> Result<(), Refusal> {
    let named = cluster.metadata.name.as_deref().unwrap_or_default();
    let written = [name::client_ca(named), name::peer_ca(named), name::operator_tls(named), name::client_tls(named)];
    let (client, peer) = (cluster.spec.client_tls(), cluster.spec.peer_tls());
    let sources = [
        ("spec.tls.client.serverSecretRef", client.and_then(|c| c.server_secret_ref.as_ref())),
        ("spec.tls.client.operatorClientSecretRef", client.and_then(|c| c.operator_client_secret_ref.as_ref())),
        ("spec.tls.peer.secretRef", peer.and_then(|p| p.secret_ref.as_ref())),
    ];
    for (field, source) in sources {
        if let Some(secret) = source.filter(|secret| written.contains(&secret.name)) {
            return refuse(
                field,
                format!("Holdfast itself writes a Secret of the name {}. Name yours otherwise", secret.name),
            );
        }
    }
    Ok(())
}

/// Validates the spec of a member. The spec was copied from a validated cluster, but the API server may hold another value.
pub fn member(member: &EtcdMember) -> Result<Server, Refusal> {
    if let Some(at) = member.spec.restore.as_ref().and_then(|restoring| restoring.at.as_ref()) {
        restore::check_point("spec.restore.at", at)?;
    }
    process(&member.spec.storage, &member.spec.process)
}

/// Validates a template for a member with this volume.
pub fn process(storage: &Storage, template: &Template) -> Result<Server, Refusal> {
    server(&template.version, storage, template.options.as_ref())
}

/// Returns the largest size of a cluster's database in bytes, also where another field is invalid.
pub fn most_bytes(cluster: &EtcdCluster) -> Option<u64> {
    quota(bytes(&cluster.spec.storage.size())?, options(cluster).as_ref()).ok()
}

/// Returns the options with which members run: those of the spec, with the quota that Holdfast has granted where that is larger.
pub fn options(cluster: &EtcdCluster) -> Option<Options> {
    let own = || cluster.spec.options.clone();
    let Some(granted) = granted_quota(cluster) else { return own() };
    let of_spec = bytes(&cluster.spec.storage.size()).and_then(|volume| quota(volume, own().as_ref()).ok());
    // A default would be smaller on a volume that has not grown yet.
    let largest = of_spec.map_or(granted, |quota| i64::try_from(quota).map_or(granted, |quota| quota.max(granted)));
    Some(Options { quota_backend_bytes: Some(largest), ..own().unwrap_or_default() })
}

/// Returns the quota that Holdfast has granted, as far as the spec allows a larger quota.
fn granted_quota(cluster: &EtcdCluster) -> Option<i64> {
    let most = cluster.spec.defragmentation().grow_quota_to.as_ref().and_then(bytes)?;
    let granted = cluster.status.as_ref()?.latches.granted_quota?;
    Some(i64::try_from(most).map_or(granted, |most| granted.min(most)))
}

fn server(version: &str, storage: &Storage, options: Option<&Options>) -> Result<Server, Refusal> {
    let Some(version) = Version::parse(version) else {
        return refuse("spec.version", format!("{version:?} is not a version 3.5.Z, 3.6.Z or 3.7.Z"));
    };
    let Some(volume) = bytes(&storage.size()) else {
        return refuse("spec.storage.size", format!("{:?} is not a number of bytes, such as 8Gi", storage.size().0));
    };
    if storage.in_memory() && storage.size.is_none() {
        return refuse("spec.storage.size", "is required with spec.storage.medium Memory");
    }
    if volume < 256 * MIB {
        return refuse("spec.storage.size", "must be at least 256Mi: etcd preallocates its log");
    }
    let quota = quota(volume, options)?;
    if let Some(options) = options {
        extra::check_options(options, version)?;
        check_compaction(options)?;
        check_times(options)?;
    }
    Ok(Server { version, volume, quota })
}

/// Returns half of the volume without the log's reserve: a follower that lags far behind writes the received snapshot beside its
/// own database. Volumes too small for the whole reserve keep half for the log.
const fn half(volume: u64) -> u64 {
    (volume - reserve(volume)) / 2
}

/// Returns the part of a volume for the log.
const fn reserve(volume: u64) -> u64 {
    if volume / 2 < LOG_RESERVE { volume / 2 } else { LOG_RESERVE }
}

/// Returns the quota of a volume for which the spec names none.
pub const fn default_quota(volume: u64) -> u64 {
    let half = half(volume);
    if half < LARGEST_DEFAULT_QUOTA { half } else { LARGEST_DEFAULT_QUOTA }
}

fn quota(volume: u64, options: Option<&Options>) -> Result<u64, Refusal> {
    const FIELD: &str = "spec.options.quotaBackendBytes";
    let Some(asked) = options.and_then(|o| o.quota_backend_bytes) else {
        return Ok(default_quota(volume));
    };
    let Ok(asked) = u64::try_from(asked) else {
        return refuse(FIELD, format!("{asked} is negative; omit the field for the default"));
    };
    if asked >= volume {
        return refuse(
            FIELD,
            format!(
                "{asked} bytes do not fit a volume of {volume} bytes; at most {} leaves room for the log and for a \
                 received snapshot",
                half(volume)
            ),
        );
    }
    Ok(asked)
}

fn check_compaction(options: &Options) -> Result<(), Refusal> {
    const FIELD: &str = "spec.options.autoCompactionRetention";
    match (options.auto_compaction_mode, options.auto_compaction_retention.as_deref()) {
        (None, None) => Ok(()),
        (None, Some(_)) => refuse("spec.options.autoCompactionMode", "is required with autoCompactionRetention"),
        (Some(_), None) => refuse(FIELD, "is required with autoCompactionMode"),
        (Some(CompactionMode::Periodic), Some(value)) if value.ends_with(|c: char| c.is_ascii_alphabetic()) => Ok(()),
        (Some(CompactionMode::Periodic), Some(value)) => {
            refuse(FIELD, format!("{value:?} needs a unit in mode periodic, such as 1h"))
        }
        (Some(CompactionMode::Revision), Some(value)) if value.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
        (Some(CompactionMode::Revision), Some(value)) => {
            refuse(FIELD, format!("{value:?} is not a number of revisions, which mode revision needs"))
        }
    }
}

/// Refuses an election timeout of less than five heartbeats: etcd does not start with that.
fn check_times(options: &Options) -> Result<(), Refusal> {
    let heartbeat = options.heartbeat_interval.unwrap_or(DEFAULT_HEARTBEAT);
    let election = options.election_timeout.unwrap_or(DEFAULT_ELECTION);
    if election < heartbeat.saturating_mul(5) {
        return refuse(
            "spec.options.electionTimeout",
            format!("{election} ms is less than five heartbeats of {heartbeat} ms; etcd does not start with that"),
        );
    }
    Ok(())
}

/// Refuses resources with which the API server would refuse every Pod.
fn check_resources(resources: &ResourceRequirements) -> Result<(), Refusal> {
    let limits = resources.limits.iter().flatten();
    for (name, value) in limits {
        let Some(limit) = thousandths(value) else {
            return refuse("spec.resources.limits", format!("{name}: {:?} is not a quantity", value.0));
        };
        let asked = resources.requests.as_ref().and_then(|r| r.get(name)).and_then(thousandths);
        if asked.is_some_and(|asked| asked > limit) {
            return refuse("spec.resources.requests", format!("{name} is larger than its limit {}", value.0));
        }
    }
    for (name, value) in resources.requests.iter().flatten() {
        if thousandths(value).is_none() {
            return refuse("spec.resources.requests", format!("{name}: {:?} is not a quantity", value.0));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use holdfast_api::EtcdClusterSpec;
    use holdfast_api::cluster::Medium;
    use holdfast_api::defragmentation::Window;
    use holdfast_api::name::LocalRef;
    use holdfast_api::restore::{Bootstrap, Latest, Restore};
    use holdfast_api::store::StoredSnapshot;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    fn good() -> EtcdCluster {
        let spec = EtcdClusterSpec { replicas: 3, version: "3.6.16".to_owned(), ..EtcdClusterSpec::default() };
        EtcdCluster::new("a", spec)
    }

    fn refused(change: impl FnOnce(&mut EtcdClusterSpec)) -> Option<&'static str> {
        let mut one = good();
        change(&mut one.spec);
        cluster(&one).err().map(|r| r.field)
    }

    fn option(change: impl FnOnce(&mut Options)) -> Option<&'static str> {
        let mut options = Options::default();
        change(&mut options);
        refused(|s| s.options = Some(options))
    }

    fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
        let map = |list: &[(&str, &str)]| {
            Some(list.iter().map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned()))).collect())
        };
        ResourceRequirements { requests: map(requests), limits: map(limits), claims: None }
    }

    #[test]
    fn a_good_spec_is_taken() {
        let wanted = cluster(&good()).unwrap();
        assert_eq!(wanted.replicas, 3);
        assert_eq!(wanted.server.version, Version { minor: 6, patch: 16 });
        assert_eq!(wanted.server.volume, 8 * GIB);
        assert_eq!(wanted.server.quota, 7 * GIB / 2);
        assert!(wanted.server.leaves_room());
    }

    /// etcd writes a copy of the part in use beside the file; a full disk would end etcd.
    #[test]
    fn a_volume_has_room_for_the_copy_of_a_defragmentation() {
        let volume = |mib: u64| Server { version: Version { minor: 6, patch: 16 }, volume: mib * MIB, quota: GIB };
        // 6000 MiB, 2200 MiB for the copy and 1024 MiB for the log.
        assert!(volume(9224).holds_copy(6000 * MIB, 2000 * MIB) && !volume(9223).holds_copy(6000 * MIB, 2000 * MIB));
        assert!(volume(1024).holds_copy(300 * MIB, 100 * MIB) && !volume(1024).holds_copy(400 * MIB, 200 * MIB));
    }

    #[test]
    fn periods_and_amounts_of_a_defragmentation_are_checked() {
        let window = |schedule: &str, zone: Option<&str>| {
            let (schedule, time_zone) = (schedule.to_owned(), zone.map(str::to_owned));
            let window = Some(Window { schedule, seconds: 3600, time_zone });
            refused(|s| s.defragmentation = Some(Defragmentation { window, ..Defragmentation::default() }))
        };
        assert_eq!(window("0 2 * * *", Some("Europe/Berlin")), None);
        assert_eq!(window("0 2 * *", None), Some("spec.defragmentation.window"));
        assert_eq!(window("0 2 * * *", Some("Europe/Nowhere")), Some("spec.defragmentation.window"));
        let free = |free: &str| {
            let free_bytes = Some(Quantity(free.to_owned()));
            refused(|s| s.defragmentation = Some(Defragmentation { free_bytes, ..Defragmentation::default() }))
        };
        assert_eq!((free("1Gi"), free("1GiB")), (None, Some("spec.defragmentation.freeBytes")));
    }

    #[test]
    fn each_wrong_field_is_named() {
        assert_eq!(refused(|_| {}), None);
        assert_eq!(refused(|s| s.replicas = -1), Some("spec.replicas"));
        assert_eq!(refused(|s| s.replicas = 0), None);
        assert_eq!(refused(|s| s.replicas = 10), Some("spec.replicas"));
        assert_eq!(refused(|s| s.version = "3.8.0".to_owned()), Some("spec.version"));
        assert_eq!(refused(|s| s.storage.size = Some(Quantity("8Gib".to_owned()))), Some("spec.storage.size"));
        assert_eq!(refused(|s| s.storage.size = Some(Quantity("255Mi".to_owned()))), Some("spec.storage.size"));
        assert_eq!(refused(|s| s.storage.size = Some(Quantity("256Mi".to_owned()))), None);
        let over = resources(&[("memory", "2Gi")], &[("memory", "1Gi")]);
        assert_eq!(refused(|s| s.resources = Some(over)), Some("spec.resources.requests"));
        let same = resources(&[("cpu", "1000m")], &[("cpu", "1")]);
        assert_eq!(refused(|s| s.resources = Some(same)), None);
        let odd = resources(&[], &[("cpu", "one")]);
        assert_eq!(refused(|s| s.resources = Some(odd)), Some("spec.resources.limits"));
        let odd = resources(&[("cpu", "")], &[]);
        assert_eq!(refused(|s| s.resources = Some(odd)), Some("spec.resources.requests"));
    }

    #[test]
    fn memory_needs_a_size_and_members() {
        let in_memory = |change: fn(&mut EtcdClusterSpec)| {
            refused(|s| {
                (s.storage.medium, s.storage.size) = (Medium::Memory, Some(Quantity("256Mi".to_owned())));
                change(s);
            })
        };
        assert_eq!(in_memory(|_| {}), None);
        assert_eq!(in_memory(|s| s.storage.size = None), Some("spec.storage.size"));
        assert_eq!(in_memory(|s| s.replicas = 0), Some("spec.replicas"));
        let restore = |s: &mut EtcdClusterSpec| s.bootstrap = Some(Bootstrap { restore: Some(Restore::default()) });
        assert_eq!(in_memory(restore), Some("spec.bootstrap.restore"));
    }

    #[test]
    fn options_are_judged_together() {
        let field = "spec.options.quotaBackendBytes";
        assert_eq!(option(|o| o.quota_backend_bytes = Some(8 << 30)), Some(field));
        assert_eq!(option(|o| o.quota_backend_bytes = Some(-1)), Some(field));
        assert_eq!(option(|o| o.quota_backend_bytes = Some(7 << 30)), None);
        assert_eq!(
            option(|o| o.auto_compaction_retention = Some("1h".to_owned())),
            Some("spec.options.autoCompactionMode")
        );
        let both = |mode, value: &str| {
            let value = value.to_owned();
            option(|o| (o.auto_compaction_mode, o.auto_compaction_retention) = (Some(mode), Some(value)))
        };
        let field = "spec.options.autoCompactionRetention";
        assert_eq!(option(|o| o.auto_compaction_mode = Some(CompactionMode::Periodic)), Some(field));
        assert_eq!(both(CompactionMode::Periodic, "1h"), None);
        assert_eq!(both(CompactionMode::Periodic, "1000"), Some(field));
        assert_eq!(both(CompactionMode::Revision, "1000"), None);
        assert_eq!(both(CompactionMode::Revision, "1h"), Some(field));
        assert_eq!(option(|o| o.heartbeat_interval = Some(201)), Some("spec.options.electionTimeout"));
        assert_eq!(option(|o| o.heartbeat_interval = Some(200)), None);
        assert_eq!(option(|o| o.election_timeout = Some(499)), Some("spec.options.electionTimeout"));
    }

    #[test]
    fn a_restore_names_one_source() {
        let restore = |snapshot_ref, source| {
            refused(|s| {
                s.bootstrap = Some(Bootstrap { restore: Some(Restore { snapshot_ref, source, ..Restore::default() }) })
            })
        };
        let named = Some(LocalRef { name: "s".to_owned() });
        let latest = |latest| {
            refused(|s| s.bootstrap = Some(Bootstrap { restore: Some(Restore { latest, ..Restore::default() }) }))
        };
        let store_ref = Some(LocalRef { name: "vault".to_owned() });
        assert_eq!(latest(Some(Latest { store_ref, ..Latest::default() })), None);
        assert_eq!(latest(Some(Latest::default())), Some("spec.bootstrap.restore.latest"));
        assert_eq!(restore(None, None), Some("spec.bootstrap.restore"));
        assert_eq!(restore(named.clone(), Some(StoredSnapshot::default())), Some("spec.bootstrap.restore"));
        assert_eq!(restore(None, Some(StoredSnapshot::default())), Some("spec.bootstrap.restore.source"));
        assert_eq!(restore(named, None), None);
    }

    #[test]
    fn the_size_up_to_which_the_quota_grows_fits_between_the_quota_and_the_volume() {
        let grows = |size: &str, quota| {
            let mut one = good();
            one.spec.options = Some(Options { quota_backend_bytes: quota, ..Options::default() });
            one.spec.defragmentation.get_or_insert_default().grow_quota_to = Some(Quantity(size.to_owned()));
            cluster(&one).err().map(|refusal| (refusal.field, refusal.to_string()))
        };
        const FIELD: &str = "spec.defragmentation.growQuotaTo";
        // A volume of 8Gi.
        assert_eq!((grows("7Gi", None), grows("7Gi", Some(2 << 30)), grows("2Gi", Some(2 << 30))), (None, None, None));
        assert_eq!(grows("3Gi", None), None, "the volume grew, and with it the default");
        for (size, quota, part) in [
            ("1Gi", Some(2 << 30), "below spec.options.quotaBackendBytes, which is 2147483648"),
            ("7169Mi", None, "at most 7516192768 bytes, or raise spec.storage.size"),
            ("much", None, "is not a number of bytes"),
        ] {
            let (field, message) = grows(size, quota).unwrap();
            assert!(field == FIELD && message.contains(part), "{size}: {message}");
        }
    }

    #[test]
    fn the_quota_leaves_room_for_the_log_and_a_second_database() {
        for (volume, quota) in [(256 * MIB, 64 * MIB), (GIB, 256 * MIB), (2 * GIB, 512 * MIB), (100 * GIB, 8 * GIB)] {
            assert_eq!(default_quota(volume), quota, "{volume}");
        }
        let server = |volume, quota| Server { version: Version::parse("3.6.16").unwrap(), volume, quota };
        // Larger than etcd suggests, but with enough room.
        assert!(server(100 * GIB, 10 * GIB).leaves_room());
        assert!(server(21 * GIB, 10 * GIB).leaves_room());
        assert!(!server(20 * GIB, 10 * GIB).leaves_room());
    }
}
