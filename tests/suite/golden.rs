//! The binary's output is checked in: `crds/`, `charts/manifests/`; the shape of stored objects, `docs/schemas/`; the tables of
//! documents; and the charts' generated files (`values.rs`). A change of the code shows as a change of these files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use holdfast::cli::Cli;
use holdfast_api::pod_security::RunAs;
use holdfast_contract::{Failure, Origin, Retry};
use holdfast_manifests::{self as manifests, IMAGE, Options, Part, Scope};
use holdfast_plan::cluster::{Step, TABLES, Table};

/// Folders that hold output only.
const FOLDERS: [&str; 4] = ["crds", "charts/manifests", "charts/holdfast/files/crds", "docs/schemas"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn printed(scope: &Scope, parts: &[Part]) -> String {
    let objects: Vec<_> = parts
        .iter()
        .flat_map(|part| {
            let pod_run_as = RunAs::Fixed;
            let options = Options { image: IMAGE.to_owned(), scope: scope.clone(), pod_run_as, only: Some(*part) };
            manifests::objects(&options).unwrap()
        })
        .collect();
    manifests::yaml(&objects).unwrap()
}

/// Checks that a text for users, generated from doc comments, has no part that only readers of the code can follow: links of
/// rustdoc and numbers of rules.
fn for_people(what: &str, text: &str) {
    let marks = ["[`", "`]", "crate::", "](http"];
    let number = |word: &str| {
        let digits = word.trim_start_matches('(').strip_prefix('I').unwrap_or_default();
        digits.trim_end_matches([',', ')', '.', '"']).parse::<u8>().is_ok()
    };
    let told = |line: &str| marks.iter().any(|mark| line.contains(mark)) || line.split(' ').any(number);
    let bad: Vec<&str> = text.lines().filter(|line| told(line)).collect();
    assert_eq!(bad, [] as [&str; 0], "{what}");
}

#[test]
fn no_help_speaks_to_the_readers_of_the_code() {
    fn look(command: &mut clap::Command, seen: &mut usize) {
        let help = command.render_long_help().to_string();
        for_people(command.get_name(), &help);
        *seen += 1;
        for verb in command.get_subcommands_mut() {
            look(verb, seen);
        }
    }
    let (mut command, mut seen) = (Cli::command(), 0);
    command.build();
    look(&mut command, &mut seen);
    assert!(seen > 15, "{seen}");
}

/// Every file and its text.
fn wanted() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for crd in manifests::crds().unwrap() {
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
        let text = manifests::yaml(std::slice::from_ref(&crd)).unwrap();
        for_people(plural, &text);
        files.insert(format!("crds/{plural}.yaml"), text);
    }
    let one = Scope::Namespace("etcd".to_owned());
    for (file, command, text) in [
        ("rbac", "--only rbac", printed(&Scope::Cluster, &[Part::Rbac])),
        (
            "cluster",
            "(without the definitions, which are in crds/)",
            printed(&Scope::Cluster, &[Part::Rbac, Part::Deployment]),
        ),
        ("namespaced", "--namespace etcd", printed(&one, &[Part::Rbac, Part::Deployment])),
        ("pod-monitor", "--only pod-monitor", printed(&Scope::Cluster, &[Part::PodMonitor])),
        ("network-policies", "--namespace etcd --only network-policies", printed(&one, &[Part::NetworkPolicies])),
    ] {
        let head = format!("# What `holdfast manifests` {command} prints.\n");
        files.insert(format!("charts/manifests/{file}.yaml"), head + &text);
    }
    let schema = serde_json::to_string_pretty(&holdfast_layout::manifest::schema()).unwrap();
    files.insert("docs/schemas/manifest.json".to_owned(), schema + "\n");
    files.insert(
        "docs/exit-codes.md".to_owned(),
        between_marks("docs/exit-codes.md", "the table of failures", &exit_codes()),
    );
    files.insert(
        "docs/architecture.md".to_owned(),
        between_marks("docs/architecture.md", "the rules of a cluster", &rules_of_a_cluster()),
    );
    let schema = serde_json::to_string_pretty(&snapshot_agent::catalog::proof::schema()).unwrap();
    files.insert("docs/schemas/proof.json".to_owned(), schema + "\n");
    files.extend(crate::values::files());
    files
}

/// The document with this text between its marks.
pub fn between_marks(document: &str, about: &str, text: &str) -> String {
    let document = fs::read_to_string(root().join(document)).unwrap();
    let (begin, end) = (format!("<!-- begin: {about} -->\n"), "<!-- end -->");
    let (head, rest) = document.split_once(&begin).unwrap();
    let (_, tail) = rest.split_once(end).unwrap();
    format!("{head}{begin}{text}{end}{tail}")
}

fn exit_codes() -> String {
    let mut table =
        "| code | class | origin | cause | retry | reason, and runbook |\n|---|---|---|---|---|---|\n".to_owned();
    for Failure { class, origin, code, retry, reason, cause } in Failure::by_code() {
        let origin = origin.map_or("", Origin::as_str);
        let retry = match retry {
            Retry::Again => "the Job",
            Retry::Later => "the operator",
            Retry::AfterChange => "after a change",
        };
        let class = class.as_str();
        table +=
            &format!("| {code} | `{class}` | {origin} | {cause} | {retry} | [{reason}](../runbooks/{reason}.md) |\n");
    }
    table
}

fn rules_of_a_cluster() -> String {
    let table = |Table { title, steps }: &Table| {
        let row = |(at, Step { name, when, file, .. }): (usize, &Step)| {
            let own = if file.contains('/') { "cluster" } else { "base" };
            let path = format!("crates/plan/{own}/src/{file}");
            format!("| {} | {name} | {when} | [`{file}`](../{path}) |\n", at + 1)
        };
        let rows: String = steps.iter().enumerate().map(row).collect();
        format!("\n{title}:\n\n| | act or wait | when | rule |\n|---|---|---|---|\n{rows}")
    };
    TABLES.iter().map(|it| table(it)).collect::<String>() + "\n"
}

/// The lines that differ, with a few lines around them.
fn difference(old: &str, new: &str) -> String {
    const AROUND: usize = 3;
    const MOST: usize = 40;
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let left = old.len().min(new.len()) - same;
    let tail = old.iter().rev().zip(new.iter().rev()).take(left).take_while(|(a, b)| a == b).count();
    let mut out = format!("  at line {}\n", same + 1);
    let mut show = |mark: &str, lines: &[&str]| {
        for line in lines.iter().take(MOST) {
            out.push_str(&format!("  {mark} {line}\n"));
        }
        if lines.len() > MOST {
            out.push_str(&format!("  {mark} ... {} more\n", lines.len() - MOST));
        }
    };
    show(" ", &old[same.saturating_sub(AROUND)..same]);
    show("-", &old[same..old.len() - tail]);
    show("+", &new[same..new.len() - tail]);
    show(" ", &old[old.len() - tail..(old.len() - tail + AROUND).min(old.len())]);
    out
}

fn files_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_printed_is_what_is_checked_in() {
    let wanted = wanted();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        for (file, text) in &wanted {
            let path = root().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    let mut wrong = String::new();
    for (file, text) in &wanted {
        match fs::read_to_string(root().join(file)) {
            Ok(there) if there == *text => {}
            Ok(there) => wrong.push_str(&format!("{file} differs\n{}", difference(&there, text))),
            Err(error) => wrong.push_str(&format!("{file}: {error}\n")),
        }
    }
    for folder in FOLDERS {
        for file in files_in(&root().join(folder)) {
            let path = format!("{folder}/{file}");
            if !wanted.contains_key(&path) {
                wrong.push_str(&format!("{path} is printed by nothing: delete it\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}\nIf the change is meant: make golden, and read the difference.\n");
}

#[test]
fn a_difference_is_shown_where_it_is() {
    let old = "a\nb\nc\nd\ne\nf\n";
    let said = difference(old, "a\nb\nc\nX\ne\nf\n");
    assert_eq!(said, "  at line 4\n    a\n    b\n    c\n  - d\n  + X\n    e\n    f\n");
    assert!(difference("a\n", "a\nb\n").contains("+ b"));
    assert!(difference("a\na\n", "a\n").contains("- a"));
}
