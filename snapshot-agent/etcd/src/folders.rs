//! Mounted Secrets with etcd's certificates and login: replaces folders in the flags by their files.
//!
//! This file decides which files a folder may hold. The manifest that mounts a Secret need not know its keys: the Secret of an
//! etcd without client certificates has none. `tls.rs` and `connect.rs` read and check the files.

use std::path::Path;

use holdfast_contract::EtcdFlags;
use holdfast_contract::error::{Error, Result};

use super::tls;

/// Returns the flags with the folders' files instead of the folders.
pub fn opened(flags: &EtcdFlags) -> Result<EtcdFlags> {
    let mut out = EtcdFlags { tls_dir: None, auth_dir: None, ..flags.clone() };
    if let Some(folder) = &flags.tls_dir {
        if flags.cacert.is_some() || flags.cert.is_some() || flags.key.is_some() {
            return Err(Error::config("--tls-dir replaces --cacert, --cert and --key. Omit these flags"));
        }
        let there = |name: &str| Some(folder.join(name)).filter(|file| file.exists());
        (out.cacert, out.cert, out.key) = (there("ca.crt"), there("tls.crt"), there("tls.key"));
        if out.cacert.is_none() && out.cert.is_none() {
            return Err(Error::config(format!(
                "--tls-dir {} holds neither ca.crt nor tls.crt: the Secret needs the keys ca.crt and, for an etcd that asks \
                 for a client certificate, tls.crt and tls.key",
                folder.display()
            )));
        }
    }
    if let Some(folder) = &flags.auth_dir {
        if flags.user.is_some() || flags.password_file.is_some() {
            return Err(Error::config("--auth-dir replaces --user and --password-file. Omit these flags"));
        }
        out.user = Some(user(folder)?);
        out.password_file = Some(folder.join("password"));
    }
    Ok(out)
}

fn user(folder: &Path) -> Result<String> {
    let file = folder.join("username");
    let wrong = |what: &str| Error::config(format!("--auth-dir: {}: {what}", file.display()));
    let name = String::from_utf8(tls::read("--auth-dir", &file)?).map_err(|_| wrong("the file is no UTF-8 text"))?;
    let name = name.trim_end_matches(['\r', '\n']);
    if name.is_empty() || name.contains(['\n', ':']) {
        return Err(wrong("the file has to hold only the name of a user"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn a_folder_stands_for_the_files_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let flags = EtcdFlags { tls_dir: Some(path.to_owned()), ..EtcdFlags::default() };
        let error = opened(&flags).unwrap_err();
        assert!(error.class() == ExitClass::Config && error.message().contains("ca.crt"), "{error}");
        fs::write(path.join("ca.crt"), "x").unwrap();
        let ca = EtcdFlags { cacert: Some(path.join("ca.crt")), ..EtcdFlags::default() };
        assert_eq!(opened(&flags).unwrap(), ca, "no client certificate is no trouble");
        for name in ["tls.crt", "tls.key"] {
            fs::write(path.join(name), "x").unwrap();
        }
        let both = EtcdFlags { cert: Some(path.join("tls.crt")), key: Some(path.join("tls.key")), ..ca };
        assert_eq!(opened(&flags).unwrap(), both);
        let twice = EtcdFlags { cacert: Some("ca".into()), ..flags };
        assert!(opened(&twice).unwrap_err().message().contains("Omit these flags"));
    }

    #[test]
    fn a_user_comes_from_a_file_like_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let flags = EtcdFlags { auth_dir: Some(path.to_owned()), ..EtcdFlags::default() };
        assert!(opened(&flags).unwrap_err().message().contains("username"));
        for (content, user) in [("root", Some("root")), ("root\n", Some("root")), ("", None), ("root:canary", None)] {
            fs::write(path.join("username"), content).unwrap();
            match (opened(&flags), user) {
                (Ok(opened), Some(user)) => {
                    assert_eq!(
                        (opened.user.as_deref(), opened.password_file),
                        (Some(user), Some(path.join("password")))
                    );
                }
                (Err(error), None) => assert!(!error.message().contains("canary"), "{error}"),
                (other, _) => panic!("{content:?}: {other:?}"),
            }
        }
        let twice = EtcdFlags { user: Some("a".to_owned()), ..flags };
        assert!(opened(&twice).unwrap_err().message().contains("Omit these flags"));
    }
}
