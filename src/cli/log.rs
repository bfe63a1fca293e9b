//! `agent log` with its flags, or with its verb `status`.
//!
//! Decides which of both a command line means. clap's own derive cannot: it knows no optional group of flags that holds other
//! groups.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use holdfast_contract::{LogRequest, LogStatusRequest};

/// `agent log`, with or without a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogVerb {
    /// Records.
    Record(Box<LogRequest>),
    /// Shows the cover.
    Status(Box<LogStatusRequest>),
}

/// Verbs of `agent log`.
#[derive(Subcommand)]
enum Verb {
    /// Show what the log of a cluster covers: revisions without a hole, holes, snapshots that the log continues, and the age
    /// of its end.
    Status(Box<LogStatusRequest>),
}

impl FromArgMatches for LogVerb {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        if matches.subcommand_name().is_none() {
            return LogRequest::from_arg_matches(matches).map(Box::new).map(Self::Record);
        }
        Verb::from_arg_matches(matches).map(|Verb::Status(request)| Self::Status(request))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for LogVerb {
    fn augment_args(command: Command) -> Command {
        let command = Verb::augment_subcommands(LogRequest::augment_args(command));
        command.subcommand_required(false).arg_required_else_help(false).args_conflicts_with_subcommands(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
