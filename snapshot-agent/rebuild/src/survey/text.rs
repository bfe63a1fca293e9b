//! Formats a survey for a terminal.
//!
//! This file decides the wording only. Programs read the report with `--json`.

use holdfast_contract::{LogEnd, SurveyReport, VolumeOwner};
use holdfast_verbs_common::{bytes, lines};

/// Formats a survey, one fact a line; unknown facts are left out.
pub fn text(found: &SurveyReport) -> String {
    let mut rows = Vec::new();
    let mut row = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    row("cluster", found.cluster_id.clone());
    row("member", found.member_id.clone());
    row("owner", found.identity.as_ref().map(owner));
    row("last", found.last_index.map(|index| place(index, found.last_term)));
    row(
        "committed",
        found.commit_index.map(|index| match found.last_index {
            Some(last) if last > index => format!("index {index}, and {} entries after it", last - index),
            _ => format!("index {index}"),
        }),
    );
    row(
        "term",
        found.term.map(|term| match &found.vote {
            Some(vote) => format!("{term}, vote for {vote}"),
            None => term.to_string(),
        }),
    );
    row("snapshot", found.snapshot_index.map(|index| format!("index {index}")));
    row("log", found.log_bytes.map(|log| format!("{}{}", bytes(log), end(found.log_end))));
    row("damaged", found.log_damage.as_ref().map(|why| format!("the log, {why}")));
    row("applied", found.consistent_index.map(|index| place(index, found.database_term)));
    row("revision", found.revision.map(|revision| format!("{revision} in the database, before the log is applied")));
    row("database", found.db_bytes.map(bytes));
    row("members", found.members.map(|members| members.to_string()));
    row("auth", found.auth_enabled.map(|on| if on { "on: clients have to log in" } else { "off" }.to_owned()));
    row("damaged", found.database_damage.as_ref().map(|why| format!("the database, {why}")));
    row("damaged", found.identity_damage.as_ref().map(|why| format!("the identity, {why}")));
    row("beware", found.lock_unknown.as_ref().map(|why| format!("an etcd may run on the volume: {why}")));
    lines(&rows)
}

fn place(index: u64, term: Option<u64>) -> String {
    let term = term.map(|term| format!(" of term {term}"));
    format!("index {index}{}", term.unwrap_or_default())
}

const fn end(end: Option<LogEnd>) -> &'static str {
    match end {
        Some(LogEnd::Torn) => ", cut off at its end by a crash",
        Some(LogEnd::Whole) | None => "",
    }
}

fn owner(VolumeOwner { member_name, claim_uid, pod_start, .. }: &VolumeOwner) -> String {
    let pods = pod_start.map(|start| format!(", Pod number {start}"));
    format!("member {member_name}, claim {claim_uid}{}", pods.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_left_out() {
        assert_eq!(text(&SurveyReport::default()), "");
        let found = SurveyReport {
            member_id: Some("8e9e05c52164694d".to_owned()),
            term: Some(4),
            commit_index: Some(81_200),
            last_index: Some(81_204),
            last_term: Some(4),
            log_bytes: Some(64 << 20),
            log_end: Some(LogEnd::Torn),
            ..SurveyReport::default()
        };
        let expected = "\
member     8e9e05c52164694d
last       index 81204 of term 4
committed  index 81200, and 4 entries after it
term       4
log        64.00 MiB (67108864 bytes), cut off at its end by a crash
";
        assert_eq!(text(&found), expected);
    }
}
