//! The point in time of a restore: its revision, the snapshot to begin with, and the segments of the log after it.
//!
//! This file decides from names and manifests, and for a time from the samples of one segment. `replay.rs` reads the segments
//! and merges them. Every refusal names the nearest points that the snapshots and the log do reach. A segment that cannot be read
//! counts as missing where other segments hold its revisions. `moment.rs` finds the revision of a time,
//! `segments.rs` opens a segment.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_contract::error::{Error, Result};
use holdfast_contract::{Point, RestoreRequest, hex_id};
use holdfast_layout::{Folder, SegmentName, attempt_time};
use holdfast_store::Store;
use jiff::Timestamp;

use super::moment::{Moment, Samples};
use super::segments::{nearest, points_near};
use holdfast_catalog::fallen::{Saved, find_fallen};
use holdfast_catalog::log::bases::{Base, Bases, find_bases_of};
use holdfast_catalog::log::checks::find_check;
use holdfast_catalog::log::cover::Cover;
use holdfast_catalog::log::{self, BoundLog, Check};
use holdfast_catalog::proof;
use holdfast_catalog::stored;
use holdfast_etcd::version::{Minor, check_version};
use holdfast_format::crypt::Identities;

/// Attempts in which a snapshot before the point is looked for, from the newest back.
const MOST_ATTEMPTS: usize = 10_000;

/// The snapshot and the segments that reach a point.
pub(super) struct Chosen {
    pub(super) asked: Point,
    pub(super) revision: i64,
    /// For a time: the known times around it.
    pub(super) moment: Option<Moment>,
    /// Folder of the snapshot.
    pub(super) base: Folder,
    pub(super) base_revision: i64,
    /// Least number of entries of raft without a revision, at the snapshot.
    pub(super) base_least: i64,
    /// The nearest later snapshot, for errors.
    pub(super) next_base: Option<i64>,
    pub(super) log: Folder,
    pub(super) cluster_id: u64,
    pub(super) segments: Vec<SegmentName>,
    /// The segments of the log, for a chain without a damaged one.
    pub(super) cover: Cover,
    /// Stored bytes of the segments.
    pub(super) stored_bytes: u64,
    /// Identities that decrypt the segments.
    pub(super) identities: Option<Identities>,
    /// The answer of a member at the revision.
    pub(super) check: Option<Check>,
    /// The last answer of a member between the snapshot and the revision.
    pub(super) check_between: Option<Check>,
}

/// Chooses the snapshot and the segments for a point. `target`: the version of etcd that has to read the snapshot.
pub(super) async fn choose(
    store: &Store,
    request: &RestoreRequest,
    asked: Point,
    target: Option<Minor>,
) -> Result<Chosen> {
    let (lineage, only) = lineage_of(&request.key)?;
    let LogAndBases { log, cluster_id, mut bases, mut archived } =
        find_log(store, &lineage, (asked, only.as_deref())).await?;
    let listed = log::list(store, &log).await?;
    let (names, sizes): (Vec<SegmentName>, Vec<u64>) = listed.segments.into_iter().unzip();
    let identities = identities(&names, request)?;
    let cover = Cover::join(names.clone(), &listed.gaps);
    let uri = store.uri(&lineage);
    refuse_fallen(&bases).map_err(|error| error.context(&uri))?;
    if let Some(only) = &only {
        bases.retain(|base| base.key == *only);
        archived.retain(|key| key == only);
    }
    let (revision, moment) = match asked {
        Point::Revision(revision) => (revision, None),
        Point::Time(time) => {
            let samples = Samples {
                store,
                log: &log,
                cluster_id,
                bases: &bases,
                identities: identities.as_ref(),
                stall: stall(request),
            };
            let found = samples.find(&names, &cover, time).await.map_err(|error| error.context(&uri))?;
            (found.revision, Some(found))
        }
    };
    let stored_bytes = |chain: &[SegmentName]| {
        let chain: BTreeSet<&SegmentName> = chain.iter().collect();
        names.iter().zip(&sizes).filter(|(name, _)| chain.contains(name)).map(|(_, bytes)| bytes).sum()
    };
    let mut too_new = None;
    for (base, segments) in reaching(&cover, &bases, revision) {
        let folder = Folder::parse("key", &base.key).map_err(|error| holdfast_store::layout(&error))?;
        if let Some(failed) = proof::standing_failure(store, &folder).await? {
            tracing::warn!(key = base.key, at = %failed.at, "the snapshot failed a verification: an older one is used");
            continue;
        }
        if let Some(target) = target
            && let Err(error) = check_version(&stored::manifest_of(store, &folder).await?.0, target)
        {
            tracing::warn!(key = base.key, "an older snapshot is used: {error}");
            too_new = too_new.or(Some(error.context(store.uri(&folder))));
            continue;
        }
        let between = listed.checks.iter().filter(|check| base.revision < **check && **check < revision).max();
        let is_checked = listed.checks.contains(&revision);
        let check = if is_checked { find_check(store, &log, revision, cluster_id).await? } else { None };
        let check_between = match between {
            Some(between) => find_check(store, &log, *between, cluster_id).await?,
            None => None,
        };
        return Ok(Chosen {
            asked,
            revision,
            moment,
            base: folder,
            base_revision: base.revision,
            base_least: base.least,
            next_base: next_base(&bases, revision),
            log,
            cluster_id,
            stored_bytes: stored_bytes(&segments),
            segments,
            cover: cover.clone(),
            identities,
            check,
            check_between,
        });
    }
    if let Some(error) = too_new {
        return Err(error);
    }
    let mut points = points_near(store, &cover, &bases, revision).await?;
    points.retain(|point| *point != revision);
    Err(out_of_reach(&cover, &bases, &archived, revision, &points).context(uri))
}

/// A log of a lineage, with the snapshots that it continues.
struct LogAndBases {
    log: Folder,
    cluster_id: u64,
    bases: Vec<Base>,
    archived: Vec<String>,
}

impl LogAndBases {
    /// Ranks the logs of a lineage: with the named snapshot, else the one that began last before the point.
    fn rank(&self, (asked, only): (Point, Option<&str>)) -> (bool, Option<Timestamp>) {
        let is_before = |base: &&Base| match asked {
            Point::Revision(revision) => base.revision <= revision,
            Point::Time(time) => base.started_at <= time,
        };
        let began = self.bases.iter().filter(is_before).map(|base| base.started_at).min();
        (self.bases.iter().any(|base| Some(base.key.as_str()) == only), began)
    }
}

/// Returns the log of the etcd cluster that the lineage had at the point: after each return in place it has another one, with higher
/// revisions.
async fn find_log(store: &Store, lineage: &Folder, (asked, only): (Point, Option<&str>)) -> Result<LogAndBases> {
    let logs = log::readable_logs(store, lineage).await?;
    let clusters: Vec<u64> = logs.iter().map(|log| log.cluster_id).collect();
    let Bases { mut of, archived } = match clusters[..] {
        [] => Bases::default(),
        _ => find_bases_of(store, lineage, &clusters, MOST_ATTEMPTS).await?,
    };
    let with_bases = |BoundLog { folder: log, cluster_id }| {
        let bases = of.remove(&hex_id(cluster_id)).unwrap_or_default();
        LogAndBases { log, cluster_id, bases, archived: archived.clone() }
    };
    let found: Vec<_> = logs.into_iter().map(with_bases).collect();
    // Before the first snapshot of all, the first log has the nearest point.
    found.into_iter().rev().max_by_key(|log| log.rank((asked, only))).ok_or_else(|| {
        Error::not_found(format!(
            "{} holds no log, so no restore reaches {asked}. Leave --at-revision and --at-time out, or give --key the \
             lineage of a log (`holdfast agent log status` names them)",
            store.uri(lineage)
        ))
    })
}

/// Refuses snapshots whose revisions have fallen: the log may join revisions of two histories.
fn refuse_fallen(bases: &[Base]) -> Result<()> {
    let saved = |base: &Base| Saved { began: base.started_at, ended: base.ended_at, revision: Some(base.revision) };
    let Some((later, higher)) = find_fallen(bases, &bases.iter().collect::<Vec<_>>(), saved) else { return Ok(()) };
    Err(Error::unclear(format!(
        "{} is later than {} and has a lower revision: etcd was restored, or lost writes, under the same cluster ID. Restore one of \
         the snapshots without --at-revision and --at-time",
        later.key, higher.key
    )))
}

/// Returns the lineage of a key, and the key if it names one snapshot of the lineage.
fn lineage_of(key: &str) -> Result<(Folder, Option<String>)> {
    let folder = Folder::parse("key", key).map_err(|error| holdfast_store::layout(&error))?;
    if attempt_time(folder.name()).is_none() {
        return Ok((folder, None));
    }
    let lineage = folder.parent().filter(|lineage| !lineage.is_top());
    let lineage = lineage.ok_or_else(|| Error::config(format!("--key {key} names no snapshot of a lineage")))?;
    Ok((lineage, Some(key.to_owned())))
}

fn identities(names: &[SegmentName], request: &RestoreRequest) -> Result<Option<Identities>> {
    if !names.iter().any(|name| name.encrypted) {
        return Ok(None);
    }
    let read = Identities::read(&request.age_identity_dirs)?;
    if read.is_empty() {
        return Err(Error::config(
            "the log is encrypted with age, and no identity is given: name a Secret with the identity file in \
             spec.bootstrap.restore.identitySecretRefs (by hand: --age-identity-dir)",
        ));
    }
    Ok(Some(read))
}

fn stall(request: &RestoreRequest) -> Duration {
    Duration::from_secs(request.stall_seconds.into())
}

/// Returns the snapshots from which the log reaches a revision, the best first, each with its segments.
fn reaching<'a>(
    cover: &'a Cover,
    bases: &'a [Base],
    revision: i64,
) -> impl Iterator<Item = (&'a Base, Vec<SegmentName>)> {
    let mut before: Vec<&Base> = bases.iter().filter(|base| base.revision <= revision).collect();
    before.sort_by_key(|base| std::cmp::Reverse((base.revision, base.ended_at)));
    before.into_iter().filter_map(move |base| {
        let chain = cover.chain(base.revision, revision)?;
        Some((base, chain.into_iter().cloned().collect()))
    })
}

fn next_base(bases: &[Base], revision: i64) -> Option<i64> {
    bases.iter().map(|base| base.revision).filter(|base| *base > revision).min()
}

/// Returns the error for a revision that no snapshot reaches.
fn out_of_reach(cover: &Cover, bases: &[Base], archived: &[String], revision: i64, points: &[i64]) -> Error {
    let reach = |base: &Base| cover.range_after(base.revision).map_or(base.revision, |range| range.last);
    let before = bases.iter().filter(|base| base.revision <= revision).map(reach).max();
    let why = match before {
        None if !archived.is_empty() => "no snapshot before it can be read".to_owned(),
        None if bases.is_empty() => "there is no complete snapshot of the log's etcd cluster".to_owned(),
        None => "every snapshot is later".to_owned(),
        Some(reached) => {
            let hole = cover.holes.iter().find(|hole| hole.after <= reached && reached < hole.until);
            let missing = |until: i64, why: &str| {
                format!("the revisions {} to {until} are missing from the log{why}", reached.saturating_add(1))
            };
            match hole {
                Some(hole) if hole.compacted => {
                    missing(hole.until, ", because etcd had compacted them before they were recorded")
                }
                Some(hole) if hole.removed => missing(hole.until, ", because retention removed them"),
                Some(hole) => missing(hole.until, ""),
                None if reached >= revision => "the snapshots before it failed a verification".to_owned(),
                None => match cover.ranges.iter().map(|range| range.first).find(|first| *first > reached) {
                    Some(first) => missing(first.saturating_sub(1), ""),
                    None => format!("the log ends at revision {reached}"),
                },
            }
        }
    };
    let remedy = nearest(points);
    let archived = match archived {
        [] => String::new(),
        [newest, ..] => format!(
            ". The store has archived {} snapshots, the newest is {newest}: restore one from before the point in the store \
             first, its manifest.json and its data",
            archived.len()
        ),
    };
    Error::not_found(format!("no snapshot and log reach revision {revision}: {why}{archived}. {remedy}"))
}

#[cfg(test)]
mod tests {
    use holdfast_layout::GapName;

    use super::*;

    fn segment(first: i64, last: i64) -> SegmentName {
        let at = Timestamp::from_second(last).unwrap();
        SegmentName { first, last, at, run8: "a".to_owned(), encrypted: false, tail: None }
    }

    fn base(revision: i64) -> Base {
        let at = Timestamp::from_second(revision).unwrap();
        Base { key: format!("a/b/c/{revision}"), revision, started_at: at, ended_at: at, least: 0 }
    }

    #[test]
    fn the_newest_snapshot_from_which_the_log_reaches_the_revision() {
        let cover = Cover::join(vec![segment(5, 20), segment(21, 30), segment(41, 60)], &[]);
        let bases = [50, 35, 25, 10, 2].map(base);
        let chosen = |revision| {
            let (base, segments) = reaching(&cover, &bases, revision).next()?;
            Some((base.revision, segments.iter().map(|segment| segment.first).collect::<Vec<_>>()))
        };
        assert_eq!(chosen(28), Some((25, vec![21])));
        assert_eq!(chosen(22), Some((10, vec![5, 21])));
        assert_eq!(chosen(10), Some((10, vec![])));
        assert_eq!(chosen(55), Some((50, vec![41])));
        assert_eq!(chosen(35), Some((35, vec![])), "a snapshot in a hole of the log");
        assert_eq!((chosen(4), chosen(36), chosen(45), chosen(61), chosen(1)), (None, None, None, None, None));
    }

    #[test]
    fn a_point_is_in_the_log_of_the_etcd_cluster_of_its_time() {
        let bases = |revisions: &[i64]| revisions.iter().copied().map(base).collect();
        let log = |name: &str, revisions: &[i64]| LogAndBases {
            log: Folder::parse("key", &format!("a/b/c/{name}")).unwrap(),
            cluster_id: 1,
            bases: bases(revisions),
            archived: vec![],
        };
        let logs = [log("log", &[10, 20]), log("log-2", &[1000, 1010]), log("log-3", &[])];
        let chosen = |asked, only: Option<&str>| {
            logs.iter().rev().max_by_key(|log| log.rank((asked, only))).map(|log| log.log.name().to_owned()).unwrap()
        };
        let time = |second| Point::Time(Timestamp::from_second(second).unwrap());
        for (asked, only, name) in [
            (Point::Revision(15), None, "log"),
            (Point::Revision(999), None, "log"),
            (Point::Revision(1005), None, "log-2"),
            (Point::Revision(5), None, "log"),
            (time(12), None, "log"),
            (time(1001), None, "log-2"),
            (time(1001), Some("a/b/c/20"), "log"),
        ] {
            assert_eq!(chosen(asked, only), name, "{asked} {only:?}");
        }
    }

    #[test]
    fn revisions_that_fell_are_refused() {
        let [early, late] = [20, 30].map(base);
        refuse_fallen(&[late.clone(), early.clone()]).unwrap();
        let error = refuse_fallen(&[early.clone(), Base { revision: 10, ..late.clone() }]).unwrap_err();
        assert!(error.message().contains("a/b/c/30 is later than a/b/c/20"), "{error}");
        let long = Base { ended_at: late.ended_at, ..early.clone() };
        refuse_fallen(&[long, Base { revision: 10, ..early }]).expect("two saves at the same time say nothing");
    }

    #[test]
    fn a_revision_out_of_reach_is_refused_with_the_nearest_points() {
        let cover = |gaps: &[GapName]| Cover::join(vec![segment(5, 20), segment(31, 40)], gaps);
        let bases = [4, 35, 50].map(base);
        let gap = GapName { after: 20, until: 30, removed: false };
        for (revision, points, gaps, says) in [
            (
                25,
                &[20, 35][..],
                &[][..],
                "no snapshot and log reach revision 25: the revisions 21 to 30 are missing from the log. The nearest \
                 points are revision 20 and revision 35 (at.revision, by hand --at-revision)",
            ),
            (25, &[20, 35], &[gap], "because etcd had compacted them before they were recorded. The nearest"),
            (25, &[20, 35], &[GapName { removed: true, ..gap }], "because retention removed them. The nearest"),
            (45, &[40, 50], &[], "the log ends at revision 40. The nearest points are revision 40 and revision 50"),
            (60, &[50], &[], "the log ends at revision 50. The nearest point is revision 50"),
            (3, &[4], &[], "every snapshot is later. The nearest point is revision 4 "),
        ] {
            let error = out_of_reach(&cover(gaps), &bases, &[], revision, points);
            assert!(error.message().contains(says), "{error}");
        }
        let archived = ["a/b/c/3".to_owned(), "a/b/c/2".to_owned()];
        for bases in [&bases[..], &[]] {
            let error = out_of_reach(&cover(&[]), bases, &archived, 3, &[]);
            let says = "no snapshot before it can be read. The store has archived 2 snapshots, the newest is a/b/c/3";
            assert!(error.message().contains(says) && !error.message().contains("is later"), "{error}");
        }
        let none = out_of_reach(&cover(&[]), &[], &[], 10, &[]);
        assert!(none.message().contains("there is no complete snapshot"), "{none}");
        let early = out_of_reach(&cover(&[]), &[base(2)], &[], 10, &[2]);
        assert!(early.message().contains("the revisions 3 to 4 are missing"), "{early}");
    }

    #[test]
    fn a_key_names_a_lineage_or_one_of_its_snapshots() {
        let (lineage, only) = lineage_of("shop/orders/1a2b3c4d").unwrap();
        assert_eq!((lineage.as_str(), only), ("shop/orders/1a2b3c4d", None));
        let key = "shop/orders/1a2b3c4d/20261121T162233Z-1-2";
        let (lineage, only) = lineage_of(key).unwrap();
        assert_eq!((lineage.as_str(), only.as_deref()), ("shop/orders/1a2b3c4d", Some(key)));
        assert!(lineage_of("20261121T162233Z-1-2").is_err());
    }
}
