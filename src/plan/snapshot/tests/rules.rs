//! Each safety rule notices its breach.

use super::stored::in_phase;
use super::*;

fn broken(seen: &Observed, change: impl FnOnce(&mut Plan<EtcdSnapshotStatus>)) -> &'static str {
    let mut plan = planned(seen);
    change(&mut plan);
    safety::snapshot(seen, &plan).expect_err("the rule did not notice").invariant
}

#[test]
fn each_rule_notices_its_breach() {
    let mut done = with(vec![saved()]);
    done.snapshot.status = Some(in_phase(Phase::Complete));
    assert_eq!(broken(&done, |p| p.status.phase = Phase::Failed), "I18");
    assert_eq!(broken(&done, |p| p.status.artifact = None), "I18");
    assert_eq!(broken(&done, |p| p.status.completed_at = None), "I18");
    assert_eq!(broken(&done, |p| p.act = planned(&fresh()).act), "I18");

    assert_eq!(broken(&fresh(), |p| p.status.artifact = Some(Artifact::default())), "I7");
    assert_eq!(broken(&with(vec![saved()]), |p| p.status.artifact = None), "I7");
    assert_eq!(broken(&with(vec![running()]), |p| p.act = planned(&fresh()).act), "I7");

    let mut going = fresh();
    going.snapshot.metadata.deletion_timestamp = Some(ago(1));
    assert_eq!(broken(&going, |p| p.act = planned(&fresh()).act), "I18");

    let mut begun = fresh();
    begun.snapshot.status = Some(planned(&with(vec![running()])).status);
    assert_eq!(broken(&begun, |p| p.act = planned(&fresh()).act), "I6");
    let asking = asked(begun.clone(), vec![running()]);
    assert_eq!(broken(&asking, |p| p.act = planned(&begun).act), "I7");
    let mut other = started(&begun);
    other.metadata.name = Some("the-next".to_owned());
    assert_eq!(broken(&asking, |p| p.act = Some(Act::StartJob(Box::new(other)))), "I7", "the first has not ended");
    let silent = asked(begun.clone(), vec![failed("p-ask", ExitClass::Transient, "503")]);
    assert_eq!(broken(&silent, |p| p.act = planned(&begun).act), "I7", "it has asked already");
    begun.strays = vec![running()];
    assert_eq!(broken(&begun, |p| p.act = planned(&fresh()).act), "I7");

    let change = |change: fn(&mut Job)| {
        broken(&fresh(), |p| {
            let Some(Act::StartJob(job)) = p.act.as_mut() else { panic!("{:?}", p.act) };
            change(job);
        })
    };
    assert_eq!(change(|job| job.metadata.owner_references = None), "I13");
    assert_eq!(change(|job| job.metadata.namespace = Some("other".to_owned())), "I13");
    assert_eq!(
        change(|job| {
            let template = job.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
            template.labels.as_mut().unwrap().insert(key::COMPONENT.to_owned(), "etcd-member".to_owned());
        }),
        "I16"
    );
    let target = crate::plan::Target::of(&ObjectMeta::default());
    let act = Act::DeletePod { pod: target, why: String::new() };
    assert_eq!(broken(&fresh(), |p| p.act = Some(act)), "I13");
}
