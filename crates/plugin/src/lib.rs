//! The plugin of kubectl: commands for people, with their own rights. `kubectl-holdfast` is a link to `holdfast`, so that
//! `kubectl holdfast VERB` is `holdfast VERB`.
//!
//! One verb in a file. `access` makes the client, `screen` the text, `end` the exit code, `wait` the wait, `progress` its figures. Nothing here runs a
//! command in a container, and only `certificate` and `etcdctl` read a Secret. docs/plugin.md has the rights of each verb.

#![cfg_attr(
    test,
    allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        clippy::unwrap_in_result,
        reason = "tests favour plain words"
    )
)]
#![allow(clippy::disallowed_types, reason = "commands for people talk to Kubernetes with their own rights")]

use clap::{Command, Subcommand};
use holdfast_contract::BuildInfo;

pub mod access;
pub mod archive;
pub mod certificate;
pub mod check;
pub mod cluster;
pub mod completion;
pub mod end;
pub mod etcdctl;
pub mod install;
pub mod logs;
pub mod member;
pub mod operators;
pub mod point;
pub mod progress;
pub mod recover;
pub mod report;
pub mod restore;
pub mod schedule;
pub mod screen;
pub mod snapshot;
pub mod snapshots;
pub mod status;
pub mod time;
pub mod undelete;
pub mod upgrade;
pub mod version;
pub mod wait;

/// Verbs of the plugin.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Show a cluster with its members, conditions, backups and next steps; without CLUSTER, list all clusters.
    Status(Box<status::StatusFlags>),
    /// Request recurring backups now, and suspend or resume them.
    #[command(subcommand)]
    Schedule(schedule::ScheduleVerb),
    /// Pause, resume, scale and restart a cluster.
    #[command(subcommand)]
    Cluster(cluster::ClusterVerb),
    /// Replace or restart one member.
    #[command(subcommand)]
    Member(member::MemberVerb),
    /// Plan and start the restore of a snapshot into a new cluster.
    #[command(subcommand)]
    Restore(restore::RestoreVerb),
    /// Show the ways out of a lost quorum, and what each would lose.
    #[command(subcommand)]
    Recover(recover::RecoverVerb),
    /// Compare the keys below a prefix at a point with the cluster, and with --apply put back those that are missing.
    Undelete(Box<undelete::UndeleteFlags>),
    /// Write a client certificate of a cluster to files, and print the environment for etcdctl.
    Certificate(Box<certificate::CertificateFlags>),
    /// Run the etcdctl of this machine against a cluster, through the API server.
    Etcdctl(Box<etcdctl::EtcdctlFlags>),
    /// Print the logs of a cluster's members.
    Logs(Box<logs::LogsFlags>),
    /// Write a support bundle without Secrets.
    Report(Box<report::ReportFlags>),
    /// Check the install: kinds, definitions, operator, admission policies.
    Check(Box<check::CheckFlags>),
    /// Print the versions of this program, of the operators, of the custom resources and of Kubernetes.
    Version(Box<version::VersionFlags>),
    /// Print the completion script of a shell.
    Completion(completion::CompletionFlags),
    /// Print candidates for kubectl's completion.
    #[command(name = "__complete", hide = true)]
    Candidates(completion::CandidateFlags),
}

/// Carries out a verb. Returns the exit code; `line` is the definition of the command line, `build` this program's.
pub async fn run(verb: Verb, line: Command, build: BuildInfo) -> u8 {
    end::code(match verb {
        Verb::Status(flags) => status::run(*flags).await,
        Verb::Schedule(verb) => schedule::run(verb).await,
        Verb::Cluster(verb) => cluster::run(verb).await,
        Verb::Member(verb) => member::run(verb).await,
        Verb::Restore(verb) => restore::run(verb).await,
        Verb::Recover(verb) => recover::run(verb).await,
        Verb::Undelete(flags) => undelete::run(*flags).await,
        Verb::Certificate(flags) => certificate::run(*flags).await,
        Verb::Etcdctl(flags) => etcdctl::run(*flags).await,
        Verb::Logs(flags) => logs::run(*flags).await,
        Verb::Report(flags) => report::run(*flags).await,
        Verb::Check(flags) => check::run(*flags).await,
        Verb::Version(flags) => version::run(*flags, build).await,
        Verb::Completion(flags) => completion::run(&flags, line),
        Verb::Candidates(flags) => completion::complete(&flags, line),
    })
}
