//! Addresses, credentials and options of S3, without a store.

use std::fs;

use holdfast_contract::{ExitClass, LockMode};

use super::*;

fn place() -> Place {
    Place { name: "bkt".to_owned(), prefix: None }
}

fn refused(change: impl FnOnce(&mut StoreFlags)) -> Error {
    let mut flags = StoreFlags { url: "s3://bkt/p".to_owned(), ..StoreFlags::default() };
    change(&mut flags);
    open(&flags, place()).expect_err("was taken")
}

#[test]
fn one_wrong_flag_at_a_time() {
    for endpoint in ["", "host:90", "ftp://host", "https://", "https://u:p@host", "https://host/path", "https://h?x"] {
        let error = refused(|flags| flags.s3_endpoint = Some(endpoint.to_owned()));
        assert_eq!(error.class(), ExitClass::Config, "{endpoint}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = refused(|flags| flags.credentials_dir = Some(folder.path().to_owned()));
    assert_eq!(error.class(), ExitClass::Config);
    assert!(error.message().contains("accessKeyID") && error.message().contains("the Secret"), "{error}");
    fs::write(folder.path().join("accessKeyID"), "key\n").unwrap();
    fs::write(folder.path().join("secretAccessKey"), "\n").unwrap();
    let error = refused(|flags| flags.credentials_dir = Some(folder.path().to_owned()));
    assert!(error.message().contains("secretAccessKey"), "{error}");
    let error = refused(|flags| flags.s3_ca_file = Some(folder.path().join("accessKeyID")));
    assert_eq!(error.class(), ExitClass::Config);
    let error = refused(|flags| flags.s3_ca_file = Some(folder.path().join("none")));
    // A missing CA file is an error of the configuration, not of the store.
    assert_eq!(error.class(), ExitClass::Config);
    assert!(error.message().contains("/none: the Secret"), "{error}");
}

/// URLs at which object_store would panic with the first request.
#[test]
fn an_address_that_cannot_be_is_refused_by_name() {
    for endpoint in ["https://h:90000", "https://a:b:c", "https://h:port", "http://1.2.3.4.5:9000", "https://[::1"] {
        for s3_force_path_style in [None, Some(false), Some(true)] {
            let error = refused(|flags| {
                flags.s3_endpoint = Some(endpoint.to_owned());
                flags.s3_force_path_style = s3_force_path_style;
            });
            assert_eq!(error.class(), ExitClass::Config, "{endpoint}");
            assert!(error.message().starts_with("--s3-endpoint"), "{endpoint}: {error}");
        }
    }
    for region in ["", "eu west", "eu\nwest", "é", "a/b"] {
        let error = refused(|flags| flags.s3_region = Some(region.to_owned()));
        assert!(error.message().starts_with("--s3-region"), "{region:?}: {error}");
    }
}

#[test]
fn a_bucket_whose_name_is_no_host_name_needs_the_path_style() {
    for bucket in ["Old_Bucket", "tenant:bucket", &"b".repeat(64)] {
        let open = |endpoint: Option<&str>, path_style: Option<bool>| {
            let flags = StoreFlags {
                s3_endpoint: endpoint.map(str::to_owned),
                s3_force_path_style: path_style,
                ..StoreFlags::default()
            };
            super::open(&flags, Place { name: bucket.to_owned(), prefix: None })
        };
        for (endpoint, path_style) in [(None, None), (Some("https://h"), Some(false)), (None, Some(false))] {
            let error = open(endpoint, path_style).unwrap_err();
            assert!(error.class() == ExitClass::Config && error.message().contains("forcePathStyle"), "{error}");
        }
        for (endpoint, path_style) in [(None, Some(true)), (Some("https://h"), None), (Some("https://h"), Some(true))] {
            open(endpoint, path_style).unwrap();
        }
    }
}

#[test]
fn the_region_is_the_flags_or_the_environments() {
    let by = |flag: Option<&str>, env: &[(&str, &str)]| {
        let flags = StoreFlags { s3_region: flag.map(str::to_owned), ..StoreFlags::default() };
        region_by(&flags, |name| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    };
    let both = [("AWS_REGION", "eu-west-1"), ("AWS_DEFAULT_REGION", "eu-west-2")];
    assert_eq!(by(Some("eu-central-1"), &both).unwrap(), "eu-central-1");
    assert_eq!(by(None, &both).unwrap(), "eu-west-1");
    assert_eq!(by(None, &[("AWS_REGION", ""), both[1]]).unwrap(), "eu-west-2");
    assert_eq!(by(None, &[]).unwrap(), "us-east-1");
    assert!(by(None, &[("AWS_REGION", "eu west")]).unwrap_err().message().starts_with("AWS_REGION="));
}

#[test]
fn aws_services_are_in_the_domain_of_their_partition() {
    for (region, s3, sts) in [
        ("eu-west-1", None, None),
        (
            "cn-north-1",
            Some("https://bkt.s3.cn-north-1.amazonaws.com.cn"),
            Some("https://sts.cn-north-1.amazonaws.com.cn"),
        ),
        ("us-gov-west-1", None, None),
    ] {
        let flags = StoreFlags { s3_region: Some(region.to_owned()), ..StoreFlags::default() };
        let builder = reached(AmazonS3Builder::new(), &flags, "bkt").unwrap();
        let at = |key| builder.get_config_value(&config_key(key).unwrap());
        assert_eq!(at("aws_endpoint_url_s3").as_deref(), s3, "{region}");
        assert_eq!(at("aws_endpoint_url_sts").as_deref(), sts, "{region}");
    }
}

#[test]
fn the_bucket_is_in_the_path_where_no_name_can_have_it() {
    let path = |endpoint: Option<&str>, bucket: &str| {
        let flags = StoreFlags { s3_endpoint: endpoint.map(str::to_owned), ..StoreFlags::default() };
        let said = AmazonS3Builder::new().with_config(config_key("aws_endpoint_url_s3").unwrap(), "https://other");
        let reached = endpoint.map(|_| reached(said, &flags, bucket).unwrap());
        let at = |key| reached.as_ref().and_then(|builder| builder.get_config_value(&config_key(key).unwrap()));
        assert_eq!(at("aws_endpoint_url_s3"), at("aws_endpoint_url"), "the environment wins over the flag");
        in_path(&flags, bucket)
    };
    for (endpoint, bucket, expected) in [
        (None, "bkt", false),
        (None, "backups.example.com", true),
        (Some("https://s3.example.com"), "bkt", true),
        (Some("http://s3:7070"), "bkt", true),
        (Some("https://s3.eu-west-1.amazonaws.com"), "bkt", false),
        (Some("https://s3.eu-west-1.amazonaws.com"), "a.b", true),
        (Some("https://bucket.vpce-1a2b.s3.eu-west-1.vpce.amazonaws.com"), "bkt", false),
        (Some("http://10.0.0.5:9000"), "bkt", true),
        (Some("https://[fd00::1]:9000"), "bkt", true),
    ] {
        assert_eq!(path(endpoint, bucket), expected, "{endpoint:?}, {bucket}");
    }
    for (path_style, endpoint, expected) in [
        (true, "https://s3.eu-west-1.amazonaws.com", true),
        (false, "https://oss.example.com", false),
        (false, "http://10.0.0.5:9000", true),
    ] {
        let flags = StoreFlags {
            s3_endpoint: Some(endpoint.to_owned()),
            s3_force_path_style: Some(path_style),
            ..StoreFlags::default()
        };
        assert_eq!(in_path(&flags, "bkt"), expected, "{path_style}, {endpoint}");
    }
    let flags = StoreFlags::default();
    let said = AmazonS3Builder::new().with_config(config_key("aws_endpoint_url").unwrap(), "https://minio.example.com");
    let error = reached(said, &flags, "bkt").unwrap_err();
    assert!(error.message().contains("--s3-endpoint"), "{error}");
}

/// A bucket whose own rule locks new objects requires a checksum, also for objects that are removed later.
#[test]
fn what_is_not_locked_itself_still_has_the_checksum_of_what_is() {
    let locked = StoreFlags {
        s3_object_lock: Some(LockMode::Governance),
        s3_object_lock_days: Some(1),
        ..StoreFlags::default()
    };
    let plain = crate::unlocked(&locked);
    assert_eq!((plain.s3_object_lock, plain.s3_object_lock_days), (None, None));
    assert!(has_checksum(&plain));
    assert_eq!(crate::unlocked(&StoreFlags::default()), StoreFlags::default());
}

#[test]
fn a_credential_that_no_header_takes_is_refused_by_name() {
    for name in ["accessKeyID", "sessionToken"] {
        for value in ["canary\ncanary", "canary\u{1}", "canaryé", "canary canary"] {
            let folder = tempfile::tempdir().unwrap();
            for name in ["accessKeyID", "secretAccessKey"] {
                fs::write(folder.path().join(name), "key").unwrap();
            }
            fs::write(folder.path().join(name), value).unwrap();
            let error = refused(|flags| flags.credentials_dir = Some(folder.path().to_owned()));
            assert_eq!(error.class(), ExitClass::Config);
            assert!(error.message().contains(name) && !error.message().contains("canary"), "{error}");
        }
    }
}

#[test]
fn an_option_that_cannot_be_is_refused_by_name() {
    let class = |class: &str, endpoint: Option<&str>| {
        open(
            &StoreFlags {
                s3_storage_class: Some(class.to_owned()),
                s3_endpoint: endpoint.map(str::to_owned),
                ..StoreFlags::default()
            },
            place(),
        )
        .map(|bucket| bucket.options().storage_class.clone())
    };
    assert_eq!(class("STANDARD_IA", None).unwrap().as_deref(), Some("STANDARD_IA"));
    assert_eq!(class("COLD", Some("https://h")).unwrap().as_deref(), Some("COLD"));
    for (name, endpoint) in
        [("COLD", None), ("", None), ("standard", None), ("GLACIER", Some("https://h")), ("A B", Some("https://h"))]
    {
        let error = class(name, endpoint).unwrap_err();
        assert_eq!(error.class(), ExitClass::Config);
        assert!(error.message().contains("--s3-storage-class"), "{error}");
    }
    for tag in ["", "novalue", "=v", "k=\n", "k=<", &format!("{}=v", "k".repeat(129))] {
        let error = refused(|flags| flags.s3_tag = vec![tag.to_owned()]);
        assert!(error.message().starts_with("--s3-tag"), "{error}");
    }
    let error = refused(|flags| flags.s3_tag = vec!["k=v".to_owned(); 11]);
    assert!(error.message().starts_with("--s3-tag"), "{error}");
    for sse in [None, Some(S3Sse::Aes256)] {
        let error = refused(|flags| {
            flags.s3_sse = sse;
            flags.s3_sse_kms_key_id = Some("alias/x".to_owned());
        });
        assert!(error.message().contains("--s3-sse=aws:kms"), "{error}");
    }
    let error = refused(|flags| {
        flags.s3_sse = Some(S3Sse::AwsKms);
        flags.s3_sse_kms_key_id = Some("a\nb".to_owned());
    });
    assert!(error.message().starts_with("--s3-sse-kms-key-id"), "{error}");
}

#[test]
fn every_option_given_is_one_that_a_refusal_names() {
    let flags = StoreFlags {
        s3_sse: Some(S3Sse::AwsKms),
        s3_sse_kms_key_id: Some("alias/x".to_owned()),
        s3_storage_class: Some("STANDARD_IA".to_owned()),
        s3_tag: vec!["a=b=c".to_owned()],
        s3_checksum: Some(S3Checksum::Sha256),
        ..StoreFlags::default()
    };
    let bucket = open(&flags, place()).unwrap();
    assert_eq!(
        bucket.options().flags,
        ["--s3-sse", "--s3-sse-kms-key-id", "--s3-storage-class", "--s3-tag", "--s3-checksum"]
    );
    assert_eq!(bucket.options().tags.encoded(), "a=b%3Dc");
    let plain = StoreFlags { s3_checksum: Some(S3Checksum::WhenRequired), ..StoreFlags::default() };
    assert!(open(&plain, place()).unwrap().options().flags.is_empty());
}

#[test]
fn secrets_do_not_show_in_debug_output() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["accessKeyID", "secretAccessKey", "sessionToken"] {
        fs::write(folder.path().join(name), "canary").unwrap();
    }
    let flags = StoreFlags { credentials_dir: Some(folder.path().to_owned()), ..StoreFlags::default() };
    assert!(!format!("{:?}", open(&flags, place()).unwrap()).contains("canary"));
}
