//! Formats the result of a save and of a restore for a terminal: a few lines, and the next step.
//!
//! This file decides the wording only. All facts come from the report, which holds no secret; programs read the report with
//! `--json`.

use holdfast_contract::{
    CameAlong, DATA_DIR, LogEnd, PointProof, PointReport, RestoreRequest, RestoredReport, SavedReport, SurvivorReport,
};

use holdfast_verbs_common::{bytes, lines, proven, revision, seconds};

/// Formats a save: the snapshot, its place and its level of proof.
pub fn of_saved(saved: &SavedReport, by_hand: bool) -> String {
    let version = &saved.etcd_version;
    let cluster = &saved.cluster_id;
    let encrypted = if saved.encrypted { ", encrypted with age" } else { "" };
    let packed = saved.compression.as_str();
    let mut rows = vec![
        ("saved", format!("{} of member {} (etcd {version}, cluster {cluster})", bytes(saved.db_bytes), saved.member)),
        ("to", saved.uri.clone()),
        ("key", saved.key.clone()),
        ("stored", format!("{}, compression {packed}{encrypted}", bytes(saved.stored_bytes))),
        ("revision", revision(saved.revision, saved.keys)),
    ];
    rows.extend(saved.verification.iter().map(|found| ("proven", proven(found))));
    if saved.without_quorum {
        rows.push(("beware", "no quorum answered: acknowledged writes may be missing".to_owned()));
    }
    rows.extend(saved.lock.iter().map(|lock| ("locked", format!("until {}", lock.until))));
    rows.push(("took", seconds(saved.millis)));
    // The store's URL ends where the key begins.
    if let Some((store, _)) = saved.uri.split_once(&format!("/{}/", saved.key)).filter(|_| by_hand) {
        let verify = format!("holdfast agent verify --store {store} --key {}", saved.key);
        rows.push(("next", format!("{verify} (with the store flags of this save)")));
    }
    lines(&rows)
}

/// Describes the part of the log that a restore has added.
fn describe_point(point: &PointReport) -> String {
    let proof = match point.proof {
        PointProof::HashKV => "HashKV, equal to that of a member",
        PointProof::Chained => "segments without a hole, each with its checksum",
    };
    let leases = match point.unknown_leases {
        0 => String::new(),
        leases => format!("; {leases} leases end in an hour, because the log does not name their time to live"),
    };
    let time = match (point.known_at, point.changed_by) {
        (Some(known), Some(changed)) => {
            format!("; etcd had revision {} at {known}, and a later one by {changed}", point.revision)
        }
        (Some(known), None) => format!("; etcd had revision {} at {known}", point.revision),
        (None, _) => String::new(),
    };
    format!(
        "{} changes in {} segments, from revision {} to {}; proven by {proof}{leases}{time}",
        point.records, point.segments, point.base_revision, point.revision
    )
}

/// Describes the member whose volume was restored.
fn describe_survivor(survivor: &SurvivorReport) -> String {
    let SurvivorReport { member_id, last_index, last_term, beyond_commit, log_end, hash_kv, hash_confirmed, .. } =
        survivor;
    let term = last_term.map(|term| format!(" of term {term}"));
    let torn = match log_end {
        LogEnd::Torn => ", without a write that a crash cut off",
        LogEnd::Whole => "",
    };
    let by_etcd = if *hash_confirmed { ", as etcd reported" } else { "" };
    let hash = hash_kv.map(|hash| format!("; HashKV {hash}{by_etcd}"));
    format!(
        "member {member_id}, all entries to index {last_index}{}{torn}; {beyond_commit} of them it did not know as committed{}",
        term.unwrap_or_default(),
        hash.unwrap_or_default()
    )
}

/// Formats a restore: the snapshot, the data directory and the command that starts etcd on it.
pub fn of_restored(restored: &RestoredReport, request: &RestoreRequest) -> String {
    let data = request.volume.join(DATA_DIR).display().to_string();
    let mut rows = vec![
        ("restored", format!("{} from {}", bytes(restored.db_bytes), restored.uri)),
        ("to", if restored.already { format!("{data} (was complete already)") } else { data.clone() }),
    ];
    if !restored.taken_at.is_empty() {
        rows.push(("taken", format!("{} of {}", restored.taken_at, restored.from_cluster)));
    }
    let bump = match restored.revision_bump {
        0 => String::new(),
        bump => format!(", and {bump} more: watchers list again"),
    };
    rows.push(("revision", revision(restored.revision, None) + &bump));
    rows.extend(restored.point.as_ref().map(|point| ("log", describe_point(point))));
    rows.extend(restored.survivor.as_ref().map(|survivor| ("survivor", describe_survivor(survivor))));
    if restored.without_quorum {
        rows.push(("beware", "no quorum answered the save: acknowledged writes may be missing".to_owned()));
    }
    if let Some(CameAlong { auth_enabled: true, users, .. }) = restored.came_along {
        rows.push(("beware", format!("authentication is on ({users} users): clients have to log in")));
    }
    rows.extend(restored.not_compared.iter().map(|why| ("beware", format!("not compared: {why}"))));
    rows.extend(restored.engine.map(|engine| {
        let why = restored.fell_back.as_ref().map(|why| format!(", because the graft failed: {why}"));
        ("engine", format!("{}{}", engine.as_str(), why.unwrap_or_default()))
    }));
    rows.push(("took", seconds(restored.millis)));
    // In a Pod the operator starts etcd.
    if request.annotations.is_none() {
        rows.push(("next", format!("etcd --name {} --data-dir {data}", request.identity.member_name)));
    }
    lines(&rows)
}

#[cfg(test)]
mod tests {
    use holdfast_contract::{Compression, Engine, IdentityFlags, Level, Verification};

    use super::*;

    fn saved() -> SavedReport {
        SavedReport {
            key: "site-a/orders/etcd-1a/20261121T162233Z-1-2".to_owned(),
            uri: "s3://bkt/pre/fix/site-a/orders/etcd-1a/20261121T162233Z-1-2/snapshot.db.zst".to_owned(),
            db_bytes: 5 << 20,
            stored_bytes: 1 << 20,
            compression: Compression::Zstd,
            member: "m1".to_owned(),
            cluster_id: "1a".to_owned(),
            etcd_version: "3.6.6".to_owned(),
            revision: Some(51),
            keys: Some(50),
            verification: Some(Verification {
                level: Level::HashKV,
                agreed_by: vec!["m1".to_owned(), "m2".to_owned()],
                read_back: true,
                ..Verification::default()
            }),
            millis: 1290,
            ..SavedReport::default()
        }
    }

    #[test]
    fn a_person_reads_what_was_saved_and_what_comes_next() {
        let told = "\
saved     5.00 MiB (5242880 bytes) of member m1 (etcd 3.6.6, cluster 1a)
to        s3://bkt/pre/fix/site-a/orders/etcd-1a/20261121T162233Z-1-2/snapshot.db.zst
key       site-a/orders/etcd-1a/20261121T162233Z-1-2
stored    1.00 MiB (1048576 bytes), compression zstd
revision  51, 50 keys
proven    HashKV, equal to that of m1 and m2; the stored bytes were read back
took      1.29 s
";
        let next = "next      holdfast agent verify --store s3://bkt/pre/fix --key \
                    site-a/orders/etcd-1a/20261121T162233Z-1-2 (with the store flags of this save)\n";
        assert_eq!(of_saved(&saved(), true), format!("{told}{next}"));
        assert_eq!(of_saved(&saved(), false), told, "in a Job somebody else sees to the rest");
        let worse = of_saved(
            &SavedReport {
                without_quorum: true,
                encrypted: true,
                member: "m\u{1b}[2J".to_owned(),
                revision: None,
                verification: Some(Verification { reason: Some("too large".to_owned()), ..Verification::default() }),
                ..saved()
            },
            true,
        );
        for says in
            ["no quorum answered", "encrypted with age", "member m\\x1b[2J", "etcd sent; too large", "not known"]
        {
            assert!(worse.contains(says), "{says}: {worse}");
        }
    }

    #[test]
    fn a_person_reads_what_was_restored_and_what_starts_on_it() {
        let request = RestoreRequest {
            volume: "/var/lib/etcd".into(),
            identity: IdentityFlags { member_name: "m1".to_owned(), ..IdentityFlags::default() },
            ..RestoreRequest::default()
        };
        let restored = RestoredReport {
            uri: "file:///b/x.db".to_owned(),
            db_bytes: 1 << 20,
            taken_at: "2026-11-21T16:22:33Z".to_owned(),
            from_cluster: "site-a/orders".to_owned(),
            revision: Some(51),
            revision_bump: 1000,
            engine: Some(Engine::Etcdutl),
            fell_back: Some("no room".to_owned()),
            came_along: Some(CameAlong { auth_enabled: true, users: 2, ..CameAlong::default() }),
            millis: 999,
            ..RestoredReport::default()
        };
        let told = "\
restored  1.00 MiB (1048576 bytes) from file:///b/x.db
to        /var/lib/etcd/data
taken     2026-11-21T16:22:33Z of site-a/orders
revision  51, and 1000 more: watchers list again
beware    authentication is on (2 users): clients have to log in
engine    etcdutl, because the graft failed: no room
took      0.99 s
";
        let next = "next      etcd --name m1 --data-dir /var/lib/etcd/data\n";
        assert_eq!(of_restored(&restored, &request), format!("{told}{next}"));
        let in_a_pod = RestoreRequest { annotations: Some("/a".into()), ..request.clone() };
        assert_eq!(of_restored(&restored, &in_a_pod), told);
        let again = of_restored(&RestoredReport { already: true, ..restored.clone() }, &request);
        assert!(again.contains("was complete already"), "{again}");
        let point = PointReport {
            base_revision: 40,
            revision: 51,
            records: 12,
            segments: 2,
            proof: PointProof::HashKV,
            unknown_leases: 1,
            ..PointReport::default()
        };
        let at = |time: &str| Some(time.parse().unwrap());
        let of_time =
            PointReport { known_at: at("2026-11-28T10:42:07Z"), changed_by: at("2026-11-28T10:42:40Z"), ..point };
        let of_time = of_restored(&RestoredReport { point: Some(Box::new(of_time)), ..restored.clone() }, &request);
        assert!(
            of_time.contains("etcd had revision 51 at 2026-11-28T10:42:07Z, and a later one by 2026-11-28T10:42:40Z"),
            "{of_time}"
        );
        let survivor = SurvivorReport {
            member_id: "8e9e05c52164694d".to_owned(),
            last_index: 81_204,
            last_term: Some(4),
            beyond_commit: 2,
            log_end: LogEnd::Torn,
            hash_kv: Some(7),
            hash_confirmed: true,
            ..SurvivorReport::default()
        };
        let of_volume = RestoredReport { survivor: Some(Box::new(survivor)), ..restored.clone() };
        let line = "\nsurvivor  member 8e9e05c52164694d, all entries to index 81204 of term 4, without a write that a crash cut off; 2 \
                    of them it did not know as committed; HashKV 7, as etcd reported\n";
        let told = of_restored(&of_volume, &request);
        assert!(told.contains(line), "{told}");
        let to_a_point = of_restored(&RestoredReport { point: Some(Box::new(point)), ..restored }, &request);
        let log = "\nlog       12 changes in 2 segments, from revision 40 to 51; proven by HashKV, equal to that of a member; 1 \
                   leases end in an hour, because the log does not name their time to live\n";
        assert!(to_a_point.contains(log), "{to_a_point}");
    }
}
