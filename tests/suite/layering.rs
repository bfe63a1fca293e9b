//! The dependency rule and the rules for files, checked on the source text.
//!
//! Cargo holds the order of the crates, and [`CRATES`] the list. The rest is checked here: effects in pure crates, the layers
//! inside the agent, circles between files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_api::condition::Reason;

use crate::imports::{Imports, Module};

/// Longest file.
const MAX_LINES: usize = 600;

/// Words that no file below this folder (`*`: of any crate of the plan) may name, with the reason.
struct Rule {
    below: &'static str,
    never: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        below: "crates/plan/*/src/",
        never: &["kube::Client", "kube::Api", "kube::api", "kube::client", "kube::runtime", "kube::Config"],
        why: "a plan gets plain values; nobody in it can talk to Kubernetes",
    },
    Rule {
        below: "crates/plan/*/src/",
        never: &["async fn", "std::thread", "std::net", "std::fs", "std::process"],
        why: "a plan does nothing",
    },
    Rule {
        below: "crates/plan/*/src/",
        never: &["SystemTime", "Instant::now", "Timestamp::now", "Zoned::now", "std::env", "rand::"],
        why: "time, luck and environment are arguments",
    },
    Rule {
        below: "crates/api/src/",
        never: &["async fn", "std::env", "std::fs"],
        why: "the wire contract does nothing",
    },
    Rule {
        below: "crates/contract/src/",
        never: &["async fn", "std::env", "std::thread", "std::process"],
        why: "requests and reports are values",
    },
    Rule {
        below: "crates/layout/src/",
        never: &["async fn", "std::env", "std::thread", "std::process"],
        why: "keys, manifests and verdicts are values",
    },
    Rule {
        below: "crates/segment/src/",
        never: &["async fn", "std::env", "std::thread", "std::process", "std::fs"],
        why: "the bytes come from the caller",
    },
    Rule {
        below: "crates/bbolt/src/",
        never: &["async fn", "std::env", "std::thread", "std::process"],
        why: "the bytes come from the caller",
    },
    Rule {
        below: "crates/manifests/src/",
        never: &[
            "holdfast_operator",
            "holdfast_kube",
            "holdfast_io",
            "holdfast_store",
            "snapshot_agent",
            "crate::agent",
            "tokio",
            "std::env",
            "std::fs",
            "kube::Client",
            "kube::Api",
        ],
        why: "what is printed is made of values",
    },
    Rule {
        below: "crates/operator/src/",
        never: &["std::env"],
        why: "the operator gets a Config, and touches no data",
    },
];

/// The workspace crates that each crate may depend on: from the bottom, and only below its own place.
const CRATES: [(&str, &[&str]); 27] = [
    ("crates/contract", &[]),
    ("crates/layout", &["holdfast-contract"]),
    ("crates/segment", &[]),
    ("crates/bbolt", &["holdfast-segment"]),
    ("crates/io", &["holdfast-contract"]),
    ("crates/store", &["holdfast-contract", "holdfast-io", "holdfast-layout"]),
    ("crates/api", &["holdfast-contract"]),
    ("crates/plan/base", &["holdfast-api", "holdfast-contract", "holdfast-layout"]),
    ("crates/plan/cluster", &["holdfast-api", "holdfast-base", "holdfast-contract", "holdfast-layout"]),
    ("crates/plan/backup", &["holdfast-api", "holdfast-base", "holdfast-contract", "holdfast-layout"]),
    ("crates/plan/users", &["holdfast-api", "holdfast-base"]),
    // On the vocabulary alone: the rules share no decision with the plans that they check.
    ("crates/plan/safety", &["holdfast-api", "holdfast-base", "holdfast-contract", "holdfast-layout"]),
    ("crates/plan/fixtures", &["holdfast-api", "holdfast-backup", "holdfast-base", "holdfast-cluster"]),
    ("crates/plan", &["holdfast-backup", "holdfast-base", "holdfast-cluster", "holdfast-safety", "holdfast-users"]),
    ("crates/kube", &["holdfast-api", "holdfast-contract", "holdfast-io"]),
    ("crates/operator", &["holdfast-api", "holdfast-contract", "holdfast-io", "holdfast-kube", "holdfast-plan"]),
    ("crates/manifests", &["holdfast-api", "holdfast-base", "holdfast-contract"]),
    (
        "crates/plugin",
        &[
            "holdfast-api",
            "holdfast-base",
            "holdfast-cluster",
            "holdfast-contract",
            "holdfast-io",
            "holdfast-kube",
            "holdfast-manifests",
        ],
    ),
    // What each start of etcd trusts: no store, no database, no etcd.
    ("snapshot-agent/gate", &["holdfast-contract", "holdfast-io"]),
    ("snapshot-agent/format", &["holdfast-bbolt", "holdfast-contract", "holdfast-io"]),
    (
        "snapshot-agent/catalog",
        &[
            "holdfast-bbolt",
            "holdfast-contract",
            "holdfast-format",
            "holdfast-io",
            "holdfast-layout",
            "holdfast-segment",
            "holdfast-store",
        ],
    ),
    (
        "snapshot-agent/etcd",
        &[
            "holdfast-bbolt",
            "holdfast-contract",
            "holdfast-format",
            "holdfast-gate",
            "holdfast-io",
            "holdfast-layout",
            "holdfast-segment",
        ],
    ),
    ("snapshot-agent/verbs-common", &["holdfast-bbolt", "holdfast-contract", "holdfast-io"]),
    (
        "snapshot-agent/verbs-store",
        &[
            "holdfast-catalog",
            "holdfast-contract",
            "holdfast-io",
            "holdfast-layout",
            "holdfast-store",
            "holdfast-verbs-common",
        ],
    ),
    (
        "snapshot-agent/verbs-live",
        &[
            "holdfast-bbolt",
            "holdfast-catalog",
            "holdfast-contract",
            "holdfast-etcd",
            "holdfast-format",
            "holdfast-io",
            "holdfast-layout",
            "holdfast-segment",
            "holdfast-store",
            "holdfast-verbs-common",
        ],
    ),
    (
        "snapshot-agent/rebuild",
        &[
            "holdfast-bbolt",
            "holdfast-catalog",
            "holdfast-contract",
            "holdfast-etcd",
            "holdfast-format",
            "holdfast-gate",
            "holdfast-io",
            "holdfast-layout",
            "holdfast-segment",
            "holdfast-store",
            "holdfast-verbs-common",
        ],
    ),
    (
        "snapshot-agent",
        &[
            "holdfast-catalog",
            "holdfast-etcd",
            "holdfast-format",
            "holdfast-gate",
            "holdfast-rebuild",
            "holdfast-verbs-live",
            "holdfast-verbs-store",
        ],
    ),
];

/// Crates that talk to servers, keep time or throw dice.
const EFFECTS: [&str; 6] = ["tokio", "futures", "etcd-client", "object_store", "reqwest", "rand"];
/// The crates that hold values and decisions.
const WITHOUT_EFFECTS: [&str; 10] = [
    "crates/contract",
    "crates/layout",
    "crates/segment",
    "crates/bbolt",
    "crates/api",
    "crates/plan/base",
    "crates/plan/cluster",
    "crates/plan/backup",
    "crates/plan/users",
    "crates/plan/safety",
];

/// The crates below the agent, which knows no client of Kubernetes.
const WITHOUT_KUBERNETES: [&str; 5] =
    ["crates/contract", "crates/segment", "crates/bbolt", "crates/io", "crates/store"];

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Every Rust file: its path below the root, and its text.
pub fn files() -> Vec<(String, String)> {
    let mut paths = vec![];
    for folder in ["src", "crates", "tests"] {
        collect(&root().join(folder), &mut paths);
    }
    for (place, _) in CRATES.iter().filter(|(place, _)| place.starts_with("snapshot-agent")) {
        collect(&root().join(place).join("src"), &mut paths);
    }
    let below = |path: &Path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (below(path), fs::read_to_string(path).unwrap())).collect()
}

/// The part of a line that the compiler reads: without comments. Strings stay; none contains one of the words.
fn code(line: &str) -> &str {
    let line = line.trim_start();
    if line.starts_with("//") { "" } else { line.split(" // ").next().unwrap_or_default() }
}

/// Whether `text` holds `word` as a path of its own: `tokio` is not found in `tokio_like` or `my_tokio`.
fn names(text: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(joins) && (word.ends_with(':') || !after.is_some_and(joins))
    })
}

/// Whether a file is below a folder, in which `*` stands for one name.
fn is_below(path: &str, folder: &str) -> bool {
    match folder.split_once('*') {
        Some((above, inside)) => path
            .strip_prefix(above)
            .and_then(|rest| rest.split_once('/'))
            .is_some_and(|(_, rest)| rest.starts_with(inside.trim_start_matches('/'))),
        None => path.starts_with(folder),
    }
}

/// Breaches of the dependency rule in a file.
fn breaches(path: &str, text: &str) -> Vec<String> {
    let mut out = vec![];
    for (number, line) in text.lines().enumerate() {
        let line = code(line);
        for rule in RULES.iter().filter(|r| is_below(path, r.below)) {
            for word in rule.never.iter().filter(|word| names(line, word)) {
                out.push(format!("{path}:{}: {word}: {}", number + 1, rule.why));
            }
        }
    }
    out
}

#[test]
fn nobody_looks_up_the_stairs() {
    let found: Vec<String> = files().iter().flat_map(|(path, text)| breaches(path, text)).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn each_step_up_is_noticed() {
    for rule in RULES {
        assert!(files().iter().any(|(path, _)| is_below(path, rule.below)), "{} is empty", rule.below);
        for word in rule.never {
            let line = format!("    let x = {word}{}(1);", if word.ends_with(':') { "x" } else { "" });
            assert_eq!(
                breaches(&format!("{}x.rs", rule.below.replace('*', "base")), &line).len(),
                1,
                "{}: {word}",
                rule.below
            );
        }
    }
    for fine in
        ["// std::env is not for plans", "//! no std::env", "let x = 1; // std::env is an argument", "mystd::env"]
    {
        assert_eq!(breaches("crates/plan/base/src/x.rs", fine), Vec::<String>::new());
    }
}

/// The dependencies of a crate's programs, from its manifest.
fn dependencies(folder: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let (_, rest) = text.split_once("\n[dependencies]\n").unwrap();
    let rows = rest.split("\n[").next().unwrap().lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| Some(row.split_once(['.', ' '])?.0.to_owned())).collect()
}

#[test]
fn crates_depend_on_crates_below() {
    let names = |folder: &'static str| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().display()))
    };
    let folders = names("crates").chain(names("crates/plan")).chain(names("snapshot-agent"));
    let mut places: Vec<String> = folders.filter(|place| root().join(place).join("Cargo.toml").exists()).collect();
    places.push("snapshot-agent".to_owned());
    places.sort();
    let mut named: Vec<&str> = CRATES.iter().map(|(place, _)| *place).collect();
    named.sort_unstable();
    assert_eq!(places, named);
    for (place, below) in CRATES {
        let needs = dependencies(place);
        let ours = needs.iter().map(String::as_str).filter(|n| n.starts_with("holdfast-") || *n == "snapshot-agent");
        assert_eq!(ours.collect::<BTreeSet<_>>(), below.iter().copied().collect(), "{place}");
    }
    for place in WITHOUT_EFFECTS {
        let needs = dependencies(place);
        assert!(needs.len() > 1 && EFFECTS.iter().all(|effect| !needs.contains(*effect)), "{place}: {needs:?}");
    }
    for (place, _) in
        CRATES.iter().filter(|(place, _)| place.starts_with("snapshot-agent") || WITHOUT_KUBERNETES.contains(place))
    {
        let needs = dependencies(place);
        assert!(!needs.contains("kube") && !needs.contains("k8s-openapi"), "{place} has no client of Kubernetes");
    }
}

/// The crates that test programs optimise: scans of pages and segments.
const OPTIMISED: [&str; 2] = ["holdfast-bbolt", "holdfast-segment"];

/// Without its rows a crate is compiled for minutes where seconds do, and carries debug information that the image drops.
#[test]
fn every_crate_has_its_profiles() {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let has = |profile: &str, name: &str| text.contains(&format!("\n[profile.{profile}.package.{name}]\n"));
    let mut found = vec![];
    for (place, _) in CRATES {
        let manifest = fs::read_to_string(root().join(place).join("Cargo.toml")).unwrap();
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"');
        let is_for_tests = place.ends_with("/fixtures");
        if !is_for_tests && !has("release", name) {
            found.push(format!("[profile.release.package.{name}]"));
        }
        if !OPTIMISED.contains(&name) && !has("bench", name) {
            found.push(format!("[profile.bench.package.{name}]"));
        }
    }
    assert!(found.is_empty(), "Cargo.toml lacks {}", found.join(", "));
}

/// The crates whose modules are verbs.
const VERBS: [&str; 3] = ["snapshot-agent/verbs-store", "snapshot-agent/verbs-live", "snapshot-agent/rebuild"];

#[test]
fn no_verb_imports_another_verb() {
    let mut found = vec![];
    let mut verbs = BTreeSet::new();
    for place in VERBS {
        for (module, imported) in Imports::of(&root().join(place).join("src")).0 {
            verbs.extend(module.first().cloned());
            // `sample` is for tests alone.
            let is_another = |other: &&Module| other[0] != module[0] && other[0] != "sample";
            let others = imported.iter().filter(|other| !module.is_empty() && is_another(other));
            found.extend(others.map(|other| format!("{place}: {} imports {}", module.join("::"), other.join("::"))));
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(verbs.contains("save") && verbs.contains("restore") && verbs.contains("prune"), "{verbs:?}");
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut found = vec![];
    let crates = CRATES.iter().map(|(place, _)| format!("{place}/src"));
    for folder in crates.chain(["src".to_owned()]) {
        for circle in Imports::of(&root().join(&folder)).circles() {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            found.push(format!("{folder}: {}", names.join(", ")));
        }
    }
    assert!(found.is_empty(), "move what they share into a file of its own:\n{}\n", found.join("\n"));
}

/// A container's request is data: `objects/request.rs` alone looks at the words of a command.
#[test]
fn no_decision_reads_arguments() {
    let mut found = vec![];
    for (path, text) in files() {
        let decides = is_below(&path, "crates/plan/*/src/") || path.starts_with("crates/operator/src/");
        if !decides || path.ends_with("/objects/request.rs") || path.contains("/tests/") || path.ends_with("/tests.rs")
        {
            continue;
        }
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let reads = |line: &&str| [".args", ".command.as_ref"].iter().any(|word| code(line).contains(word));
        found.extend(product.lines().filter(reads).map(|line| format!("{path}: {line}")));
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn a_file_is_a_room() {
    let mut found = vec![];
    for (path, text) in files() {
        let lines = text.lines().count();
        // Tables and simulated worlds may be long.
        let tests = path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("tests.rs");
        let limit = if tests { 2 * MAX_LINES } else { MAX_LINES };
        if lines > limit {
            found.push(format!("{path} has {lines} lines, more than {limit}: split it"));
        }
        if !text.starts_with("//!") {
            found.push(format!("{path} does not begin by saying what it decides (`//!`)"));
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Every rule that the code names by its number is in `docs/invariants.md`.
#[test]
fn every_invariant_is_told() {
    let page = fs::read_to_string(root().join("docs/invariants.md")).unwrap();
    let told: BTreeSet<u8> =
        page.lines().filter_map(|line| line.strip_prefix("| I")?.split(' ').next()?.parse().ok()).collect();
    assert_eq!(told, (1..=32).collect());
    let number = |word: &str| word.strip_prefix('I')?.parse::<u8>().ok();
    let named: BTreeSet<u8> = files()
        .iter()
        .flat_map(|(_, text)| text.split(|c: char| !c.is_alphanumeric()).filter_map(number).collect::<Vec<_>>())
        .collect();
    assert!(named.is_subset(&told), "{:?}", named.difference(&told));
}

/// The text of a file, or of all files below a folder.
fn text_below(path: &Path) -> String {
    if !path.is_dir() {
        return fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    }
    let entries = fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    entries.map(|entry| text_below(&entry.unwrap().path())).collect()
}

/// The places that a text quotes: files, folders, and the manifest.
fn places(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|place| place.contains('/') || *place == "Cargo.toml").collect()
}

/// The invariant of a row of the table, and its places.
fn row(line: &str) -> Option<(Vec<&str>, Vec<&str>)> {
    let number = line.strip_prefix("| ")?.split(' ').next().filter(|word| word.starts_with('I'))?;
    let (_, kept_in) = line.trim_end_matches('|').rsplit_once(" | ")?;
    Some((vec![number], places(kept_in)))
}

/// The invariants of a paragraph that begins with `**I2, I9: `, and its places.
fn paragraph(text: &str) -> Option<(Vec<&str>, Vec<&str>)> {
    let (numbers, _) = text.trim_start().strip_prefix("**I")?.split_once(':')?;
    Some((numbers.split(", ").map(|number| number.trim_start_matches('I')).collect(), places(text)))
}

/// A search for a rule by its number finds every place that the page names.
#[test]
fn every_place_of_an_invariant_names_it() {
    let page = fs::read_to_string(root().join("docs/invariants.md")).unwrap();
    let rows = page.lines().filter_map(row);
    let paragraphs: Vec<_> = page.split("\n\n").filter_map(paragraph).collect();
    assert!(paragraphs.len() > 5, "{paragraphs:?}");
    let mut found = vec![];
    for (numbers, places) in rows.chain(paragraphs) {
        let numbers: Vec<String> = numbers.iter().map(|n| format!("I{}", n.trim_start_matches('I'))).collect();
        if places.is_empty() {
            found.push(format!("{numbers:?} is kept nowhere"));
        }
        for place in places {
            let text = text_below(&root().join(place));
            if !numbers.iter().any(|number| names(&text, number)) {
                found.push(format!("{place} mentions none of {numbers:?}"));
            }
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Every condition that needs a person has a runbook, and every runbook has such a condition.
#[test]
fn every_reason_that_needs_a_person_has_a_runbook() {
    let wanted: BTreeSet<&str> = Reason::ALL.iter().filter(|r| r.needs_a_person()).map(|r| r.as_str()).collect();
    let folder = root().join("runbooks");
    let mut there = BTreeSet::new();
    let mut found = vec![];
    for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        if !text.starts_with(&format!("# {name}\n")) {
            found.push(format!("runbooks/{name}.md does not begin with `# {name}`"));
        }
        for heading in ["\n## Look\n", "\n## Do\n", "\n## Do not\n"] {
            if !text.contains(heading) {
                found.push(format!("runbooks/{name}.md lacks the section {}", heading.trim()));
            }
        }
        there.insert(name);
    }
    found.extend(wanted.iter().filter(|n| !there.contains(**n)).map(|n| format!("runbooks/{n}.md is missing")));
    found.extend(
        there
            .iter()
            .filter(|n| !wanted.contains(n.as_str()))
            .map(|n| format!("runbooks/{n}.md: no reason leads to it")),
    );
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
