//! Every name in a document exists: files, functions, links and their headings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::values::CHARTS;

/// Folders of the repository. A quoted word below one of them is a path.
const FOLDERS: [&str; 10] =
    ["src/", "crates/", "snapshot-agent/", "tests/", "docs/", "runbooks/", "charts/", "crds/", "jobs/", "fuzz/"];

/// Characters of a pattern or a placeholder.
const NO_PATH: [char; 6] = ['*', '<', '{', '$', '=', '…'];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every document: its path below the root, and its text.
fn documents() -> Vec<(String, String)> {
    let single = ["README.md", "CONTRIBUTING.md", "tests/testbed/README.md"].map(str::to_owned);
    let charts = CHARTS.map(|chart| format!("charts/{chart}/README.md"));
    let mut paths: Vec<String> = single.into_iter().chain(charts).collect();
    for folder in ["docs", "runbooks"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    paths.sort();
    let read = |path: String| (path.clone(), fs::read_to_string(root().join(&path)).unwrap());
    paths.into_iter().map(read).collect()
}

/// The quoted words of a document, with the text that follows each.
fn quoted(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|prose| {
        let parts: Vec<&str> = prose.split('`').collect();
        let words = parts.windows(2).skip(1).step_by(2).map(|pair| (pair[0], pair[1]));
        words.collect::<Vec<_>>()
    })
}

/// The paths that a document names.
fn paths(text: &str) -> BTreeSet<&str> {
    let words = quoted(text).flat_map(|(word, _)| word.split_whitespace());
    let below = |word: &&str| FOLDERS.iter().any(|folder| word.starts_with(folder)) && !word.contains(NO_PATH);
    words.filter(below).collect()
}

/// Functions and constants that a document finds in a file: `path` (`name`).
fn items(text: &str) -> Vec<(&str, &str)> {
    let all: Vec<(&str, &str)> = quoted(text).collect();
    let pairs =
        all.windows(2).filter(|pair| pair[0].0.ends_with(".rs") && pair[0].1 == " (" && pair[1].1.starts_with(')'));
    pairs.map(|pair| (pair[0].0, pair[1].0)).collect()
}

/// Whether a file declares a function or a constant.
fn declares(text: &str, name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let declared = |line: &str| {
        ["fn ", "const "]
            .iter()
            .any(|word| line.split_once(&format!("{word}{name}")).is_some_and(|(_, rest)| ends(rest)))
    };
    text.lines().filter(|line| !line.trim_start().starts_with("//")).any(declared)
}

/// The targets of a document's links to other documents and to its own headings.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|prose| prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)));
    targets.filter(|target| !target.starts_with("http"))
}

/// The anchors that GitHub gives the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// The flaw of a link of the document at `path`, if it has one.
fn broken(path: &str, text: &str, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let file = if file.is_empty() { root().join(path) } else { root().join(Path::new(path).parent()?).join(file) };
    if !file.exists() {
        return Some(format!("{path} links to {target}, which does not exist"));
    }
    let there = if file == root().join(path) { text.to_owned() } else { fs::read_to_string(file).unwrap_or_default() };
    let anchor = anchor.filter(|anchor| !anchors(&there).contains(*anchor))?;
    Some(format!("{path} links to {target}, and no heading has the anchor {anchor}"))
}

#[test]
fn the_files_that_documents_name_exist() {
    let mut found = vec![];
    let (mut count, mut declared) = (0, 0);
    for (path, text) in documents() {
        let named = paths(&text);
        count += named.len();
        declared += items(&text).len();
        let missing = named.into_iter().filter(|named| !root().join(named).exists());
        found.extend(missing.map(|named| format!("{path} names {named}, which does not exist")));
        for (file, name) in items(&text).into_iter().filter(|(file, _)| root().join(file).exists()) {
            if !declares(&fs::read_to_string(root().join(file)).unwrap(), name) {
                found.push(format!("{path} finds {name} in {file}, which does not declare {name}"));
            }
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(count > 200 && declared > 5, "{count}, {declared}");
}

#[test]
fn the_links_of_documents_lead_somewhere() {
    let mut found = vec![];
    for (path, text) in documents() {
        found.extend(links(&text).filter_map(|target| broken(&path, &text, target)));
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn a_wrong_name_is_noticed() {
    let text = "`src/main.rs` and `src/gone.rs`, ` src/a/*.rs`; `tests/bin/e2e STORY`\n```sh\n`src/example.rs`\n```\n";
    assert_eq!(paths(text), BTreeSet::from(["src/main.rs", "src/gone.rs", "tests/bin/e2e"]));
    let text = "`src/x.rs` (`choose`); `src/y.rs` (which), `src/z.rs`";
    assert_eq!(items(text), [("src/x.rs", "choose")]);
    assert!(declares("    pub(super) fn choose<'a>(", "choose") && !declares("// fn choose(", "choose"));
    assert!(!declares("fn choose_other()", "choose"));
    let page = "# The title\n## I6: exceptions\n";
    assert_eq!(anchors(page), BTreeSet::from(["the-title".to_owned(), "i6-exceptions".to_owned()]));
    assert_eq!(broken("docs/invariants.md", page, "#i6-exceptions"), None);
    assert!(broken("docs/invariants.md", page, "#i7").is_some());
    assert!(broken("docs/invariants.md", page, "gone.md").is_some());
    assert_eq!(broken("docs/invariants.md", page, "../README.md#install"), None);
}
