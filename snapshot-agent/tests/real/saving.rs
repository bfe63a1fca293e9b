//! A save in a child of this program, for tests whose saves need an environment of their own: variables, a resolv.conf.
//!
//! It decides how the child gets its request and how the child's line is read; each test decides the environment.

use std::process::{Command, Output};

use holdfast_contract::SaveRequest;
use snapshot_agent::verbs::save;

use crate::support::{child, child_request, to_input};

pub(crate) const SAVED: &str = "saved ";
pub(crate) const FAILED: &str = "failed ";

/// The child half: the process that saves. It prints a failure with its reason and its class.
#[ignore = "the child half of a test"]
#[tokio::test(flavor = "multi_thread")]
async fn saves() {
    match save::run(child_request()).await {
        Ok(saved) => println!("{SAVED}{}", saved.key),
        Err(error) => println!("{FAILED}{} {:?} {error}", error.failure().reason, error.class()),
    }
}

/// Returns the child that makes this save.
pub(crate) fn saving(request: &SaveRequest) -> Command {
    child("saving::saves", &to_input(request))
}

/// The child's line. The exit code alone proves nothing: a name that matches no test gives 0 too.
pub(crate) fn line_of(output: &Output) -> String {
    let [out, log] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{out}{log}");
    let told = out.lines().find(|line| line.starts_with(SAVED) || line.starts_with(FAILED));
    told.unwrap_or_else(|| panic!("{out}{log}")).to_owned()
}
