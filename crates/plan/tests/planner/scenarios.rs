//! Stories of clusters, by the real plans in a simulated world. Each story is a text file: a line that begins with `$` is an event,
//! and the lines below it are the consequences. `UPDATE_GOLDEN=1` writes the consequences.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use holdfast_api::agent::PodMetadata;
use holdfast_api::auth::Auth;
use holdfast_api::cluster::{Medium, Options, Retention};
use holdfast_api::final_snapshot::OnFailure;
use holdfast_api::repair::{Repair, RepairMode};
use holdfast_api::snapshot::Phase;
use holdfast_api::template::Rollback;
use holdfast_api::timeline::ReturnPhase;
use holdfast_api::transport::Transport;
use holdfast_contract::ExitClass;
use holdfast_plan::AlarmKind;

use crate::world::World;
use crate::world::volumes::Growth;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Ten minutes: more than any story needs.
const PATIENCE: u64 = 6000;

/// Requests of this much CPU.
fn cpu(amount: &str) -> ResourceRequirements {
    let requests = [("cpu".to_owned(), Quantity(amount.to_owned()))].into();
    ResourceRequirements { requests: Some(requests), ..ResourceRequirements::default() }
}

fn tell(world: &mut World, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["restore", "nothing"] => world.restore_from(None),
        ["restore", "snapshot", name] => world.restore_of_snapshot(name),
        ["restore", "latest", bucket] => world.restore_latest(bucket),
        ["restore", "at", time] => world.restore_at(time),
        ["restore", key] => world.restore_from(Some(key)),
        ["restore", "store", store, key] => world.restore_from_store(store, key),
        ["store", name, bucket, "with", secret] => world.store(name, bucket, secret),
        ["secret", name] => world.secret(name),
        ["mark", url, "none"] => drop(world.marks.remove(*url)),
        ["mark", url, mark] => drop(world.marks.insert((*url).to_owned(), (*mark).to_owned())),
        ["accept", store, mark] => world.accept(store, mark),
        ["bucket", "fine"] => world.store_trouble = None,
        ["bucket", class] => {
            let known = ExitClass::ALL.into_iter().find(|c| c.as_str() == *class);
            world.store_trouble = Some(known.unwrap_or_else(|| panic!("{class} is no class")));
        }
        ["until", "store", name, reason] => {
            let told = |w: &World| {
                let status = w.stores.get(*name).and_then(|s| s.status.as_ref());
                status.is_some_and(|s| s.conditions.iter().any(|c| c.reason == *reason))
            };
            assert!(world.run_until(6 * PATIENCE, told), "never {reason}:\n{}", world.log.join("\n"));
        }
        ["broken", key] => {
            world.broken.insert((*key).to_owned());
        }
        ["return", "to", name] => world.return_to(name, 2, true),
        ["return", "unsaved", "to", name] => world.return_to(name, 2, false),
        ["return", "from", n] => world.return_from(&world.nth(n.parse().unwrap()), false),
        ["return", "from", n, "with", "loss"] => world.return_from(&world.nth(n.parse().unwrap()), true),
        ["return", "again", "to", name] => world.return_to(name, 3, true),
        ["return", "forgotten"] => world.forget_return(),
        ["until", "return", phase] => {
            let phases =
                [ReturnPhase::Preparing, ReturnPhase::Saving, ReturnPhase::SettingAside, ReturnPhase::Starting];
            let phases =
                phases.into_iter().chain([ReturnPhase::TurningBack, ReturnPhase::Complete, ReturnPhase::Failed]);
            let phase =
                phases.into_iter().chain([ReturnPhase::Skipped]).find(|it| format!("{it:?}") == *phase).unwrap();
            let told = |w: &World| w.has_returned(phase);
            assert!(world.run_until(6 * PATIENCE, told), "never {phase:?}:\n{}", world.log.join("\n"));
        }
        ["snapshot", name, "pending"] => world.snapshot(name, Phase::Pending, ""),
        ["snapshot", name, "complete", key] => world.snapshot(name, Phase::Complete, key),
        ["secure"] => world.secure(),
        ["own", "certificates"] => world.own(),
        ["cert-manager"] => world.managed(),
        ["cert-manager", "installed"] => world.install_cert_manager(),
        ["cert-manager", "exchanges", ca] => world.exchange_issuer(ca),
        ["cert-manager", "renews", "one"] => world.issue_one_again(),
        ["grace", seconds] => world.grace(seconds.parse().unwrap()),
        ["until", "exchanged"] => {
            assert!(world.run_until(PATIENCE, World::is_exchanged), "never exchanged:\n{}", world.log.join("\n"));
        }
        ["rotate", request] => world.rotate(request),
        ["source", secret, state] => world.source(secret, state),
        ["age", days] => world.age(days.parse().unwrap()),
        ["delete", "secret", which] => world.delete_secret(which),
        ["snapshot", "count", n] => world.edit(|s| {
            s.options = Some(Options { snapshot_count: Some(n.parse().unwrap()), ..Options::default() });
        }),
        ["cpu", amount] => world.edit(|s| s.resources = Some(cpu(amount))),
        ["admission", "refuses", "cpu", amount] => world.forbidden_cpu = Some((*amount).to_owned()),
        ["admission", "refuses", "nothing"] => world.forbidden_cpu = None,
        ["resizing", "refused"] => world.refuses_resize = true,
        ["object", "label", "none"] => world.edit(|s| s.additional_metadata = None),
        ["object", "label", name, value] => world.edit(|s| {
            let labels = [((*name).to_owned(), (*value).to_owned())].into();
            s.additional_metadata = Some(PodMetadata { labels, ..PodMetadata::default() });
        }),
        ["pod", "label", "none"] => world.edit(|s| s.pod_metadata = None),
        ["pod", "label", name, value] => world.edit(|s| {
            let labels = [((*name).to_owned(), (*value).to_owned())].into();
            s.pod_metadata = Some(PodMetadata { labels, ..PodMetadata::default() });
        }),
        ["restart", "asked", value] => world.ask_to_restart(value),
        ["back", "up", name] => world.back_up(name),
        ["rehearsals", "fail"] => world.unfit = true,
        ["rehearsals", "pass"] => {
            world.unfit = false;
            world.delete_rehearsals();
        }
        ["defragmentation", "pause", seconds] => world.edit(|s| {
            s.defragmentation.get_or_insert_default().pause_seconds = Some(seconds.parse().unwrap());
        }),
        ["quota", "may", "grow", "to", size] => world.edit(|s| {
            s.defragmentation.get_or_insert_default().grow_quota_to = Some(Quantity((*size).to_owned()));
        }),
        ["nospace", n] => world.raise(n.parse().unwrap(), AlarmKind::NoSpace),
        ["file", n, mib, used] => {
            world.resize_file(n.parse().unwrap(), mib.parse().unwrap(), used.parse().unwrap());
        }
        ["size", size] => world.edit(|s| s.storage.size = Some(Quantity((*size).to_owned()))),
        ["quota", mib] => world.edit(|s| {
            let bytes = mib.parse::<i64>().unwrap() << 20;
            s.options = Some(Options { quota_backend_bytes: Some(bytes), ..Options::default() });
        }),
        ["volumes", "grow", "online"] => world.growth = Growth::Online,
        ["volumes", "grow", "at", "mount"] => world.growth = Growth::AtMount,
        ["volumes", "do", "not", "grow"] => world.growth = Growth::Forbidden,
        ["volumes", "are", "infeasible"] => world.growth = Growth::Infeasible,
        ["quotas"] => world.show_quotas(),
        ["authentication", "wanted", word] => world.edit(|s| {
            s.auth = match *word {
                "on" => Some(Auth { enabled: true }),
                "off" => Some(Auth { enabled: false }),
                _ => None,
            };
        }),
        ["plaintext", "only"] => world.transport(Transport::Plaintext),
        ["plaintext", "allowed"] => world.transport(Transport::ClientsPlaintext),
        ["plaintext", "refused"] => world.transport(Transport::Tls),
        ["authentication", "by", "hand", word] => world.auth = *word == "on",
        ["members", "differ"] => world.differ = true,
        ["members", "agree"] => world.differ = false,
        ["version", version] => world.edit(|s| (*version).clone_into(&mut s.version)),
        ["rollback", "manual"] => world.edit(|s| s.rollback = Some(Rollback::Manual)),
        ["replicas", n] => world.edit(|s| s.replicas = n.parse().unwrap()),
        ["until", "degraded", reason] => {
            let degraded = |w: &World| {
                let status = w.cluster.as_ref().and_then(|c| c.status.as_ref());
                let is = |c: &Condition| c.type_ == "Degraded" && c.status == "True" && c.reason == *reason;
                status.is_some_and(|s| s.conditions.iter().any(is))
            };
            assert!(world.run_until(PATIENCE, degraded), "never {reason}:\n{}", world.log.join("\n"));
        }
        ["until", "complete"] => {
            let done = world.run_until(PATIENCE, World::complete);
            let status = || world.cluster.as_ref().and_then(|c| c.status.clone());
            assert!(done, "never complete:\n{}\n{:#?}", world.log.join("\n"), status());
        }
        ["until", "stuck", reason] => {
            let stuck = |w: &World| {
                let status = w.cluster.as_ref().and_then(|c| c.status.as_ref());
                status.is_some_and(|s| s.conditions.iter().any(|c| c.type_ == "Ready" && c.reason == *reason))
            };
            assert!(world.run_until(PATIENCE, stuck), "never {reason}:\n{}", world.log.join("\n"));
        }
        ["until", "empty"] => {
            let empty = |w: &World| w.members.is_empty() && w.pods.is_empty();
            assert!(world.run_until(PATIENCE, empty), "something stays:\n{}", world.log.join("\n"));
            let claims = world.volumes.len();
            world.say(format!("{claims} claims are left"));
        }
        ["ticks", n] => {
            world.run_until(n.parse().unwrap(), |_| false);
        }
        ["settled"] => {
            // The operator counts a start after all else is done.
            world.run_until(10, |_| false);
            // I17: the operator writes nothing while nothing happens.
            let before = world.writes;
            world.run_until(600, |_| false);
            assert_eq!(world.writes, before, "written while nothing happened:\n{}", world.log.join("\n"));
            world.say("one minute without a write");
        }
        ["delete", "pods", rest @ ..] => {
            let names: Vec<String> = world.pods.keys().cloned().collect();
            let count = rest.first().map_or(names.len(), |n| n.parse().unwrap());
            for name in names.iter().take(count) {
                world.delete_pod(name);
            }
        }
        ["evict", "pods", n] => {
            let names: Vec<String> = world.pods.keys().take(n.parse().unwrap()).cloned().collect();
            for name in names {
                world.evict_pod(&name);
            }
        }
        ["retain"] => world.edit(|s| s.storage.retention = Retention::Retain),
        ["delete", "cluster"] => world.delete_cluster(),
        ["final", "snapshot", "or", "hold"] => world.save_at_the_end(OnFailure::Hold),
        ["final", "snapshot", "or", "proceed"] => world.save_at_the_end(OnFailure::Proceed),
        ["skip", "final", "snapshot"] => world.skip_final_snapshot(),
        ["delete", "final", "snapshot"] => world.delete_final_snapshot(),
        ["delete", "member"] => {
            let name = world.members.keys().next().unwrap().clone();
            world.delete_member(&name);
        }
        ["schedule", "every", "minute", "to", store] => world.schedule("* * * * *", store),
        ["schedule", "every", "hour", "to", store] => world.schedule("7 * * * *", store),
        ["retention", "last", n] => world.keep_last(n.parse().unwrap()),
        ["pruning", "suspended"] => world.suspend_pruning(true),
        ["pruning", "resumed"] => world.suspend_pruning(false),
        ["keys", n] => world.keys = n.parse().unwrap(),
        ["anomaly", "accepted"] => world.accept_anomaly(),
        ["hold", "oldest"] => world.hold_oldest(true),
        ["release", "oldest"] => world.hold_oldest(false),
        ["elsewhere", "restores", "oldest"] => world.restore_oldest_elsewhere(true),
        ["elsewhere", "has", "restored"] => world.restore_oldest_elsewhere(false),
        ["lock", "oldest"] => world.lock_oldest(true),
        ["unlock", "oldest"] => world.lock_oldest(false),
        ["removals", "fine"] => world.prune_trouble = None,
        ["removals", class] => {
            let known = ExitClass::ALL.into_iter().find(|c| c.as_str() == *class);
            world.prune_trouble = Some(known.unwrap_or_else(|| panic!("{class} is no class")));
        }
        ["drills", "every", "night"] => world.drill_every_night(),
        ["drills", "no", "more"] => world.drill_no_more(),
        ["drills", "fine"] => world.drill_trouble = None,
        ["drills", class] => {
            let known = ExitClass::ALL.into_iter().find(|c| c.as_str() == *class);
            world.drill_trouble = Some(known.unwrap_or_else(|| panic!("{class} is no class")));
        }
        ["drill", name] => world.drill_by_hand(name),
        ["hours", n] => world.hours(n.parse().unwrap()),
        ["retained"] => world.show_retention(),
        ["schedule", "suspended"] => world.suspend(true),
        ["schedule", "resumed"] => world.suspend(false),
        ["schedule", "edited", "in", "the", "cronjob"] => world.edit_cron_job(),
        ["lose", "schedule", "status"] => world.lose_schedule_status(false),
        ["lose", "schedule", "status", "and", "records"] => world.lose_schedule_status(true),
        ["operator", "away"] => world.away = true,
        ["operator", "back"] => {
            world.away = false;
            world.wake_all();
        }
        ["run", name] => world.run_by_hand(name),
        ["minutes", n] => {
            world.run_until(600 * n.parse::<u64>().unwrap(), |_| false);
        }
        ["shown"] => world.show_schedule(),
        ["recorded", "once", "each"] => {
            let mut recorded: Vec<String> = world.complete_records();
            let mut stored: Vec<String> = world.stored.iter().map(|one| one.uid.clone()).collect();
            recorded.sort();
            stored.sort();
            assert_eq!(recorded, stored, "{}", world.log.join("\n"));
        }
        ["freeze", n] => world.freeze(n.parse().unwrap()),
        ["thaw"] => world.thaw(),
        ["lead", n] => world.lead(n.parse().unwrap()),
        ["lose", "claim", n] => world.lose_claim(n.parse().unwrap()),
        ["delete", "member", n] => {
            let name = world.members.keys().nth(n.parse().unwrap()).unwrap().clone();
            world.delete_member(&name);
        }
        ["wipe", n] => world.wipe(n.parse().unwrap()),
        ["corrupt", n] => world.corrupt(n.parse().unwrap()),
        ["memory", size] => world.edit(|s| {
            (s.storage.medium, s.storage.size) = (Medium::Memory, Some(Quantity((*size).to_owned())));
        }),
        ["diverge", n] => world.diverge(n.parse().unwrap()),
        ["orphan", n] => world.orphan(n.parse().unwrap()),
        ["restart", "node", n] => world.restart_node(n.parse().unwrap()),
        ["delete", "pod", n] => {
            let name = world.pods.keys().nth(n.parse().unwrap()).unwrap().clone();
            world.delete_pod(&name);
        }
        ["evict", "pod", n] => {
            let name = world.pods.keys().nth(n.parse().unwrap()).unwrap().clone();
            world.evict_pod(&name);
        }
        ["unlist", n] => world.unlist(n.parse().unwrap()),
        ["ask", "to", "lead", n] => {
            let name = n.parse().ok().and_then(|n| world.members.keys().nth(n).cloned());
            world.ask_to_lead(&name.unwrap_or_else(|| (*n).to_owned()));
        }
        ["replace", n] => world.ask_to_replace(n.parse().unwrap()),
        ["crash", n] => {
            let name = world.members.keys().nth(n.parse().unwrap()).unwrap().clone();
            world.crash(&name);
        }
        ["keep", "claims", seconds] => world.edit(|s| {
            s.repair = Some(Repair { keep_claim_seconds: Some(seconds.parse().unwrap()), ..Repair::default() });
        }),
        ["snapshots", "are", "long"] => world.long_snapshots = true,
        ["pods", "never", "start"] => world.held = true,
        ["pods", "start"] => world.held = false,
        ["repair", "manual"] => world.edit(|s| {
            s.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
        }),
        ["silence", n] => world.silent_until = world.now + n.parse::<u64>().unwrap(),
        ["lose", "status"] => world.lose_status(),
        ["pause"] => world.edit(|s| s.paused = true),
        ["resume"] => world.edit(|s| s.paused = false),
        ["foreign", "service", name] => world.foreign_service(name),
        ["remove", "service", name] => world.remove_service(name),
        ["earlier", "volumes", states @ ..] => {
            let states: Vec<_> = states.iter().map(|s| s.split_once('=').unwrap_or((*s, ""))).collect();
            let states: Vec<_> = states.into_iter().map(|(claim, state)| (claim, state == "going")).collect();
            world.volumes_of_an_earlier_cluster(&states);
        }
        ["no", "membership", "calls"] => assert_eq!(world.calls_to_membership, 0, "etcd's membership was changed"),
        ["forget", "membership", "calls"] => world.calls_to_membership = 0,
        _ => panic!("unknown command: {command}"),
    }
}

/// Plays the story from its commands alone, and returns it with its transcript.
fn play(story: &str) -> String {
    let mut out = String::new();
    let mut world: Option<World> = None;
    for line in story.lines().filter(|l| l.starts_with('$') || l.starts_with('#')) {
        let Some(command) = line.strip_prefix("$ ") else {
            writeln!(out, "{line}").unwrap();
            continue;
        };
        writeln!(out, "{line}").unwrap();
        match (command.split_whitespace().collect::<Vec<_>>().as_slice(), &mut world) {
            (["cluster", n, version], slot @ None) => *slot = Some(World::new(n.parse().unwrap(), version)),
            (_, Some(world)) => tell(world, command),
            (_, None) => panic!("a story begins with: $ cluster N VERSION"),
        }
        for said in world.as_mut().map(|w| std::mem::take(&mut w.log)).unwrap_or_default() {
            writeln!(out, "{said}").unwrap();
        }
    }
    out
}

#[test]
fn the_stories_are_told_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut stories: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    stories.sort();
    assert!(stories.len() >= 9, "stories are missing");
    let mut wrong = vec![];
    for path in stories {
        let written = fs::read_to_string(&path).unwrap();
        let told = play(&written);
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &told).unwrap();
        } else if told != written {
            let at = told.lines().zip(written.lines()).position(|(a, b)| a != b).unwrap_or_default();
            wrong.push(format!(
                "{} differs at line {}:\n  written: {}\n  told:    {}",
                path.display(),
                at + 1,
                written.lines().nth(at).unwrap_or("(end)"),
                told.lines().nth(at).unwrap_or("(end)")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}\nmake golden", wrong.join("\n"));
}
