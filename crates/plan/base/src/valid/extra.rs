//! Flags and variables of etcd that have no field of their own.
//!
//! Decides which flags a user may set, for each minor: etcd ends at a flag that it does not know. Flags of identity, addresses, data,
//! certificates and membership belong to Holdfast; a flag with a field of its own is set there.

use holdfast_api::cluster::Options;

use super::{Refusal, Version, refuse};

const ARGS: &str = "spec.options.extraArgs";
const ENV: &str = "spec.options.extraEnv";

/// Flags that every minor knows (`etcd --help` of 3.5.35, 3.6.16 and 3.7.3).
const EVERY_MINOR: &[&str] = &[
    "auth-token-ttl",
    "backend-batch-interval",
    "backend-batch-limit",
    "backend-bbolt-freelist-type",
    "bcrypt-cost",
    "cors",
    "enable-grpc-gateway",
    "enable-pprof",
    "grpc-keepalive-interval",
    "grpc-keepalive-min-time",
    "grpc-keepalive-timeout",
    "host-whitelist",
    "max-snapshots",
    "max-wals",
    "metrics",
    "pre-vote",
    "raft-read-timeout",
    "raft-write-timeout",
    "tls-min-version",
];

/// Flags that etcd 3.5 has with `experimental-` before the name, and later minors without. etcd 3.6 warns about the old names, and
/// etcd 3.7 does not know them.
const RENAMED: &[&str] = &[
    "bootstrap-defrag-threshold-megabytes",
    "compact-hash-check-time",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "corrupt-check-time",
    "distributed-tracing-address",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
    "distributed-tracing-service-name",
    "downgrade-check-time",
    "enable-distributed-tracing",
    "warning-apply-duration",
    "watch-progress-notify-interval",
];

/// Flags that etcd 3.6 introduced.
const SINCE_3_6: &[&str] = &["snapshot-catchup-entries", "warning-unary-request-duration"];

/// Flags that a field sets.
const FIELDS: &[(&str, &str)] = &[
    ("quota-backend-bytes", "quotaBackendBytes"),
    ("auto-compaction-mode", "autoCompactionMode"),
    ("auto-compaction-retention", "autoCompactionRetention"),
    ("snapshot-count", "snapshotCount"),
    ("heartbeat-interval", "heartbeatInterval"),
    ("election-timeout", "electionTimeout"),
    ("max-request-bytes", "maxRequestBytes"),
    ("max-txn-ops", "maxTxnOps"),
    ("max-concurrent-streams", "maxConcurrentStreams"),
    ("log-level", "logLevel"),
];

const EXPERIMENTAL: &str = "experimental-";

/// Checks flags and variables for the version of the spec.
pub(super) fn check_options(options: &Options, version: Version) -> Result<(), Refusal> {
    let mut known: Vec<&str> = vec![];
    for argument in options.extra_args.iter().flatten() {
        let flag = argument.strip_prefix("--").and_then(|rest| rest.split_once('=')).map(|(name, _)| name);
        let Some(flag) = flag else {
            return refuse(ARGS, format!("{argument:?} is not of the form --name=value"));
        };
        check_flag(flag, version)?;
        if known.contains(&flag) {
            return refuse(ARGS, format!("--{flag} stands there twice"));
        }
        known.push(flag);
    }
    let mut known: Vec<&str> = vec![];
    for variable in options.extra_env.iter().flatten() {
        let name = variable.name.as_str();
        if name.starts_with("ETCD_") {
            return refuse(
                ENV,
                format!("{name} is a flag of etcd. Set its field in spec.options, or spec.options.extraArgs"),
            );
        }
        if name.starts_with("ETCDCTL_") || name.starts_with("HOLDFAST_") {
            return refuse(ENV, format!("Holdfast itself sets variables such as {name}"));
        }
        if known.contains(&name) {
            return refuse(ENV, format!("{name} stands there twice"));
        }
        known.push(name);
    }
    Ok(())
}

fn check_flag(flag: &str, version: Version) -> Result<(), Refusal> {
    let old = version.minor == 5;
    let bare = flag.strip_prefix(EXPERIMENTAL);
    let renamed = |name: &str| RENAMED.contains(&name);
    let knows = if old {
        EVERY_MINOR.contains(&flag) || bare.is_some_and(renamed)
    } else {
        EVERY_MINOR.contains(&flag) || SINCE_3_6.contains(&flag) || renamed(flag)
    };
    if knows {
        return Ok(());
    }
    if let Some((_, field)) = FIELDS.iter().find(|(name, _)| *name == flag) {
        return refuse(ARGS, format!("--{flag} has a field: set spec.options.{field}"));
    }
    let minor = version.minor;
    if let Some(name) = bare.filter(|name| renamed(name)) {
        return refuse(ARGS, format!("etcd 3.{minor} does not know --{flag}, a flag of etcd 3.5. Set --{name}"));
    }
    if renamed(flag) {
        return refuse(
            ARGS,
            format!("etcd 3.{minor} does not know --{flag}, a flag of etcd 3.6 and later. Set --{EXPERIMENTAL}{flag}"),
        );
    }
    if SINCE_3_6.contains(&flag) {
        return refuse(
            ARGS,
            format!("etcd 3.{minor} does not know --{flag}, a flag of etcd 3.6 and later. Leave the flag out"),
        );
    }
    refuse(ARGS, format!("--{flag} is not a flag that a cluster may set; docs/rolling.md lists these flags"))
}

#[cfg(test)]
mod tests {
    use holdfast_api::cluster::ExtraEnv;

    use super::*;

    fn args(version: &str, all: &[&str]) -> Result<(), String> {
        let extra_args = Some(all.iter().map(|arg| (*arg).to_owned()).collect());
        let options = Options { extra_args, ..Options::default() };
        check_options(&options, Version::parse(version).unwrap()).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_flag_is_known_to_its_minors() {
        for (version, arg) in [
            ("3.5.35", "--experimental-warning-apply-duration=1s"),
            ("3.6.16", "--warning-apply-duration=1s"),
            ("3.7.3", "--snapshot-catchup-entries=5000"),
            ("3.5.35", "--metrics=extensive"),
        ] {
            assert_eq!(args(version, &[arg]), Ok(()), "{version} {arg}");
        }
        for (version, all, remedy) in [
            (
                "3.7.3",
                vec!["--experimental-warning-apply-duration=1s"],
                "etcd 3.7 does not know --experimental-warning-apply-duration, a flag of etcd 3.5. Set --warning-apply-duration",
            ),
            (
                "3.5.35",
                vec!["--warning-apply-duration=1s"],
                "a flag of etcd 3.6 and later. Set --experimental-warning-apply-duration",
            ),
            ("3.5.35", vec!["--snapshot-catchup-entries=1"], "Leave the flag out"),
            ("3.6.16", vec!["--quota-backend-bytes=1"], "set spec.options.quotaBackendBytes"),
            ("3.6.16", vec!["--data-dir=/x"], "--data-dir is not a flag that a cluster may set"),
            ("3.6.16", vec!["--unsafe-no-fsync=true"], "is not a flag that a cluster may set"),
            ("3.6.16", vec!["metrics=basic"], "is not of the form --name=value"),
            ("3.6.16", vec!["--pre-vote"], "is not of the form --name=value"),
            ("3.6.16", vec!["--metrics=basic", "--metrics=extensive"], "stands there twice"),
        ] {
            let refusal = args(version, &all).unwrap_err();
            assert!(refusal.starts_with("spec.options.extraArgs: ") && refusal.contains(remedy), "{refusal}");
        }
    }

    #[test]
    fn the_document_lists_every_flag() {
        let text = include_str!("../../../../../docs/rolling.md");
        for flag in EVERY_MINOR.iter().chain(RENAMED).chain(SINCE_3_6) {
            assert!(text.contains(&format!("`{flag}`")), "docs/rolling.md lacks {flag}");
        }
    }

    #[test]
    fn variables_of_etcd_are_flags() {
        let check = |names: &[&str]| {
            let extra_env =
                names.iter().map(|name| ExtraEnv { name: (*name).to_owned(), value: "1".to_owned() }).collect();
            let options = Options { extra_env: Some(extra_env), ..Options::default() };
            check_options(&options, Version::parse("3.6.16").unwrap()).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(check(&["GOGC", "GODEBUG"]), Ok(()));
        for (names, remedy) in [
            (&["ETCD_DATA_DIR"][..], "is a flag of etcd"),
            (&["ETCDCTL_CERT"], "Holdfast itself sets"),
            (&["GOGC", "GOGC"], "stands there twice"),
        ] {
            assert!(check(names).unwrap_err().contains(remedy), "{names:?}");
        }
    }
}
