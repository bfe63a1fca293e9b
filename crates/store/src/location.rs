//! Parses a store's URL, and checks which flags go with it.
//!
//! This file decides the syntax only. Names must follow the providers' rules, so that nothing else gets into a host name or a
//! path. It opens nothing.

use std::path::PathBuf;

use holdfast_contract::StoreFlags;
use holdfast_contract::error::{Error, Result};
use holdfast_layout::Folder;

use super::layout;

/// URLs appear in objects, events and logs.
pub(super) const NOT_IN_URLS: &str = "URLs appear in objects, events and logs. Give credentials with --credentials-dir";

/// A place for snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A bucket of S3, or of a compatible store.
    S3(Place),
    /// A container of Azure Blob Storage.
    Azure(Place),
    /// A bucket of Google Cloud Storage.
    Gcs(Place),
    /// A folder of this machine.
    Folder(PathBuf),
}

/// A bucket or container with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name.
    pub name: String,
    /// Prefix of every key.
    pub prefix: Option<Folder>,
}

impl Location {
    /// Parses the URL, and refuses flags of another kind of store: the store would ignore such a flag.
    pub(crate) fn from_flags(flags: &StoreFlags) -> Result<Self> {
        let location = Self::parse(&flags.url)?;
        let own = match location {
            Self::S3(_) => "--s3-",
            Self::Azure(_) => "--azure-",
            Self::Gcs(_) => "--gcs-",
            Self::Folder(_) => "no flag",
        };
        match of_one_kind(flags).into_iter().find(|(flag, given)| *given && !flag.starts_with(own)) {
            Some((flag, _)) => Err(Error::config(format!("{flag} does not fit --store={}. Omit the flag", flags.url))),
            None => Ok(location),
        }
    }

    /// Parses `s3://bucket[/prefix]`, `azure://container[/prefix]`, `gs://bucket[/prefix]` or `file:///folder`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let wrong = || {
            Error::config(format!(
                "{url:?} is no store: s3://bucket/prefix, azure://container/prefix, gs://bucket/prefix or file:///folder"
            ))
        };
        // A shared access signature, as Azure's portal appends it to an address.
        if url.contains('?') && !url.starts_with("file:") {
            return Err(Error::config(format!("--store holds a query after a question mark: {NOT_IN_URLS}")));
        }
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next();
        if authority.is_some_and(|authority| authority.contains('@')) {
            return Err(Error::config(format!("--store holds a user or a password: {NOT_IN_URLS}")));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        match scheme {
            "s3" => Place::parse(url, rest, &S3).map(Self::S3),
            "azure" => Place::parse(url, rest, &AZURE).map(Self::Azure),
            "gs" => Place::parse(url, rest, &GCS).map(Self::Gcs),
            "file" if rest.starts_with('/') => Ok(Self::Folder(rest.into())),
            "file" => Err(Error::config(format!("{url}: a folder is given as file:///absolute/path"))),
            _ => Err(wrong()),
        }
    }
}

/// A provider's rule for names: letters, digits, dashes and further characters.
struct Names {
    what: &'static str,
    capitals: bool,
    besides: &'static str,
    most: usize,
    rule: &'static str,
}

/// AWS' rule for buckets, old names included, and Ceph's (`tenant:bucket`). A name that is no host name must be in the path:
/// [`is_host_name`].
const S3: Names = Names {
    what: "bucket",
    capitals: true,
    besides: "._:",
    most: 255,
    rule: "3 to 63 lower-case letters, digits, dots and dashes; with the path style (--s3-force-path-style, \
           s3.forcePathStyle) 3 to 255, also capitals, underscores and one colon (tenant:bucket)",
};

/// Whether a bucket's name can be part of a host name: AWS' rule for new buckets.
pub(crate) fn is_host_name(bucket: &str) -> bool {
    bucket.len() <= 63 && bucket.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c))
}

/// Returns the error of a bucket's name that needs the path style.
pub(crate) fn needs_path_style(bucket: &str) -> Error {
    Error::config(format!("{bucket:?} is not a {} name here: {}", S3.what, S3.rule))
}

/// Azure: "Naming and referencing containers, blobs, and metadata".
const AZURE: Names = Names {
    what: "container",
    capitals: false,
    besides: "",
    most: 63,
    rule: "3 to 63 lower-case letters, digits and single dashes",
};

/// Google: "About Cloud Storage buckets", names with dots included.
const GCS: Names = Names {
    what: "bucket",
    capitals: false,
    besides: "._",
    most: 222,
    rule: "3 to 222 lower-case letters, digits, dots, underscores and dashes",
};

impl Place {
    fn parse(url: &str, rest: &str, names: &Names) -> Result<Self> {
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || (names.capitals && c.is_ascii_uppercase());
        let good = (3..=names.most).contains(&name.len())
            && name.chars().all(|c| edge(c) || c == '-' || names.besides.contains(c))
            && name.starts_with(edge)
            && name.ends_with(edge)
            && !(names.besides.is_empty() && name.contains("--"))
            && name.matches(':').count() <= 1;
        if !good {
            return Err(Error::config(format!("{name:?} is not a {} name: {}", names.what, names.rule)));
        }
        let prefix = match prefix.trim_end_matches('/') {
            "" => None,
            prefix if prefix.starts_with('/') => return Err(Error::config(format!("{url}: two slashes in a row"))),
            prefix => Some(Folder::of_prefix(prefix).map_err(|error| layout(&error))?),
        };
        Ok(Self { name: name.to_owned(), prefix })
    }
}

/// Returns each flag that fits one kind of store, and whether it is given.
const fn of_one_kind(flags: &StoreFlags) -> [(&'static str, bool); 16] {
    [
        ("--s3-endpoint", flags.s3_endpoint.is_some()),
        ("--s3-region", flags.s3_region.is_some()),
        ("--s3-force-path-style", flags.s3_force_path_style.is_some()),
        ("--s3-ca-file", flags.s3_ca_file.is_some()),
        ("--s3-sse", flags.s3_sse.is_some()),
        ("--s3-sse-kms-key-id", flags.s3_sse_kms_key_id.is_some()),
        ("--s3-storage-class", flags.s3_storage_class.is_some()),
        ("--s3-tag", !flags.s3_tag.is_empty()),
        ("--s3-object-lock", flags.s3_object_lock.is_some()),
        ("--s3-object-lock-days", flags.s3_object_lock_days.is_some()),
        ("--s3-checksum", flags.s3_checksum.is_some()),
        ("--azure-account", flags.azure_account.is_some()),
        ("--azure-endpoint", flags.azure_endpoint.is_some()),
        ("--azure-ca-file", flags.azure_ca_file.is_some()),
        ("--gcs-endpoint", flags.gcs_endpoint.is_some()),
        ("--gcs-ca-file", flags.gcs_ca_file.is_some()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_contract::ExitClass;

    use super::*;

    /// A flag that is missing there would be ignored for another kind of store.
    #[test]
    fn every_flag_of_one_kind_is_known_as_such() {
        let fields = serde_json::to_value(StoreFlags::default()).unwrap();
        let of_a_kind = |name: &&String| ["s3", "azure", "gcs"].iter().any(|kind| name.starts_with(kind));
        let fields: BTreeSet<String> = fields.as_object().unwrap().keys().filter(of_a_kind).cloned().collect();
        let flags = of_one_kind(&StoreFlags::default()).map(|(flag, given)| {
            assert!(!given, "{flag}");
            let words = flag.trim_start_matches("--").split('-').enumerate();
            words
                .map(|(n, word)| if n == 0 { word.to_owned() } else { word[..1].to_uppercase() + &word[1..] })
                .collect()
        });
        assert_eq!(BTreeSet::from(flags), fields);
    }

    fn place(name: &str, prefix: &str) -> Place {
        let prefix = (!prefix.is_empty()).then(|| Folder::of_prefix(prefix).unwrap());
        Place { name: name.to_owned(), prefix }
    }

    #[test]
    fn locations_are_read() {
        for (url, location) in [
            ("s3://bkt", Location::S3(place("bkt", ""))),
            ("s3://bkt/a/b/", Location::S3(place("bkt", "a/b"))),
            ("s3://bkt/team(prod)/.etcd", Location::S3(place("bkt", "team(prod)/.etcd"))),
            ("gs://bkt/env=prod/etcd", Location::Gcs(place("bkt", "env=prod/etcd"))),
            ("s3://Old_Bucket", Location::S3(place("Old_Bucket", ""))),
            ("s3://tenant:bucket/x", Location::S3(place("tenant:bucket", "x"))),
            ("azure://backups/etcd", Location::Azure(place("backups", "etcd"))),
            ("gs://my_bkt.example.com/a", Location::Gcs(place("my_bkt.example.com", "a"))),
            ("file:///mnt/x", Location::Folder("/mnt/x".into())),
        ] {
            assert_eq!(Location::parse(url).unwrap(), location, "{url}");
        }
    }

    #[test]
    fn what_is_no_location_is_refused() {
        for bad in [
            "",
            "bkt",
            "s3://",
            "s3:///x",
            "s3://B",
            "s3://a@evil.example",
            "s3://bkt/../x",
            "s3://bkt//x",
            "s3://a:b:c",
            "s3://bkt:",
            "s3://b t",
            "file://relative",
            "http://x",
            "s3://bkt/a?b",
            "s3://-bkt",
            "s3://bkt/./x",
            "s3://bkt/a b",
            "s3://bkt/$x",
            "azure://Back_ups",
            "azure://ab",
            "azure://a--b",
            "azure://a.b.c",
            "azure://$root",
            "azure://Backups",
            "gs://-x-",
            "gs://bkt/../x",
            "gcs://bkt",
        ] {
            assert_eq!(Location::parse(bad).unwrap_err().class(), ExitClass::Config, "{bad:?}");
        }
    }

    #[test]
    fn a_flag_of_another_store_is_refused_by_name() {
        let endpoint = Some("https://x".to_owned());
        for (url, flag) in [
            ("azure://backups", "--s3-endpoint"),
            ("gs://bkt", "--s3-endpoint"),
            ("file:///mnt", "--s3-endpoint"),
            ("s3://bkt", ""),
        ] {
            let flags = StoreFlags { url: url.to_owned(), s3_endpoint: endpoint.clone(), ..StoreFlags::default() };
            match Location::from_flags(&flags) {
                Ok(_) => assert_eq!(flag, "", "{url}"),
                Err(error) => assert!(!flag.is_empty() && error.message().starts_with(flag), "{url}: {error}"),
            }
        }
        let flags = StoreFlags { url: "s3://bkt".to_owned(), azure_endpoint: endpoint, ..StoreFlags::default() };
        assert!(Location::from_flags(&flags).unwrap_err().message().starts_with("--azure-endpoint"));
    }
}
