//! Rules for changes of the minor version (I30): no member gets an etcd that its data cannot carry.

use holdfast_api::cluster::Latches;
use holdfast_api::snapshot::DeletionPolicy;
use holdfast_api::upgrade::UpgradeRecord;
use holdfast_api::{EtcdSnapshot, component, key};
use holdfast_contract::Request;
use k8s_openapi::api::batch::v1::Job;

use super::facts::{is_healthy, known, latches, voters};
use super::{Verdict, rule};
use holdfast_base::objects::job::{Kind, compares, pod_spec, request_of};
use holdfast_base::rehearsal::rehearsal_name;
use holdfast_base::seen::cluster::{Member, Membership, Observed};
use holdfast_base::valid::Version;
use holdfast_base::{Seen, meta};

fn minor(version: &str) -> Option<u32> {
    Version::parse(version).map(|version| version.minor)
}

/// Returns the members that run etcd, or shall run it.
fn hosting(seen: &Observed) -> impl Iterator<Item = &Member> {
    seen.members.iter().filter(|m| m.object.spec.removed.is_none() && !m.object.spec.is_lost())
}

/// Checks the version that a member gets.
pub(super) fn set(seen: &Observed, member: &Member, new: &str) -> Verdict {
    let own = member.object.spec.process.version.as_str();
    if minor(own) == minor(new) {
        return rule("I30", minor(own).is_some(), "a member has a version that Holdfast knows");
    }
    let Some(UpgradeRecord { from, to, reversible, .. }) = latches(seen).upgrade else {
        return rule("I30", false, "the data of a member are of one minor until an upgrade is latched");
    };
    let answers_as =
        |m: &Member| seen.answers.get(m.name()).and_then(Seen::known).and_then(|answer| minor(&answer.version));
    let earlier = |m: &Member| {
        let stays = m.object.spec.leaving.is_none();
        stays
            && minor(&m.object.spec.process.version) == minor(&from)
            && answers_as(m).is_none_or(|version| Some(version) == minor(&from))
    };
    let others = hosting(seen).any(|m| earlier(m) && m.name() != member.name());
    let forth = minor(own) == minor(&from) && minor(new) == minor(&to) && (others || !reversible);
    let back = minor(own) == minor(&to) && minor(new) == minor(&from) && reversible && others;
    rule(
        "I30",
        forth || back,
        "a member goes to the next minor of a latched upgrade, or back while there is a way back",
    )
}

/// Checks the version of a new member.
pub(super) fn create(seen: &Observed, version: &str) -> Verdict {
    let there = hosting(seen).any(|m| minor(&m.object.spec.process.version) == minor(version));
    let record = latches(seen).upgrade;
    let under_way =
        record.is_some_and(|record| [record.from, record.to].iter().any(|end| minor(end) == minor(version)));
    rule("I30", there || under_way, "a new member has a minor of the cluster's")
}

/// Checks the latch of an upgrade.
pub(super) fn latch(seen: &Observed, old: &Latches, new: &Latches) -> Verdict {
    let all = || hosting(seen);
    let ends = old.upgrade.is_some() && new.upgrade.is_none();
    rule(
        "I30",
        old.log_since == new.log_since || ends,
        "the index of the first entry of 3.6 changes when an upgrade ends",
    )?;
    match (&old.upgrade, &new.upgrade) {
        (None, None) => Ok(()),
        (None, Some(record)) => {
            let mixed = |m: &Member| {
                [&record.from, &record.to].iter().any(|end| minor(end) == minor(&m.object.spec.process.version))
            };
            if !record.reversible {
                // The record was lost with the status, while members had both minors.
                let both =
                    all().any(|m| minor(&m.object.spec.process.version) == minor(&record.to)) && all().all(mixed);
                let next = minor(&record.from).map(|from| from + 1) == minor(&record.to);
                return rule("I30", both && next, "a lost upgrade goes on to the later of two minors");
            }
            let own = |m: &Member| minor(&m.object.spec.process.version) == minor(&record.from);
            let next = minor(&record.from).map(|from| from + 1) == minor(&record.to);
            rule("I30", next && all().all(own), "an upgrade goes from the minor of all members to the next")?;
            rule("I30", record.to == seen.cluster.spec.version && record.reversible, "an upgrade begins as asked for")?;
            let etcd = known(seen)?;
            let well =
                voters(etcd).len() == etcd.members.len() && etcd.members.iter().all(|l| is_healthy(seen, etcd, l));
            rule("I1", well && etcd.alarms.is_empty(), "an upgrade begins while every member is well")?;
            let rehearsed = seen.rehearsals.iter().any(|found| is_rehearsal(seen, &found.job, record));
            let asked = seen.cluster.spec.upgrade().rehearses();
            rule(
                "I30",
                rehearsed || !asked,
                "an upgrade begins after the rehearsal of the snapshot that its record names",
            )
        }
        (Some(was), Some(is)) => {
            let same = *is == UpgradeRecord { reversible: is.reversible, ..was.clone() };
            rule("I30", same && (was.reversible || !is.reversible), "the way back of an upgrade does not open again")
        }
        (Some(_), None) => {
            rule(
                "I30",
                new.upgrade_ended_at.is_some(),
                "the end of an upgrade is written down: its rehearsal counts once",
            )?;
            let wanted = minor(&seen.cluster.spec.version);
            rule(
                "I30",
                all().all(|m| minor(&m.object.spec.process.version) == wanted),
                "an upgrade ends with one minor",
            )
        }
    }
}

/// Whether a Job is the passed rehearsal of the present spec, and read the snapshot of this record: its name holds the version, the
/// image, the annotation `holdfast.dev/restart` and the end of the last upgrade.
fn is_rehearsal(seen: &Observed, job: &Job, record: &UpgradeRecord) -> bool {
    let passed = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default() > 0;
    let owned = meta::controlled_by(&job.metadata, meta::uid(&seen.cluster.metadata));
    let Some(Request::Verify(request)) = request_of(job) else { return false };
    let read = record.key.is_some() && request.snapshot.key == record.key;
    passed
        && owned
        && read
        && Kind::Rehearse.runs_in(pod_spec(job))
        && meta::name(&job.metadata) == rehearsal_name(seen)
}

/// Checks entries that change nothing.
pub(super) fn fill(seen: &Observed, etcd: &Membership, entries: u32) -> Verdict {
    let asked = latches(seen).log_since.is_some() && minor(&seen.cluster.spec.version) > Some(6);
    rule("I17", asked, "the log is filled only before an upgrade that does not read its older entries")?;
    rule("I17", entries <= 2_000, "the log is filled in small parts")?;
    let well = etcd.members.iter().all(|l| is_healthy(seen, etcd, l));
    rule("I1", well && etcd.alarms.is_empty(), "the log is filled while every member is well")
}

/// Checks a snapshot that an upgrade needs: of this cluster, to the place of its newest one, and no more than a request.
pub(super) fn request(seen: &Observed, snapshot: &EtcdSnapshot) -> Verdict {
    let meta = &seen.cluster.metadata;
    let spec = &snapshot.spec;
    let own = spec.cluster_ref.as_ref().is_some_and(|cluster| cluster.name == meta::name(meta));
    rule("I13", own && snapshot.metadata.namespace == meta.namespace, "a cluster requests snapshots of itself alone")?;
    let known = seen.backup.as_ref().is_some_and(|backup| backup.spec.template == spec.template);
    rule("I13", known, "a snapshot goes to the place of the newest one")?;
    let kept = spec.run.is_none() && spec.deletion_policy == DeletionPolicy::Retain;
    rule("I6", kept, "a requested snapshot stays in the store when its object goes")?;
    let asked = hosting(seen).any(|m| minor(&m.object.spec.process.version) != minor(&seen.cluster.spec.version));
    rule("I30", asked && latches(seen).upgrade.is_none(), "a snapshot is requested before an upgrade begins")
}

/// Checks a Job that rehearses.
pub(super) fn rehearse(seen: &Observed, job: &Job) -> Verdict {
    let meta = &seen.cluster.metadata;
    let template = job.spec.as_ref().map(|spec| &spec.template);
    let spec = template.and_then(|template| template.spec.as_ref());
    rule("I9", Kind::Rehearse.runs_in(spec), "a formed cluster's Job only rehearses an upgrade")?;
    rule("I30", latches(seen).upgrade.is_none(), "an upgrade is rehearsed before it begins")?;
    let of_3_5 = hosting(seen).any(|m| minor(&m.object.spec.process.version) == Some(5));
    rule("I30", !of_3_5 || spec.is_some_and(compares), "the members of etcd 3.5 are compared before an upgrade")?;
    let owned = meta::controlled_by(&job.metadata, meta::uid(meta)) && job.metadata.namespace == meta.namespace;
    rule("I13", owned, "a cluster's Job is its own and stands beside it")?;
    let claims = spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = claims.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()));
    let own = |claim: &str| seen.members.iter().any(|m| claim == holdfast_api::name::claim(m.name()));
    rule("I9", !claims.into_iter().any(own), "a rehearsal mounts no member's volume")?;
    let component = template.and_then(|t| t.metadata.as_ref()).and_then(|m| meta::label(m, key::COMPONENT));
    rule(
        "I16",
        component == Some(component::SNAPSHOT_AGENT),
        "an agent's Pod never stands behind a Service of a cluster",
    )
}
