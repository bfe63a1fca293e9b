//! End-to-end stories on a real Kubernetes with real etcd and a real S3 server.
//!
//! Every story owns a namespace, with Pod security `restricted` and an operator limited to it; four run at a time. What
//! is asserted is read through etcd's own client and from the store, never through our status alone.
//!
//! Some stories start their operators on this machine, to kill, freeze and starve them; on a cluster whose Pods cannot
//! be reached from here they are left out, and listed as ignored.
//!
//! A run tells three of the thirteen sweeps of crashes, which its seed (`HOLDFAST_SEED`) chooses; the others are listed as ignored.
//! `HOLDFAST_SOAK=1` runs all of them, with the full counts. `HOLDFAST_KEEP=1` leaves namespaces of failed stories.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests talk to the cluster and to the clock")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::struct_field_names,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "reads better in stories, and nothing here is hot"
)]
#![allow(unreachable_pub, missing_docs, reason = "a test program has no outside")]

#[path = "../../snapshot-agent/tests/common/ports.rs"]
#[allow(clippy::unwrap_used, reason = "shared with tests that end by panicking")]
mod ports;
mod stories;
mod support;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use support::closing::Closing;
use support::env::Env;
use support::world::World;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    let checks = || support::CHECKS.map(|(name, check)| Trial::test(name, move || check().map_err(Failed::from)));
    if args.list {
        let stories = stories::all().into_iter().map(|s| Trial::test(s.name, || Ok(())));
        return libtest_mimic::run(&args, checks().into_iter().chain(stories).collect()).exit_code();
    }
    // Their Pods' requests fit a node of two processors, beside the namespaces that go; a fifth one's do not.
    args.test_threads = args.test_threads.or(Some(4));
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let env = match prepare() {
        Ok(env) => Arc::new(env),
        Err(why) => {
            eprintln!("e2e: {why:#}");
            return ExitCode::FAILURE;
        }
    };
    let closing = Arc::new(Closing::default());
    let is_named = args.filter.is_some();
    let stories = stories::all().into_iter().map(|story| {
        let rests = !is_named && stories::rests(story.name);
        // An operator on this machine speaks to Pods by their addresses, and those of other clusters are elsewhere.
        let elsewhere = story.on_host && !env.throwaway;
        let (env, closing) = (Arc::clone(&env), Arc::clone(&closing));
        let name = story.name;
        let tell = move || World::tell(&env, &story, &closing).map_err(|why| Failed::from(format!("{why:#}")));
        Trial::test(name, tell).with_ignored_flag(elsewhere || rests)
    });
    let all: Vec<Trial> = checks().into_iter().chain(stories).collect();
    let told = libtest_mimic::run(&args, all);
    if told.num_passed + told.num_failed + told.num_ignored == 0 {
        eprintln!("e2e: no story has {:?} in its name. `--list` prints the names", args.filter);
        return ExitCode::FAILURE;
    }
    // Of every run, also of a single story.
    let all = Arguments { filter: None, exact: false, skip: vec![], ..args };
    let (left, searched) = (Arc::clone(&closing), closing);
    let closed = libtest_mimic::run(
        &all,
        vec![
            Trial::test("nothing is left", move || left.nothing_is_left(&env).map_err(|why| format!("{why:#}").into())),
            Trial::test("no Secret is told", move || {
                searched.no_secret_is_told().map_err(|why| format!("{why:#}").into())
            }),
        ],
    );
    if told.has_failed() { told.exit_code() } else { closed.exit_code() }
}

fn prepare() -> anyhow::Result<Env> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(Env::prepare())
}
