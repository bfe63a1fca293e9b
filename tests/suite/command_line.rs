//! The program as a person starts it: modes of its files, its exit codes, and examples of its help for a shell.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use clap::CommandFactory as _;
use holdfast::cli::Cli;
use serde_json::json;
use sha2::{Digest, Sha256};

const PROGRAM: &str = env!("CARGO_BIN_EXE_holdfast");
const KEY: &str = "shop/orders/1a2b3c4d/20261121T162233Z-byhand-99887766";

/// Starts the program from a shell, after this command.
fn sh(before: &str, words: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}; exec \"$0\" \"$@\""), PROGRAM]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Modes of the files and folders below this folder, without duplicates.
fn modes(below: &Path) -> (Vec<u32>, Vec<u32>) {
    let (mut files, mut folders) = (vec![], vec![]);
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            folders.push(mode(&path));
            let inside = modes(&path);
            files.extend(inside.0);
            folders.extend(inside.1);
        } else {
            files.push(mode(&path));
        }
    }
    for of in [&mut files, &mut folders] {
        of.sort_unstable();
        of.dedup();
    }
    (files, folders)
}

/// A folder store with one snapshot.
fn store() -> tempfile::TempDir {
    let store = tempfile::tempdir().unwrap();
    let folder = store.path().join(KEY);
    fs::create_dir_all(&folder).unwrap();
    let data = b"12345";
    let manifest = json!({
        "formatVersion": 1, "key": KEY, "namespace": "shop", "cluster": "orders", "podUid": "p", "clusterId": "cafe",
        "memberId": "1", "member": "m", "etcdVersion": "3.6.16", "raftTerm": 2, "raftAppliedIndex": 3, "dbBytes": 4096,
        "sha256": "00".repeat(32), "storedBytes": data.len(), "storedSha256": hex::encode(Sha256::digest(data)),
        "compression": "zstd", "startedAt": "2026-11-21T16:22:33Z", "endedAt": "2026-11-21T16:22:34.5Z",
        "agentVersion": "0.1.0",
    });
    fs::write(folder.join("snapshot.db.zst"), data).unwrap();
    fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    store
}

#[test]
fn files_of_a_store_are_the_owners_whatever_the_umask() {
    let from = store();
    for (umask, group, files, folders) in [
        ("000", false, 0o600, 0o700),
        ("022", false, 0o600, 0o700),
        ("000", true, 0o660, 0o770),
        ("077", true, 0o660, 0o770),
    ] {
        let to = tempfile::tempdir().unwrap();
        fs::set_permissions(to.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(to.path().join("shop")).unwrap();
        fs::set_permissions(to.path().join("shop"), fs::Permissions::from_mode(0o751)).unwrap();
        let (from, url) =
            (format!("--store=file://{}", from.path().display()), format!("file://{}", to.path().display()));
        let (key, destination) = (format!("--key={KEY}"), format!("--to-store={url}"));
        let probed = format!("--store={url}");
        let mut copy = vec!["agent", "copy", &from, &destination, &key];
        let mut probe = vec!["agent", "probe", &probed];
        if group {
            copy.push("--to-group-access");
            probe.push("--group-access");
        }
        for words in [copy, probe] {
            let output = sh(&format!("umask {umask}"), &words);
            assert!(output.status.success(), "{}", said(&output));
        }
        assert_eq!((mode(to.path()), mode(&to.path().join("shop"))), (0o755, 0o751), "what existed keeps its mode");
        assert_eq!(modes(&to.path().join("shop")), (vec![files], vec![folders]), "umask {umask}, group {group}");
        assert_eq!(mode(&to.path().join("holdfast-store.json")), files, "umask {umask}, group {group}");
    }
}

#[test]
fn a_result_that_is_lost_is_no_success() {
    let store = store();
    let (url, key) = (format!("--store=file://{}", store.path().display()), format!("--key={KEY}"));
    let names = ["--namespace=shop", "--cluster=orders"];
    let sha256 = hex::encode(Sha256::digest(fs::read(store.path().join(KEY).join("manifest.json")).unwrap()));
    let sha256 = format!("--manifest-sha256={sha256}");
    for words in [
        &["agent", "list", &url][..],
        &["agent", "list", &url, "--json"],
        &["agent", "latest", &url, names[0], names[1]],
        &["agent", "probe", &url],
        &["agent", "verify", "--no-proof", &url, &key],
        &["agent", "remove", &url, &sha256, "--allow-last", KEY],
    ] {
        let output = sh("exec > /dev/full", words);
        let verify = words[1] == "verify";
        assert!(output.status.code() == Some(1) || verify, "{words:?}: {:?} {}", output.status, said(&output));
        assert!(said(&output).contains("standard output") || verify, "{words:?}: {}", said(&output));
    }
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours_and_a_list_of_nothing_says_so() {
    let store = store();
    let url = format!("--store=file://{}", store.path().join("none").display());
    let failed = sh("true", &["agent", "list", &url]);
    assert!(!failed.status.success() && !said(&failed).contains('\u{1b}'), "{}", said(&failed));
    fs::create_dir(store.path().join("empty")).unwrap();
    let url = format!("--store=file://{}", store.path().join("empty").display());
    let empty = sh("true", &["agent", "list", &url, "--namespace=site-a"]);
    let told = String::from_utf8_lossy(&empty.stdout).into_owned();
    assert!(empty.status.success() && told.contains("no snapshot is below file://") && told.contains("/empty/site-a"));
}

#[test]
fn a_run_that_a_person_ends_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["accessKeyID", "secretAccessKey"] {
        fs::write(folder.path().join(name), "key").unwrap();
    }
    for (signal, code) in [("-INT", 130), ("-TERM", 68), ("-HUP", 68)] {
        // A store that does not answer.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = Command::new(PROGRAM);
        command.args([
            "agent",
            "list",
            "--store=s3://bkt",
            &format!("--s3-endpoint=http://{}", silent.local_addr().unwrap()),
        ]);
        command.arg(format!("--credentials-dir={}", folder.path().display()));
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _asked = silent.accept().unwrap();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{signal}: {}", said(&output));
    }
}

#[test]
fn help_is_a_command_too() {
    for words in [&["help"][..], &["agent", "help"], &["help", "agent", "save"], &["snapshot", "help"]] {
        let output = sh("true", words);
        assert!(output.status.success() && said(&output).contains("Usage: holdfast"), "{words:?}: {}", said(&output));
    }
}

/// A terminal breaks a longer line, and a shell reads the rest as another command.
#[test]
fn an_example_fits_a_terminal_of_80_columns() {
    fn each(command: &clap::Command, look: &mut impl FnMut(&str, &str)) {
        for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
            look(command.get_name(), &text.to_string());
        }
        command.get_subcommands().for_each(|inner| each(inner, look));
    }
    let mut examples = 0;
    each(&Cli::command(), &mut |verb, text| {
        let mut continued = false;
        for line in text.lines() {
            let is_command = continued || ["holdfast ", "kubectl ", "etcd "].iter().any(|p| line.trim().starts_with(p));
            continued = is_command && line.ends_with('\\');
            examples += usize::from(is_command);
            assert!(!is_command || line.chars().count() < 80, "{verb}: {line}");
        }
    });
    assert!(examples > 20, "{examples}");
}
