//! The ceiling of production lines for each crate, in `ceiling.tsv`.
//!
//! This file decides which lines count: those of `src` folders without tests, fixtures and what only tests compile. A crate above
//! its number fails, and so does one far below it: the number follows down, and only a commit that names the user and the gain
//! raises it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use crate::layering::{files, root};

const TABLE: &str = "tests/suite/ceiling.tsv";

/// Lines below the ceiling at which the ceiling is lowered.
const SLACK: usize = 100;

/// Returns the crate of a production file.
fn crate_of(path: &str) -> Option<&str> {
    let own = if path.starts_with("src/") { "src" } else { path.split_once("/src/")?.0 };
    let is_test =
        |part: &str| part.trim_end_matches(".rs").split('_').any(|word| ["tests", "test", "fixtures"].contains(&word));
    (!path.split('/').any(is_test)).then_some(own)
}

/// Counts the lines of a file without the items that only tests compile.
fn production_lines(text: &str) -> usize {
    let mut lines = text.lines();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            count += 1;
            continue;
        }
        // The item ends with its first line, or with a closing brace at the depth of its attribute.
        let depth = line.len() - line.trim_start().len();
        let item = lines.by_ref().find(|line| !line.trim_start().starts_with("#[")).unwrap_or_default();
        if !item.ends_with(';') && !item.ends_with('}') && !item.ends_with(',') {
            let closing = format!("{}}}", " ".repeat(depth));
            let _closing = lines.by_ref().find(|line| line.trim_end_matches(';') == closing);
        }
    }
    count
}

/// Returns the files, without `.rs`, of modules that a file declares for tests alone.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let (folder, name) = stem.rsplit_once('/').unwrap_or_default();
    let folder = if ["lib", "main", "mod"].contains(&name) { folder } else { stem };
    let mut modules = vec![];
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]"
            && let Some(module) = lines.next().and_then(|item| item.strip_suffix(';')?.rsplit_once("mod "))
        {
            modules.push(format!("{folder}/{}", module.1));
        }
    }
    modules
}

fn counted() -> BTreeMap<String, usize> {
    let files = files();
    let of_tests: Vec<String> = files.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_of_tests = |path: &str| {
        let within =
            |module: &String| path.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with(['.', '/']));
        of_tests.iter().any(within)
    };
    let mut counted = BTreeMap::new();
    for (path, text) in &files {
        if let Some(own) = crate_of(path).filter(|_| !is_of_tests(path)) {
            *counted.entry(own.to_owned()).or_default() += production_lines(text);
        }
    }
    counted
}

fn ceilings() -> BTreeMap<String, usize> {
    let table = fs::read_to_string(root().join(TABLE)).unwrap();
    let row = |line: &str| {
        let (own, lines) = line.split_once('\t')?;
        Some((own.to_owned(), lines.parse().ok()?))
    };
    table.lines().map(|line| row(line).unwrap_or_else(|| panic!("{TABLE}: {line}"))).collect()
}

#[test]
fn every_crate_stays_below_its_ceiling() {
    let (counted, ceilings) = (counted(), ceilings());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let mut table = String::new();
        for (own, lines) in &counted {
            let ceiling = ceilings.get(own).map_or(*lines, |ceiling| (*ceiling).min(*lines));
            writeln!(table, "{own}\t{ceiling}").unwrap();
        }
        fs::write(root().join(TABLE), table).unwrap();
        return;
    }
    let mut found = vec![];
    for (own, lines) in &counted {
        let ceiling = ceilings.get(own).copied().unwrap_or_default();
        if *lines > ceiling {
            found.push(format!(
                "{own} has {lines} production lines, and its ceiling is {ceiling}. Use a mechanism that exists, or delete one. To raise \
                 the number in {TABLE}, say in the commit which user gets what for it"
            ));
        }
        if lines + SLACK < ceiling {
            found
                .push(format!("{own} has {lines} production lines: lower its ceiling of {ceiling} with `make golden`"));
        }
    }
    let gone: Vec<&String> = ceilings.keys().filter(|own| !counted.contains_key(*own)).collect();
    assert!(gone.is_empty(), "{TABLE} names crates that are gone: {gone:?}");
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn tests_do_not_count() {
    for (path, own) in [
        ("crates/plan/base/src/act.rs", Some("crates/plan/base")),
        ("crates/plan/cluster/src/cluster/tests/rolling.rs", None),
        ("crates/plan/tests/planner/main.rs", None),
        ("snapshot-agent/verbs-store/src/prune/log_tests.rs", None),
        ("snapshot-agent/etcd/src/tls.rs", Some("snapshot-agent/etcd")),
        ("src/cli.rs", Some("src")),
        ("tests/suite/main.rs", None),
        ("crates/plan/base/src/fixtures.rs", None),
    ] {
        assert_eq!(crate_of(path), own, "{path}");
    }
    let text = "a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\n#[path = \"x\"]\nmod more {\n    x\n}\nc {\n    #[cfg(test)]\n    d {\n    e\n    }\n}\n";
    assert_eq!(production_lines(text), 4);
    assert_eq!(
        test_modules("crates/plan/base/src/lib.rs", "#[cfg(test)]\npub mod fixtures;\n"),
        ["crates/plan/base/src/fixtures"]
    );
    assert_eq!(test_modules("src/a/b.rs", "    #[cfg(test)]\n    mod c;\n#[cfg(test)]\nfn d() {\n"), ["src/a/b/c"]);
}
