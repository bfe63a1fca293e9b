//! Formats a snapshot's contents as tables for a terminal.

use std::fmt::Write as _;

use holdfast_io::table::{align_columns, printable};
use indicatif::HumanBytes;

use super::Contents;

/// Formats all sections in order, without empty sections.
pub(super) fn format_contents(contents: &Contents) -> String {
    let mut out = format!("revision {}", contents.revision);
    if let Some(revision) = contents.compact_revision {
        let _ = write!(out, ", compacted at {revision}");
    }
    if let Some(version) = &contents.storage_version {
        let _ = write!(out, ", storage version {version}");
    }
    out.push_str("\n\n");
    let mut rows = vec![["PREFIX", "KEYS", "BYTES", "RECORDS", "OF ALL RECORDS"].map(str::to_owned)];
    let row = |name: &str, prefix: &super::Prefix| {
        [
            name.to_owned(),
            prefix.keys.to_string(),
            HumanBytes(prefix.bytes).to_string(),
            prefix.records.to_string(),
            HumanBytes(prefix.record_bytes).to_string(),
        ]
    };
    for prefix in &contents.prefixes {
        rows.push(row(if prefix.prefix.is_empty() { "(no separator)" } else { &prefix.prefix }, prefix));
    }
    let all = if contents.total.prefix.is_empty() {
        "(all)".to_owned()
    } else {
        format!("(all of {})", contents.total.prefix)
    };
    rows.push(row(&all, &contents.total));
    out.push_str(&align_columns(&rows));
    if contents.more > 0 {
        let _ = writeln!(
            out,
            "{} more prefixes: --top shows more, --prefix shows the prefixes below a prefix",
            contents.more
        );
    }
    if !contents.leases.is_empty() {
        let head = ["LEASE", "TTL", "KEYS"].map(str::to_owned);
        let leases = contents.leases.iter().map(|l| [l.id.clone(), format!("{} s", l.ttl), l.keys.to_string()]);
        let _ = write!(out, "\n{}", align_columns(&std::iter::once(head).chain(leases).collect::<Vec<_>>()));
    }
    if contents.auth_enabled || !contents.users.is_empty() || !contents.roles.is_empty() {
        let _ = writeln!(out, "\nauthentication is {}", if contents.auth_enabled { "on" } else { "off" });
        let _ = writeln!(out, "users  {}\nroles  {}", contents.users.join(", "), contents.roles.join(", "));
    }
    let head = ["MEMBER", "NAME", "PEER URLS", "CLIENT URLS", ""].map(str::to_owned);
    let members = contents.members.iter().map(|member| {
        let learner = if member.learner { "learner" } else { "" };
        let [peers, clients] = [&member.peer_urls, &member.client_urls].map(|urls| urls.join(","));
        [member.id.clone(), printable(member.name.as_bytes()), peers, clients, learner.to_owned()]
    });
    let _ = write!(out, "\n{}", align_columns(&std::iter::once(head).chain(members).collect::<Vec<_>>()));
    for alarm in &contents.alarms {
        let _ = writeln!(out, "alarm  {alarm}");
    }
    out
}
