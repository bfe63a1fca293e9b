//! A second store on one command line: every flag of a store, with `to-` before its name.
//!
//! This file decides names only, and takes the flags from [`StoreFlags`], so that every store has the same flags.

use std::ffi::OsString;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use super::StoreFlags;

/// The destination store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToStore(pub StoreFlags);

/// One flag of a store, under its own name and with the prefix.
struct Renamed {
    long: String,
    to_id: String,
    to_long: String,
    help: String,
    switch: bool,
}

/// All flags of a store. clap keeps references to names for the life of the process.
static FLAGS: LazyLock<Vec<Renamed>> = LazyLock::new(|| {
    let flags = StoreFlags::augment_args(Command::new(""));
    let renamed = flags.get_arguments().filter_map(|flag| {
        let long = flag.get_long()?;
        Some(Renamed {
            long: long.to_owned(),
            to_id: format!("to_{}", flag.get_id()),
            to_long: format!("to-{long}"),
            help: match long {
                "store" => "URL of the destination store, in the format of --store".to_owned(),
                _ => format!("--{long} of the destination store"),
            },
            switch: matches!(flag.get_action(), ArgAction::SetTrue),
        })
    });
    renamed.collect()
});

/// Heading in help texts.
const HEADING: &str = "Store to copy to";

impl Args for ToStore {
    fn augment_args(command: Command) -> Command {
        let flags = StoreFlags::augment_args(Command::new(""));
        FLAGS.iter().fold(command, |command, renamed| {
            let same = flags.get_arguments().find(|flag| flag.get_long() == Some(&renamed.long));
            let flag = same.cloned().unwrap_or_else(|| Arg::new(renamed.to_id.as_str()));
            // Replaces the help text of the store's own flag, which was read above.
            let flag = flag.id(renamed.to_id.as_str()).long(renamed.to_long.as_str()).help(renamed.help.as_str());
            command.arg(flag.long_help(None).help_heading(HEADING))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ToStore {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut words = vec![OsString::from("")];
        for Renamed { long, to_id, switch, .. } in FLAGS.iter() {
            if *switch {
                if matches.get_flag(to_id) {
                    words.push(format!("--{long}").into());
                }
                continue;
            }
            for value in matches.get_raw(to_id).into_iter().flatten() {
                let mut word = OsString::from(format!("--{long}="));
                word.push(value);
                words.push(word);
            }
        }
        let command = StoreFlags::augment_args(Command::new("").disable_help_flag(true));
        let matches = command.try_get_matches_from(words).map_err(|error| {
            Error::raw(ErrorKind::ValueValidation, format!("invalid flag of the destination store: {}\n", error.kind()))
        })?;
        StoreFlags::from_arg_matches(&matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{LockMode, S3Checksum, S3Sse};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        from: StoreFlags,
        #[command(flatten)]
        to: ToStore,
    }

    /// Every flag: a new flag must be added here, or this does not compile.
    fn every() -> StoreFlags {
        StoreFlags {
            url: "s3://b/p".to_owned(),
            mount: Some("/m".into()),
            group_access: true,
            s3_endpoint: Some("http://e".to_owned()),
            s3_region: Some("r".to_owned()),
            s3_force_path_style: Some(true),
            s3_ca_file: Some("/ca".into()),
            s3_sse: Some(S3Sse::AwsKms),
            s3_sse_kms_key_id: Some("k".to_owned()),
            s3_storage_class: Some("STANDARD_IA".to_owned()),
            s3_tag: vec!["a=b".to_owned(), "c=d".to_owned()],
            s3_object_lock: Some(LockMode::Governance),
            s3_object_lock_days: Some(30),
            s3_checksum: Some(S3Checksum::Sha256),
            azure_account: Some("acc".to_owned()),
            azure_endpoint: Some("http://az".to_owned()),
            azure_ca_file: Some("/azca".into()),
            gcs_endpoint: Some("http://g".to_owned()),
            gcs_ca_file: Some("/gca".into()),
            credentials_dir: Some("/c".into()),
        }
    }

    /// [`every`] on the command line.
    const WORDS: [&str; 21] = [
        "--store=s3://b/p",
        "--mount=/m",
        "--group-access",
        "--s3-endpoint=http://e",
        "--s3-region=r",
        "--s3-force-path-style=true",
        "--s3-ca-file=/ca",
        "--s3-sse=aws:kms",
        "--s3-sse-kms-key-id=k",
        "--s3-storage-class=STANDARD_IA",
        "--s3-tag=a=b",
        "--s3-tag=c=d",
        "--s3-object-lock=GOVERNANCE",
        "--s3-object-lock-days=30",
        "--s3-checksum=sha256",
        "--azure-account=acc",
        "--azure-endpoint=http://az",
        "--azure-ca-file=/azca",
        "--gcs-endpoint=http://g",
        "--gcs-ca-file=/gca",
        "--credentials-dir=/c",
    ];

    #[test]
    fn both_stores_have_every_flag_and_neither_gets_the_others() {
        let renamed = WORDS.map(|word| word.replacen("--", "--to-", 1));
        let words = ["x".to_owned(), "--store=file:///from".to_owned()].into_iter().chain(renamed);
        let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(cli.to.0, every());
        assert_eq!(cli.from, StoreFlags { url: "file:///from".to_owned(), ..StoreFlags::default() });

        let words = ["x", "--to-store=file:///to"].into_iter().chain(WORDS);
        let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(cli.from, every());
        assert_eq!(cli.to.0, StoreFlags { url: "file:///to".to_owned(), ..StoreFlags::default() });
    }

    #[test]
    fn what_is_wrong_names_the_flag() {
        let refused = |words: &[&str]| {
            let words = ["x", "--store=file:///f"].iter().chain(words);
            Cli::try_parse_from(words).err().expect("was taken").to_string()
        };
        assert!(refused(&[]).contains("--to-store"));
        assert!(refused(&["--to-store=s3://b", "--to-s3-sse=rot13"]).contains("--to-s3-sse"));
        assert!(refused(&["--to-nothing=1"]).contains("--to-nothing"));
    }
}
