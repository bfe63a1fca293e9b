//! The API server's judgement of a member's next Pod: no Pod that serves ends before it, and a refused Pod costs no member for long.

use holdfast_api::template::Rollback;

use super::*;
use holdfast_base::{meta, template};

fn edited(voters: usize) -> Observed {
    let mut seen = formed(voters, i32::try_from(voters).unwrap());
    seen.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
    seen
}

fn refused(seconds: i64) -> Seen<Judgement> {
    let words = "pods \"a-m0\" is forbidden: no".to_owned();
    Seen::Known(Judgement::Refused { words, lasted: SignedDuration::from_secs(seconds) })
}

fn judge(seen: &mut Observed, judged: Option<&Seen<Judgement>>) {
    seen.next_pods.clear();
    let names = seen.members.iter().map(|m| m.name().to_owned());
    seen.next_pods = judged.map(|judged| names.map(|name| (name, judged.clone())).collect()).unwrap_or_default();
}

/// The members whose next Pod has to be judged.
fn asked(seen: &Observed) -> Vec<String> {
    let all = next_pods(&seen.cluster, &seen.members, &seen.settings);
    all.iter()
        .map(|(member, pod)| {
            assert_eq!(meta::name(&pod.metadata), member.name());
            member.name().to_owned()
        })
        .collect()
}

/// A member that has the template of the spec, was ended for it, and has no Pod.
fn without_a_pod(voters: usize) -> Observed {
    let mut seen = edited(voters);
    let wanted = template::wanted(&seen.cluster);
    let member = &mut seen.members[voters - 1];
    member.object.spec.served = Some(member.object.spec.process.clone());
    template::put(&mut member.object, &wanted);
    member.pod = None;
    seen.answers.remove(&named(voters - 1));
    if voters == 1 {
        seen.etcd = Seen::unknown("there is no Pod to ask");
    }
    seen
}

#[test]
fn a_template_waits_for_the_judgement_of_its_pod() {
    for voters in [1, 2, 3] {
        let mut seen = edited(voters);
        assert!(matches!(act(&seen), Some(Act::SetTemplate { .. })), "{voters}");
        let unknown = Seen::unknown("timed out");
        for (judged, reason) in
            [(Some(&refused(0)), Reason::WriteRefused), (Some(&unknown), Reason::Rolling), (None, Reason::Rolling)]
        {
            judge(&mut seen, judged);
            assert_eq!(waits(&seen), Some(reason), "{voters}, {judged:?}");
        }
        judge(&mut seen, Some(&refused(0)));
        assert_eq!(condition(&seen, "Degraded"), pair("True", "WriteRefused"));
        // The earlier spec again: no member has lost its template.
        seen.cluster.spec.options = None;
        assert_eq!(waits(&seen), None, "{voters}");
    }
}

#[test]
fn no_pod_that_serves_ends_before_the_judgement() {
    // The member has the template, and its Pod does not.
    let mut roll = edited(3);
    let wanted = template::wanted(&roll.cluster);
    template::put(&mut roll.members[2].object, &wanted);
    // A user asks for the replacement.
    let mut replace = formed(3, 3);
    replace.cluster.metadata.annotations = Some([(key::REPLACE.to_owned(), named(1))].into());
    for mut seen in [roll, replace] {
        assert!(matches!(act(&seen), Some(Act::EvictPod { .. } | Act::LatchLeaving { .. })));
        judge(&mut seen, Some(&refused(0)));
        assert_eq!(waits(&seen), Some(Reason::WriteRefused));
        judge(&mut seen, None);
        assert_eq!(waits(&seen), Some(Reason::Rolling));
    }
}

#[test]
fn only_pods_that_may_end_and_missing_pods_are_judged() {
    let none: [&str; 0] = [];
    let mut seen = formed(3, 3);
    assert_eq!(asked(&seen), none, "nothing changes");
    let mut replaced = seen.clone();
    replaced.cluster.metadata.annotations = Some([(key::REPLACE.to_owned(), named(1))].into());
    assert_eq!(asked(&replaced), [named(1)]);
    seen.members[2].pod = None;
    assert_eq!(asked(&seen), [named(2)]);
    let all: Vec<String> = (0..3).map(named).collect();
    assert_eq!(asked(&edited(3)), all);
    let idle: [fn(&mut Observed); 3] = [
        |seen| seen.cluster.spec.paused = true,
        |seen| seen.cluster.spec.replicas = 0,
        |seen| latches(seen).formed = None,
    ];
    for change in idle {
        let mut seen = edited(3);
        change(&mut seen);
        assert_eq!(asked(&seen), none);
    }
    // No etcd ends with a Pod in which none runs.
    let mut seen = edited(3);
    seen.members[1].pod.as_mut().unwrap().status = None;
    assert_eq!(asked(&seen), [named(0), named(2)]);
}

#[test]
fn a_member_without_a_pod_gets_the_corrected_spec_at_once() {
    for voters in [1, 2, 3] {
        let mut seen = without_a_pod(voters);
        seen.cluster.spec.options = Some(Options { snapshot_count: Some(8), ..Options::default() });
        seen.next_pods.insert(named(voters - 1), refused(0));
        let Some(Act::SetTemplate { member, template, served }) = act(&seen) else { panic!("{:?}", act(&seen)) };
        assert_eq!((member.name, *template), (named(voters - 1), template::wanted(&seen.cluster)));
        assert_eq!(served, seen.members[voters - 1].object.spec.served.clone().map(Box::new));
    }
    // The API server would permit the Pod, which comes at once: without a quorum nothing else changes.
    let mut seen = without_a_pod(1);
    seen.cluster.spec.options = Some(Options { snapshot_count: Some(8), ..Options::default() });
    seen.next_pods.insert(named(0), Seen::Known(Judgement::Permitted));
    assert_eq!(act(&seen), None);
}

#[test]
fn a_refusal_that_lasts_brings_the_earlier_template_back() {
    for voters in [1, 2, 3] {
        let mut seen = without_a_pod(voters);
        let n = voters - 1;
        seen.next_pods.insert(named(n), refused(29));
        assert_eq!(act(&seen), None, "{voters}: a quota may count the ended Pod still");
        seen.next_pods.insert(named(n), refused(30));
        let mut manual = seen.clone();
        manual.cluster.spec.rollback = Some(Rollback::Manual);
        assert_eq!(waits(&manual), Some(Reason::RolloutStuck), "{voters}");
        let Some(Act::Latch(latched)) = act(&seen) else { panic!("{voters}: {:?}", act(&seen)) };
        assert_eq!(latched.failed_template.as_ref().map(|failed| failed.member.clone()), Some(named(n)));
        *latches(&mut seen) = *latched;
        let Some(Act::SetTemplate { template, .. }) = act(&seen) else { panic!("{voters}: {:?}", act(&seen)) };
        assert_eq!(Some(*template), seen.members[n].object.spec.served, "{voters}");
    }
}
