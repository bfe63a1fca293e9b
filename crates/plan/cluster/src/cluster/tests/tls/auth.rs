//! etcd's authentication: when `spec.auth` turns it on and off, and what is reported.

use holdfast_api::auth::Auth;

use super::*;

fn asking(enabled: Option<bool>, is: Option<bool>) -> Observed {
    let mut seen = secured(3, 3);
    seen.cluster.spec.auth = enabled.map(|enabled| Auth { enabled });
    seen.auth = is;
    seen
}

#[test]
fn authentication_follows_the_spec_and_only_the_spec() {
    let set = |enabled| Some(Act::SetAuth { enabled, cluster_id: CLUSTER_ID });
    for (wanted, is, expected) in [
        (Some(true), Some(false), set(true)),
        (Some(false), Some(true), set(false)),
        (Some(true), Some(true), None),
        (Some(false), Some(false), None),
        // Unknown is not off.
        (Some(true), None, None),
        (None, Some(true), None),
        (None, Some(false), None),
    ] {
        let seen = asking(wanted, is);
        assert_eq!(act(&seen), expected, "{wanted:?} {is:?}");
        // A definition of an earlier version lacks the field.
        let told = is.filter(|on| *on || wanted.is_some());
        assert_eq!(planned(&seen).status.auth_enabled, told);
        if let Some(act) = expected {
            assert_eq!(safety::cluster(&seen, &planned(&seen)).map(drop), Ok(()), "{act:?}");
            assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"), "no member restarts");
        }
    }
    let mut silent = asking(Some(true), Some(false));
    silent.etcd = Seen::unknown("no");
    assert!(!matches!(act(&silent), Some(Act::SetAuth { .. })));
    let mut paused = asking(Some(true), Some(false));
    paused.cluster.spec.paused = true;
    assert_eq!(act(&paused), None);
}

#[test]
fn an_operator_that_is_not_root_turns_nothing_on() {
    let mut seen = asking(Some(true), Some(false));
    let other = kept("a-operator-tls", "u-a", vec![(files::CLIENT, known("o", CLIENT_CA, Some("holdfast"), &[]))]);
    certificates(&mut seen).operator = Some(other);
    assert!(!matches!(act(&seen), Some(Act::SetAuth { .. })));
    let mut plan = planned(&seen);
    plan.act = Some(Act::SetAuth { enabled: true, cluster_id: CLUSTER_ID });
    assert_eq!(safety::cluster(&seen, &plan).unwrap_err().invariant, "I31");
}

#[test]
fn authentication_of_somebody_else_is_reported_with_the_way_in() {
    let seen = asking(None, Some(true));
    assert_eq!(condition(&seen, "AtRisk"), pair("True", "AuthUnmanaged"));
    assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"));
    for known in [asking(Some(true), Some(true)), asking(None, Some(false)), asking(None, None)] {
        assert_eq!(condition(&known, "AtRisk"), pair("False", "NothingWrong"));
    }
    let mut seen = secured(3, 3);
    seen.etcd = Seen::Unknown(Unread::LoginRequired("permission denied".to_owned()));
    let message = planned(&seen).waiting.unwrap().message;
    assert!(message.contains("common name root"), "{message}");
}
