//! The screen of one cluster: a header, a table of members, conditions with their remedies, backups, and the next steps.
//!
//! PURE: decides places, words and colours. The facts decide the content.

use jiff::Timestamp;

use super::facts::{Condition, Drill, Facts, Log, Member, Merge, Schedule, Snapshot, State, Unread};
use super::{identity, timeline};
use crate::screen::{Cell, MESSAGE_LINES, Screen, Table, Tone, cell, flow, message, shorten, wrap};
use crate::time::{between, clock, date, grouped, relative, size};

/// Most lines about a member that does not answer: the condition below tells more.
const SILENCE_LINES: usize = 2;

/// Text between two facts on one line.
const DOT: &str = " · ";

/// Returns the sign, the word and the meaning of a state.
pub const fn describe_state(state: State) -> (&'static str, &'static str, Tone) {
    match state {
        State::Ready => ("●", "READY", Tone::Good),
        State::AtRisk => ("●", "READY, AT RISK", Tone::Warning),
        State::Progressing => ("◐", "PROGRESSING", Tone::Moving),
        State::Degraded => ("▲", "DEGRADED", Tone::Warning),
        State::Down => ("✖", "DOWN", Tone::Bad),
        State::Forming => ("◐", "FORMING", Tone::Moving),
        State::Parked => ("○", "PARKED", Tone::Faint),
        State::Deleting => ("○", "BEING DELETED", Tone::Warning),
        State::Unseen => ("?", "NOT SEEN BY AN OPERATOR", Tone::Warning),
    }
}

/// Returns the whole screen.
pub fn render(facts: &Facts, screen: Screen) -> String {
    let blocks = [
        header(facts, screen),
        members(facts, screen),
        timeline::render_aside(&facts.set_aside, facts.at, screen),
        conditions(facts, screen),
        identity::render_users(facts.users.as_deref().unwrap_or_default(), facts.at, screen),
        backups(facts, screen),
        next(facts, screen),
        unread(facts, screen),
    ];
    let blocks: Vec<String> = blocks.into_iter().filter(|block| !block.is_empty()).collect();
    blocks.join("\n")
}

/// One line with name and state, and below it the facts in a few words.
fn header(facts: &Facts, screen: Screen) -> String {
    let (sign, word, tone) = describe_state(facts.state);
    let paused = if facts.paused { ", PAUSED" } else { "" };
    let title = format!("{sign} {}/{}", facts.namespace, facts.name);
    let right = format!("{word}{paused}");
    let gap = screen.width.saturating_sub(title.chars().count() + right.chars().count()).max(2);
    let rule = screen.paint(Tone::Faint, &format!(" {} ", "─".repeat(gap - 2)));
    let name = format!("{}/{}", facts.namespace, facts.name);
    let mut out = format!(
        "{} {}{rule}{}\n",
        screen.paint(tone, sign),
        screen.paint(Tone::Strong, &name),
        screen.paint(tone, &right)
    );
    let stale = if facts.is_current || facts.state == State::Unseen {
        ""
    } else {
        "the operator has not seen the present spec"
    };
    let pieces = [
        serving(facts),
        versions(facts),
        updated(facts),
        facts.timeline.map(|timeline| format!("timeline {timeline}")).unwrap_or_default(),
        facts.formed.map(|at| format!("formed {}", relative(at, facts.at))).unwrap_or_default(),
        certificates(facts),
        facts.authentication.filter(|on| *on).map(|_| "authentication on".to_owned()).unwrap_or_default(),
        facts.endpoint.clone().unwrap_or_default(),
        stale.to_owned(),
    ];
    for line in flow(&pieces, DOT, screen.width - 2) {
        out.push_str(&format!("  {line}\n"));
    }
    out.push_str(&identity::render_cas(&facts.cas, facts.at, screen));
    for line in change(facts).iter().flat_map(|change| wrap(change, screen.width - 2)) {
        out.push_str(&format!("  {}\n", screen.paint(Tone::Moving, &line)));
    }
    out
}

fn serving(facts: &Facts) -> String {
    match facts.state {
        State::Parked => format!("{} members, none runs", facts.members.len()),
        State::Unseen => format!("{} members wanted", facts.wanted),
        _ => format!("{} of {} members serve", facts.serving, facts.wanted),
    }
}

fn versions(facts: &Facts) -> String {
    match &facts.running_version {
        Some(running) if *running != facts.version => format!("etcd {running} → {}", facts.version),
        _ => format!("etcd {}", facts.version),
    }
}

/// Returns the count of members with the present spec, while a change is under way.
fn updated(facts: &Facts) -> String {
    let count = i32::try_from(facts.members.len()).unwrap_or(i32::MAX);
    let rolls = facts.updated < count && matches!(facts.state, State::Progressing | State::Degraded);
    if rolls { format!("{} of {count} updated", facts.updated) } else { String::new() }
}

fn certificates(facts: &Facts) -> String {
    let Some(certificates) = &facts.certificates else {
        // Without a status nothing is known.
        return if facts.state == State::Unseen { String::new() } else { "plaintext".to_owned() };
    };
    let end = |at: Timestamp| format!("certificates until {} ({})", date(at), between(facts.at, at));
    certificates.earliest().map(end).unwrap_or_default()
}

/// Returns the return, the upgrade or the restore that is under way.
fn change(facts: &Facts) -> Option<String> {
    if let Some(line) = facts.in_place.as_ref().and_then(|found| timeline::describe(found, facts.at)) {
        return Some(line);
    }
    if let Some(upgrade) = &facts.upgrade {
        let way = if upgrade.reversible { "the way back is open" } else { "no way back" };
        return Some(format!("upgrade {} → {}: {way}", upgrade.from, upgrade.to));
    }
    let restore = facts.restore.as_ref().filter(|restore| !restore.phase.is_empty())?;
    let from = restore.from.as_deref().map(|from| format!(" of {from}")).unwrap_or_default();
    let taken = restore.taken_at.map(|at| format!(" of {} {}", date(at), clock(at))).unwrap_or_default();
    let revision = restore.revision.map(|revision| format!(", revision {}", grouped(revision))).unwrap_or_default();
    let log = restore.point.as_ref().map(|point| format!(" and its log up to {point}")).unwrap_or_default();
    let bytes = restore.db_bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
    if restore.phase == "Formed" {
        return Some(format!("restored from the snapshot{from}{taken}{log}{revision}{bytes}"));
    }
    Some(format!("restore {}: snapshot{from}{taken}{log}{revision}{bytes}", restore.phase.to_lowercase()))
}

fn members(facts: &Facts, screen: Screen) -> String {
    if facts.members.is_empty() {
        return String::new();
    }
    let columns = [
        ("", 0),
        ("MEMBER", 10),
        ("ROLE", 0),
        ("STATE", 0),
        ("SINCE", 0),
        ("ETCD", 0),
        ("CERTS", 0),
        ("RESTARTS", 0),
        ("NODE", 6),
        ("CLAIM", 8),
    ];
    let mut table = Table::new(&columns);
    // The heading has the end that all have in common.
    let mut ends: Vec<_> = facts.members.iter().filter_map(|member| member.certificates_until.map(date)).collect();
    ends.sort_unstable();
    ends.dedup();
    for member in &facts.members {
        let until = member.certificates_until.filter(|_| ends.len() > 1).map(date);
        let (state, tone) = member_state(member);
        let restarts = if member.restarts > 0 { member.restarts.to_string() } else { String::new() };
        table.push(vec![
            cell(Tone::Good, if member.leads { "★" } else { "" }),
            cell(Tone::Strong, &member.name),
            role(member).into(),
            cell(tone, state),
            member.since.map(|since| between(since, facts.at)).unwrap_or_default().into(),
            member.version.as_deref().unwrap_or_default().into(),
            until.unwrap_or_default().into(),
            cell(Tone::Warning, restarts),
            member.node.as_deref().unwrap_or_default().into(),
            cell(Tone::Faint, member.claim.as_deref().unwrap_or_default()),
        ]);
    }
    let mut out = screen.heading("MEMBERS");
    out.push_str(&table.lines(screen, 2));
    for (names, why) in silences(facts) {
        out.push_str(&message(&format!("{}: {why}", names.join(", ")), 4, SILENCE_LINES, screen));
    }
    out
}

/// Returns why members do not answer: each cause once, and none that a condition tells.
fn silences(facts: &Facts) -> Vec<(Vec<&str>, &str)> {
    let mut found: Vec<(Vec<&str>, &str)> = vec![];
    let silent = facts.members.iter().filter(|member| !member.healthy && member.state.as_deref() != Some("Parked"));
    for member in silent {
        let Some(why) = member.why.as_deref() else { continue };
        match found.iter_mut().find(|(_, known)| *known == why) {
            Some((names, _)) => names.push(&member.name),
            None => found.push((vec![&member.name], why)),
        }
    }
    let says = |name: &str, why: &str| {
        let sentence = why.split_once(": ").map_or(why, |(_, sentence)| sentence);
        facts.conditions.iter().any(|it| it.message.contains(sentence) && it.message.contains(name))
    };
    found.retain(|(names, why)| names.len() > 1 || !names.iter().any(|name| says(name, why)));
    found
}

fn role(member: &Member) -> &str {
    if member.leads { "leader" } else { member.role.as_deref().unwrap_or("-") }
}

/// Returns the state of a member in one word. A member that answers without a ready Pod serves no client.
fn member_state(member: &Member) -> (String, Tone) {
    if member.lost {
        return ("data lost".to_owned(), Tone::Bad);
    }
    let state = member.state.as_deref().unwrap_or(if member.healthy { "Serving" } else { "NotServing" });
    let tone = match (state, member.healthy, member.ready) {
        ("Serving", true, Some(false)) => return ("not ready".to_owned(), Tone::Warning),
        ("Serving", true, _) => Tone::Good,
        ("Joining" | "Leaving", ..) => Tone::Moving,
        ("Parked" | "Removed", ..) => Tone::Faint,
        _ => Tone::Bad,
    };
    (words(state), tone)
}

/// Returns a name in camel case as words: `NotServing` is `not serving`.
fn words(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.extend(c.to_lowercase());
    }
    out
}

fn conditions(facts: &Facts, screen: Screen) -> String {
    if facts.conditions.is_empty() {
        return String::new();
    }
    let mut out = screen.heading("CONDITIONS");
    for condition in &facts.conditions {
        out.push_str(&of_condition(facts, condition, screen));
    }
    out
}

fn of_condition(facts: &Facts, condition: &Condition, screen: Screen) -> String {
    let (sign, tone) = match condition.kind.as_str() {
        "Progressing" => ("◐", Tone::Moving),
        "AtRisk" | "BackupHealthy" => ("●", Tone::Warning),
        "Available" => ("✖", Tone::Bad),
        _ => ("▲", Tone::Bad),
    };
    let negation = if condition.status == "False" { "not " } else { "" };
    let since = screen.paint(Tone::Faint, &format!("for {}", between(condition.since, facts.at)));
    let title = format!("{negation}{}: {}", words(&condition.kind), condition.reason);
    let mut out = format!("  {} {}  {since}\n", screen.paint(tone, sign), screen.paint(tone, &title));
    out.push_str(&message(&condition.message, 4, MESSAGE_LINES, screen));
    out
}

fn backups(facts: &Facts, screen: Screen) -> String {
    let backups = &facts.backups;
    if matches!(facts.state, State::Unseen | State::Forming) && backups.last.is_none() {
        return String::new();
    }
    let mut rows = vec![];
    match &backups.last {
        Some(last) => rows.push(snapshot_row(facts, "last", last, proof_tone(last))),
        None if backups.complete.is_some() => {
            rows.push((vec![cell(Tone::Faint, "last"), cell(Tone::Bad, "none")], String::new()));
        }
        None => {}
    }
    for running in &backups.running {
        rows.push(snapshot_row(facts, &running.phase.to_lowercase(), running, Tone::Moving));
    }
    if let Some(failed) = &backups.failed {
        rows.push(snapshot_row(facts, "failed", failed, Tone::Bad));
    }
    for schedule in backups.schedules.iter().flatten() {
        rows.push(schedule_row(facts, schedule));
        rows.extend(schedule.drill.as_ref().map(|drill| drill_row(facts, schedule, drill)));
        rows.extend(schedule.log.as_ref().map(|log| log_row(schedule, log)));
        let merge = schedule.log.as_ref().and_then(|log| log.merge.as_ref());
        rows.extend(merge.map(|merge| merge_row(facts, schedule, merge)));
    }
    if backups.schedules.as_ref().is_some_and(Vec::is_empty) {
        rows.push((vec![cell(Tone::Faint, "schedule"), cell(Tone::Warning, "none")], String::new()));
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut out = screen.heading("BACKUPS") + &beside(&rows, screen);
    let failed = backups.failed.as_ref().and_then(|failed| failed.message.as_deref());
    let waits = backups.running.iter().find_map(|running| running.message.as_deref());
    for why in failed.into_iter().chain(waits) {
        out.push_str(&message(why, 4, MESSAGE_LINES, screen));
    }
    out
}

/// A row of a table, and details that stand beside or below the row.
type Row = (Vec<Cell>, String);

/// Returns rows with their details beside them, or below each where the screen is too narrow for one of them.
fn beside(rows: &[Row], screen: Screen) -> String {
    let mut table = Table::new(&[("", 0), ("", 16), ("", 0), ("", 0)]);
    for (row, _) in rows {
        table.push(row.clone());
    }
    let plain = table.lines(Screen { coloured: false, ..screen }, 2);
    let widths: Vec<usize> = plain.lines().map(|line| line.chars().count()).collect();
    let column = widths.iter().max().map_or(0, |widest| widest + 2);
    let fits = rows.iter().all(|(_, more)| column + more.chars().count() <= screen.width);
    let mut out = String::new();
    for ((line, width), (_, more)) in table.lines(screen, 2).lines().zip(widths).zip(rows) {
        out.push_str(line);
        if !more.is_empty() {
            let gap = if fits { " ".repeat(column - width) } else { format!("\n{}", " ".repeat(12)) };
            out.push_str(&format!("{gap}{}", screen.paint(Tone::Faint, &shorten(more, screen.width - 12))));
        }
        out.push('\n');
    }
    out
}

/// A snapshot of a proof below `HashKV` deserves a look.
fn proof_tone(snapshot: &Snapshot) -> Tone {
    if snapshot.level.as_deref() == Some("HashKV") { Tone::Good } else { Tone::Warning }
}

fn snapshot_row(facts: &Facts, title: &str, snapshot: &Snapshot, tone: Tone) -> Row {
    let age = snapshot.at.map(|at| relative(at, facts.at)).unwrap_or_default();
    let proof = match (&snapshot.level, snapshot.phase.as_str()) {
        (Some(level), _) => format!("verified {level}"),
        (None, "Complete") => "proof unknown".to_owned(),
        (None, _) => String::new(),
    };
    let more = [
        snapshot.revision.map(|revision| format!("revision {}", grouped(revision))).unwrap_or_default(),
        snapshot.db_bytes.map(size).unwrap_or_default(),
        snapshot.store.as_deref().map(|store| format!("store {store}")).unwrap_or_default(),
    ];
    let more: Vec<String> = more.into_iter().filter(|piece| !piece.is_empty()).collect();
    (vec![cell(Tone::Faint, title), cell(Tone::Strong, &snapshot.name), age.into(), cell(tone, proof)], more.join(DOT))
}

fn schedule_row(facts: &Facts, schedule: &Schedule) -> Row {
    let zone = if schedule.zone == "Etc/UTC" { String::new() } else { format!(" {}", schedule.zone) };
    let (next, tone) = match (schedule.suspended, schedule.next) {
        (true, _) => ("suspended".to_owned(), Tone::Warning),
        (false, Some(next)) => (format!("next {}", relative(next, facts.at)), Tone::Plain),
        (false, None) => ("no next run".to_owned(), Tone::Faint),
    };
    let (fresh, fresh_tone) = match schedule.fresh {
        Some(true) => ("fresh".to_owned(), Tone::Good),
        Some(false) => (schedule.reason.clone().unwrap_or_else(|| "not fresh".to_owned()), Tone::Bad),
        None => (schedule.reason.as_deref().map(words).unwrap_or_default(), Tone::Faint),
    };
    let more = [
        format!("{}{zone}", schedule.line),
        if schedule.failures > 0 { format!("{} failed", schedule.failures) } else { String::new() },
        schedule.kept.map(|kept| format!("{kept} kept")).unwrap_or_default(),
    ];
    let more: Vec<String> = more.into_iter().filter(|piece| !piece.is_empty()).collect();
    let row = vec![
        cell(Tone::Faint, "schedule"),
        cell(Tone::Strong, &schedule.name),
        cell(tone, next),
        cell(fresh_tone, fresh),
    ];
    (row, more.join(DOT))
}

fn drill_row(facts: &Facts, schedule: &Schedule, drill: &Drill) -> Row {
    let passed =
        drill.passed.map_or_else(|| "no drill yet".to_owned(), |at| format!("passed {}", relative(at, facts.at)));
    let (state, tone) = match drill.rehearsed {
        Some(true) => ("rehearsed".to_owned(), Tone::Good),
        Some(false) => (drill.reason.clone().unwrap_or_else(|| "not rehearsed".to_owned()), Tone::Bad),
        None => (drill.reason.as_deref().map(words).unwrap_or_default(), Tone::Faint),
    };
    let row = vec![cell(Tone::Faint, "drill"), cell(Tone::Strong, &schedule.name), passed.into(), cell(tone, state)];
    (row, drill.rto_seconds.map(|seconds| format!("RTO {seconds} s")).unwrap_or_default())
}

fn log_row(schedule: &Schedule, log: &Log) -> Row {
    let stored = log.revision.map_or_else(|| "nothing stored yet".to_owned(), |last| format!("revision {last}"));
    let (state, tone) = match log.current {
        Some(true) => ("current".to_owned(), Tone::Good),
        Some(false) => (log.reason.clone().unwrap_or_else(|| "not current".to_owned()), Tone::Bad),
        None => (log.reason.as_deref().map(words).unwrap_or_default(), Tone::Faint),
    };
    let row = vec![cell(Tone::Faint, "log"), cell(Tone::Strong, &schedule.name), stored.into(), cell(tone, state)];
    (row, log.rpo_seconds.map(|seconds| format!("RPO {seconds} s")).unwrap_or_default())
}

fn merge_row(facts: &Facts, schedule: &Schedule, merge: &Merge) -> Row {
    let last =
        merge.succeeded.map_or_else(|| "no merge yet".to_owned(), |at| format!("merged {}", relative(at, facts.at)));
    let (state, tone) = match merge.merged {
        Some(true) => ("merged".to_owned(), Tone::Good),
        Some(false) => (merge.reason.clone().unwrap_or_else(|| "not merged".to_owned()), Tone::Bad),
        None => (merge.reason.as_deref().map(words).unwrap_or_default(), Tone::Faint),
    };
    let row = vec![cell(Tone::Faint, "merge"), cell(Tone::Strong, &schedule.name), last.into(), cell(tone, state)];
    (row, if merge.failures > 0 { format!("{} failed", merge.failures) } else { String::new() })
}

fn next(facts: &Facts, screen: Screen) -> String {
    let mut out = screen.heading("WHAT TO DO");
    if facts.next.is_empty() {
        let words = if matches!(facts.state, State::Progressing | State::Forming) {
            "Nothing: wait until the change is over."
        } else if facts.unread.is_empty() {
            "Nothing."
        } else {
            "Nothing, as far as your rights show."
        };
        out.push_str(&format!("  {words}\n"));
    }
    for (at, step) in facts.next.iter().enumerate() {
        let why = message(&step.why, 5, MESSAGE_LINES, screen);
        out.push_str(&format!("  {}. {}", at + 1, why.trim_start()));
        // A command stays on one line, however long: a shell would run a broken line as two commands.
        if let Some(command) = &step.command {
            out.push_str(&format!("     {}\n", screen.paint(Tone::Moving, command)));
        }
        if let Some(page) = &step.page {
            out.push_str(&format!("     {}\n", screen.paint(Tone::Faint, page)));
        }
    }
    out
}

fn unread(facts: &Facts, screen: Screen) -> String {
    if facts.unread.is_empty() {
        return String::new();
    }
    let mut out = screen.heading("NOT READ");
    for Unread { kind, why } in &facts.unread {
        out.push_str(&message(&format!("{kind} are not shown: {why}"), 2, MESSAGE_LINES, screen));
    }
    out
}
