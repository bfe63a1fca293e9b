//! `completion bash|zsh|fish`, and the candidates for kubectl's own completion (`kubectl_complete-holdfast`).
//!
//! PURE: text out of the definition of the command line. Decides candidates of verbs and flags, not of objects.

use clap::{Args, Command, ValueEnum};
use clap_complete::{Shell, generate};

use super::end::{DONE, print};

/// Name of the program in a shell.
const PROGRAM: &str = "holdfast";

/// kubectl's sign that no file names follow (cobra's directive).
const NO_FILES: &str = ":4";

/// Flags of `completion`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CompletionFlags {
    /// Shell.
    #[arg(value_enum)]
    pub shell: ShellName,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShellName {
    /// `source <(holdfast completion bash)`
    Bash,
    /// `holdfast completion zsh > "${fpath[1]}/_holdfast"`
    Zsh,
    /// `holdfast completion fish | source`
    Fish,
}

/// Words of a command line that kubectl completes.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CandidateFlags {
    /// The words behind `kubectl holdfast`; the last one is under way.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Prints the completion script of a shell.
pub fn run(flags: &CompletionFlags, mut command: Command) -> anyhow::Result<u8> {
    let shell = match flags.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = vec![];
    generate(shell, &mut command, PROGRAM, &mut script);
    print(&String::from_utf8(script)?)?;
    Ok(DONE)
}

/// Prints candidates as kubectl reads them.
pub fn complete(flags: &CandidateFlags, mut command: Command) -> anyhow::Result<u8> {
    command.build();
    let mut lines = String::new();
    for (name, help) in candidates(&command, &flags.words) {
        lines.push_str(&format!("{name}\t{help}\n"));
    }
    print(&format!("{lines}{NO_FILES}\n"))?;
    Ok(DONE)
}

/// Returns the candidates for the last word, each with its help.
fn candidates(root: &Command, words: &[String]) -> Vec<(String, String)> {
    let Some((last, before)) = words.split_last() else { return candidates(root, &[String::new()]) };
    let mut command = root;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let first_line = |help: Option<String>| help.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
    let mut found = vec![];
    if let Some((flag, value)) = last.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
        for name in values(command, flag) {
            found.push((format!("{flag}={name}"), String::new()));
        }
        found.retain(|(name, _)| name.starts_with(&format!("{flag}={value}")));
        return found;
    }
    let awaited = before.last().map(|word| values(command, word)).unwrap_or_default();
    if !awaited.is_empty() {
        found.extend(awaited.into_iter().map(|name| (name, String::new())));
    } else if last.starts_with('-') {
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        found.extend(flags.filter_map(|flag| {
            Some((format!("--{}", flag.get_long()?), first_line(flag.get_help().map(ToString::to_string))))
        }));
    } else {
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        found.extend(
            verbs.map(|verb| (verb.get_name().to_owned(), first_line(verb.get_about().map(ToString::to_string)))),
        );
        let places = command.get_positionals().flat_map(clap::Arg::get_possible_values);
        found.extend(
            places.map(|value| (value.get_name().to_owned(), first_line(value.get_help().map(ToString::to_string)))),
        );
    }
    found.retain(|(name, _)| name.starts_with(last.as_str()));
    found
}

/// Returns the values that a flag may have, where they are a closed list.
fn values(command: &Command, flag: &str) -> Vec<String> {
    let is_it = |it: &&clap::Arg| {
        let long = flag.strip_prefix("--").is_some_and(|name| it.get_long() == Some(name));
        let short = flag.strip_prefix('-').and_then(|name| name.chars().next()).filter(|_| flag.len() == 2);
        it.get_action().takes_values() && (long || (short.is_some() && it.get_short() == short))
    };
    let found = command.get_arguments().find(is_it);
    found
        .map(|it| it.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(name = "holdfast")]
    struct Line {
        #[command(subcommand)]
        _verb: Verb,
    }

    #[derive(clap::Subcommand)]
    enum Verb {
        /// State of clusters.
        Status(super::super::status::StatusFlags),
        /// Script.
        Completion(CompletionFlags),
        #[command(hide = true)]
        Hidden,
    }

    fn found(words: &[&str]) -> Vec<String> {
        let mut root = <Line as clap::CommandFactory>::command();
        root.build();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        candidates(&root, &words).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn verbs_flags_and_their_values_complete() {
        assert_eq!(found(&["st"]), ["status"]);
        assert_eq!(found(&[""]), ["status", "completion", "help"]);
        assert_eq!(found(&["status", "--wat"]), ["--watch"]);
        assert_eq!(found(&["status", "-o", ""]), ["json", "yaml"]);
        assert_eq!(found(&["status", "--output=j"]), ["--output=json"]);
        assert_eq!(found(&["completion", "b"]), ["bash"]);
        assert_eq!(found(&["status", "--watch", ""]), Vec::<String>::new());
        assert_eq!(found(&[]).len(), 3);
    }
}
