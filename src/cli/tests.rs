//! What people and manifests type.

use clap::{CommandFactory, Parser};

use super::*;

fn parse(words: &[&str]) -> Result<Command, String> {
    Cli::try_parse_from(std::iter::once("holdfast").chain(words.iter().copied()))
        .map(|cli| cli.command)
        .map_err(|e| e.to_string())
}

#[test]
fn the_command_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn manifests_are_for_a_cluster_or_a_namespace() {
    let options = |words: &[&str]| {
        let Command::Manifests(flags) = parse(words).unwrap() else { panic!("{words:?}") };
        Options::from(flags)
    };
    let whole = options(&["manifests"]);
    assert_eq!((whole.scope, whole.only, whole.image.as_str()), (Scope::Cluster, None, "holdfast:0.1.0"));
    let one = options(&["manifests", "--image", "r/h:1", "--namespace", "etcd", "--only", "rbac"]);
    assert_eq!(one.scope, Scope::Namespace("etcd".to_owned()));
    assert_eq!((one.only, one.image.as_str()), (Some(Part::Rbac), "r/h:1"));
}

#[test]
fn what_is_wrong_is_told_with_a_remedy() {
    for (words, says) in [
        (&["manifests", "--image", ""][..], "name the image"),
        (&["manifests", "--image", "a b"], "name the image"),
        (&["manifests", "--namespace", "Prod"], "DNS label"),
        (&["manifests", "--namespace=-a"], "DNS label"),
        (&["manifests", "--namespace", ""], "DNS label"),
        (&["manifests", "--only", "pods"], "crds, rbac, deployment"),
        (&["manifest"], "manifests"),
    ] {
        let error = parse(words).unwrap_err();
        assert!(error.contains(says), "{words:?}: {error}");
    }
}
