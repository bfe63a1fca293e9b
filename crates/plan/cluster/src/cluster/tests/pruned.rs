//! A restore, and a Job that removes snapshots.

use holdfast_api::schedule::PruneRun;
use holdfast_api::store::{Location, PvcLocation, StoredSnapshot};

use super::*;
use crate::safety;

const KEY: &str = "ns/a/0000/20260101T000000Z-00000001-x";

#[test]
fn a_restore_waits_for_a_run_that_does_not_protect_its_snapshot() {
    let mut seen = bare(1);
    let place = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None });
    let restore = Restore { source: Some(StoredSnapshot::at(place, KEY.to_owned())), ..Restore::default() };
    seen.cluster.spec.bootstrap = Some(Bootstrap { restore: Some(restore) });
    let Some(Act::Latch(latches)) = plan(&seen, noon()).act else { panic!("the restore is latched first") };
    seen.cluster.status = Some(plan(&seen, noon()).status);
    seen.cluster.status.as_mut().unwrap().latches = *latches;
    let made = plan(&seen, noon());
    assert!(matches!(made.act, Some(Act::CreateMember(_))), "{:?}", made.act);

    let run = |lineage: &str, protects: Option<&[&str]>| PruneRun {
        job: "nightly-1".to_owned(),
        lineage: lineage.to_owned(),
        protects: protects.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
        ..PruneRun::default()
    };
    for (prune, waits) in [
        (run("ns/a/0000", None), true),
        (run("ns/a/0000", Some(&[])), true),
        (run("ns/a/0000", Some(&["ns/a/0000/other"])), true),
        (run("ns/a/0000", Some(&["ns/a/0000/other", KEY])), false),
        (run("ns/a/00", None), false),
        (run("ns/b/0000", None), false),
    ] {
        seen.prunes = vec![run("ns/b/1", None), prune.clone()];
        let decided = plan(&seen, noon());
        assert_eq!(decided.act.is_none(), waits, "{prune:?}");
        assert_eq!(decided.waiting.map(|w| w.reason), waits.then_some(Reason::WaitingForPrune), "{prune:?}");
        let breach = safety::cluster(&seen, &made).err().map(|violation| violation.invariant);
        assert_eq!(breach, waits.then_some("I25"), "{prune:?}");
    }
}
