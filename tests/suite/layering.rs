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
const CRATES: [(&str, &[&str]); 18] = [
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
    // On the vocabulary alone: the rules share no decision with the plans that they check.
    ("crates/plan/safety", &["holdfast-api", "holdfast-base", "holdfast-contract", "holdfast-layout"]),
    ("crates/plan/fixtures", &["holdfast-api", "holdfast-backup", "holdfast-base", "holdfast-cluster"]),
    ("crates/plan", &["holdfast-backup", "holdfast-base", "holdfast-cluster", "holdfast-safety"]),
    ("crates/kube", &["holdfast-api", "holdfast-contract", "holdfast-io"]),
    ("crates/operator", &["holdfast-api", "holdfast-contract", "holdfast-io", "holdfast-kube", "holdfast-plan"]),
    ("crates/manifests", &["holdfast-api", "holdfast-contract", "holdfast-plan"]),
    (
        "crates/plugin",
        &[
            "holdfast-api",
            "holdfast-contract",
            "holdfast-io",
            "holdfast-kube",
            "holdfast-manifests",
            "holdfast-operator",
            "holdfast-plan",
        ],
    ),
    (
        "snapshot-agent",
        &[
            "holdfast-bbolt",
            "holdfast-contract",
            "holdfast-io",
            "holdfast-layout",
            "holdfast-segment",
            "holdfast-store",
        ],
    ),
];

/// Crates that talk to servers, keep time or throw dice.
const EFFECTS: [&str; 6] = ["tokio", "futures", "etcd-client", "object_store", "reqwest", "rand"];
/// The crates that hold values and decisions.
const WITHOUT_EFFECTS: [&str; 9] = [
    "crates/contract",
    "crates/layout",
    "crates/segment",
    "crates/bbolt",
    "crates/api",
    "crates/plan/base",
    "crates/plan/cluster",
    "crates/plan/backup",
    "crates/plan/safety",
];

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
    for folder in ["src", "crates", "snapshot-agent/src", "tests"] {
        collect(&root().join(folder), &mut paths);
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

/// Whether the code of a file, without its comments, holds this word.
fn names_in_code(text: &str, word: &str) -> bool {
    text.lines().any(|line| names(code(line), word))
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
    let folders = names("crates").chain(names("crates/plan"));
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
    for place in ["crates/contract", "crates/segment", "crates/bbolt", "crates/io", "crates/store", "snapshot-agent"] {
        let needs = dependencies(place);
        assert!(!needs.contains("kube") && !needs.contains("k8s-openapi"), "{place} has no client of Kubernetes");
    }
}

/// The layers of the agent, from the bottom: a file imports files of layers below its own, and of its own module.
const LAYERS: [&[&str]; 3] = [&["format", "sample"], &["catalog", "etcd"], &["verbs"]];

/// The module that the verbs share; no verb imports another verb.
const SHARED: &str = "common";

/// Files that the gate, which runs before etcd at every start, may reach by imports.
const GATE_REACHES: usize = 8;

fn layer_of(module: &Module) -> usize {
    let place = LAYERS.iter().position(|names| module.first().is_some_and(|top| names.contains(&top.as_str())));
    place.unwrap_or_else(|| panic!("{module:?} belongs to no layer: name it in LAYERS"))
}

fn agent() -> Imports {
    Imports::of(&root().join("snapshot-agent/src"))
}

#[test]
fn the_agent_imports_only_from_layers_below() {
    let mut found = vec![];
    for (module, imported) in agent().0.iter().filter(|(module, _)| !module.is_empty()) {
        for other in imported {
            let same = module[0] == other[0];
            let upward = !same && layer_of(other) >= layer_of(module);
            let of_another_verb = same
                && module[0] == "verbs"
                && module.len() > 1
                && other.get(1).is_some_and(|verb| *verb != module[1] && verb != SHARED);
            if upward || of_another_verb {
                found.push(format!("{} imports {}", module.join("::"), other.join("::")));
            }
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
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

#[test]
fn the_gate_reaches_few_files() {
    let reached = agent().reached_from(&["verbs".to_owned(), "gate".to_owned()]);
    let names: Vec<String> = reached.iter().map(|module| module.join("::")).collect();
    println!("the gate reaches {} files: {}", names.len(), names.join(", "));
    // An empty list would mean that no import was read.
    assert!(names.contains(&"etcd::wal".to_owned()) && names.len() <= GATE_REACHES, "{names:?}");
    for module in reached {
        let path = root().join("snapshot-agent/src").join(module.join("/")).with_extension("rs");
        let text = fs::read_to_string(&path).unwrap();
        for word in ["holdfast_store", "holdfast_bbolt", "holdfast_io::net"] {
            assert!(!names_in_code(&text, word), "{}: the gate needs no {word}", path.display());
        }
    }
}

/// A container's request is data: `build/request.rs` alone looks at the words of a command.
#[test]
fn no_decision_reads_arguments() {
    let mut found = vec![];
    for (path, text) in files() {
        let decides = is_below(&path, "crates/plan/*/src/") || path.starts_with("crates/operator/src/");
        if !decides || path.ends_with("/build/request.rs") || path.contains("/tests/") || path.ends_with("/tests.rs") {
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
    assert_eq!(told, (1..=30).collect());
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
