//! Keys of age as text: recipients (public, `age1...`) and identities (private, `AGE-SECRET-KEY-1...`).
//!
//! This file decides which texts are keys, and that a private key never gets into an error, a log line or `Debug` output: an
//! error names the identity's file and line.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use age::Identity as _;
use age::secrecy::ExposeSecret;
use age::x25519::{Identity, Recipient};
use age_core::format::Stanza;
use age_core::primitives::bech32_decode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use holdfast_contract::error::{Error, Result, io_error, of_request};
use zeroize::Zeroizing;

/// Start of a private key's text, in lower case.
const IDENTITY: &str = "age-secret-key-";

/// Maximum size of a file. A file of `age-keygen` has 190 bytes; a Kubernetes Secret has at most 1 MiB.
const MAX_FILE: u64 = 64 << 10;

/// Maximum number of recipients: more would make the header longer than the agent reads.
const MAX_RECIPIENTS: usize = 100;

/// Maximum number of files in a folder.
const MAX_FILES: usize = 100;

/// Reason for which a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum KeyError {
    /// The prefix or the checksum is wrong.
    #[error("is no X25519 recipient of age (`age1` and 58 more letters and digits, the output of `age-keygen -y`)")]
    Recipient,
    /// The prefix or the checksum is wrong.
    #[error("is no X25519 identity of age (`AGE-SECRET-KEY-1...`, the output of `age-keygen`)")]
    Identity,
    /// A point of small order: any reader could decrypt the object.
    #[error("is a weak public key: any reader could decrypt the snapshot")]
    Weak,
}

/// Parses a public key. The owner of its identity can decrypt.
fn recipient(text: &str) -> std::result::Result<Recipient, KeyError> {
    let recipient: Recipient = text.parse().map_err(|_| KeyError::Recipient)?;
    // Each key has exactly one text.
    if recipient.to_string() != text {
        return Err(KeyError::Recipient);
    }
    if is_weak(text) { Err(KeyError::Weak) } else { Ok(recipient) }
}

/// Whether age would refuse this key as a share in a header, and panic with such a recipient. A point of small order,
/// multiplied by any identity's number, gives zero.
fn is_weak(recipient: &str) -> bool {
    let point = bech32_decode(recipient, |_| (), |_| Ok(()), |_, bytes| Ok(bytes.collect::<Vec<_>>()));
    let args = point.map(|point| vec![STANDARD_NO_PAD.encode(point)]).unwrap_or_default();
    let stanza = Stanza { tag: "X25519".to_owned(), args, body: vec![0; 32] };
    // age tries a valid share, and the zero body is not a wrapped key for this identity.
    Identity::generate().unwrap_stanza(&stanza).is_some()
}

/// Parses a private key, which is wiped when dropped.
fn identity(text: &str) -> std::result::Result<Identity, KeyError> {
    let identity: Identity = text.parse().map_err(|_| KeyError::Identity)?;
    if identity.to_string().expose_secret() == text { Ok(identity) } else { Err(KeyError::Identity) }
}

/// Recipients, each of which can decrypt alone. Empty: no encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipients(Vec<Recipient>);

impl Recipients {
    /// Parses public keys, and drops duplicates; `Err` names the invalid key and the flag.
    pub fn parse(texts: &[String]) -> Result<Self> {
        let mut all: Vec<Recipient> = vec![];
        for text in texts {
            let recipient = recipient(text).map_err(|error| {
                if text.to_ascii_lowercase().starts_with(IDENTITY) {
                    return Error::config(
                        "--age-recipient holds a private key. Give the public key (the output of `age-keygen -y \
                         FILE`), and make a new pair, because the private key is disclosed",
                    );
                }
                let text: String = text.chars().take(80).collect();
                Error::config(format!("--age-recipient {text:?} {error}"))
            })?;
            if !all.contains(&recipient) {
                all.push(recipient);
            }
            if all.len() > MAX_RECIPIENTS {
                return Err(Error::config(format!("--age-recipient was given more than {MAX_RECIPIENTS} times")));
            }
        }
        Ok(Self(all))
    }

    /// Whether there are no recipients.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the recipients in order; their text is the input of [`Recipients::parse`].
    pub fn iter(&self) -> impl Iterator<Item = &Recipient> {
        self.0.iter()
    }
}

/// Private keys that are tried in order. `Debug` shows only their public keys.
#[derive(Clone, Default)]
pub struct Identities(Vec<Identity>);

impl Identities {
    /// Reads every file of these folders (mounted Secrets). An empty result is no error: the caller reports the missing key.
    pub fn read(folders: &[impl AsRef<Path>]) -> Result<Self> {
        let mut all = Self::default();
        for folder in folders {
            all.read_folder(folder.as_ref()).map_err(of_request)?;
        }
        Ok(all)
    }

    /// Reads these identity files, and the identity files in these folders.
    pub fn read_files(paths: &[impl AsRef<Path>]) -> Result<Self> {
        let mut all = Self::default();
        for path in paths.iter().map(AsRef::as_ref) {
            let read = if path.is_dir() { all.read_folder(path) } else { all.read_file(path) };
            read.map_err(|error| of_request(error).context("--identity"))?;
        }
        Ok(all)
    }

    fn read_folder(&mut self, folder: &Path) -> Result<()> {
        let reading = || format!("reading the folder of identities {}", folder.display());
        let entries = fs::read_dir(folder).map_err(io_error(reading()))?;
        let mut files = vec![];
        for entry in entries {
            let path = entry.map_err(io_error(reading()))?.path();
            // kubelet keeps a Secret's files in the folder `..data`, with links beside it.
            let kubelets = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".."));
            if !kubelets && !path.is_dir() {
                files.push(path);
            }
            if files.len() > MAX_FILES {
                return Err(Error::config(format!("{}: there are more than {MAX_FILES} files", reading())));
            }
        }
        files.sort();
        files.iter().try_for_each(|file| self.read_file(file))
    }

    fn read_file(&mut self, file: &Path) -> Result<()> {
        let mut text = Zeroizing::new(Vec::new());
        let reading = || format!("reading the identities in {}", file.display());
        let opened = File::open(file).map_err(io_error(reading()))?;
        opened.take(MAX_FILE + 1).read_to_end(&mut text).map_err(io_error(reading()))?;
        self.read_text(&text).map_err(|error| error.context(file.display()))
    }

    /// Parses the output of `age-keygen`: one key per line, `#` starts a comment.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut all = Self::default();
        all.read_text(text)?;
        Ok(all)
    }

    fn read_text(&mut self, text: &[u8]) -> Result<()> {
        let remedy = "every key of the Secret has to be an identity file of `age-keygen`";
        if text.len() as u64 > MAX_FILE {
            return Err(Error::config(format!("longer than {MAX_FILE} bytes: {remedy}")));
        }
        if text.starts_with(b"age-encryption.org/") || text.starts_with(b"-----BEGIN AGE") {
            return Err(Error::config("the identity file is encrypted. Decrypt the file first (`age -d`)"));
        }
        // Binary content gives the same error as any invalid line.
        let lines = str::from_utf8(text).unwrap_or("?").lines().map(str::trim).enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let found =
                identity(line).map_err(|error| Error::config(format!("line {} {error}: {remedy}", number + 1)))?;
            self.0.push(found);
        }
        Ok(())
    }

    /// Whether there are no identities.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the identities in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Identity> {
        self.0.iter()
    }

    /// Returns the public keys of the identities.
    pub fn recipients(&self) -> Vec<String> {
        self.iter().map(|identity| identity.to_public().to_string()).collect()
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identities").field(&self.recipients()).finish()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;

    use super::*;

    /// From the test vectors of the format; its public key is derived.
    const SECRET: &str = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";

    #[test]
    fn keys_are_read_as_they_are_written_and_not_otherwise() {
        let public = identity(SECRET).unwrap().to_public().to_string();
        assert_eq!(recipient(&public).unwrap(), identity(SECRET).unwrap().to_public());
        assert_eq!(public.len(), 62);
        let flipped = public.replacen('q', "p", 1);
        let changed = if flipped == public { public.replacen('l', "p", 1) } else { flipped };
        for bad in
            ["", "age1", "age1pq1qqq", SECRET, &changed, &public[..61], &public.to_uppercase(), "ssh-ed25519 AAA"]
        {
            assert_eq!(recipient(bad), Err(KeyError::Recipient), "{bad:?}");
        }
        for bad in ["", "AGE-SECRET-KEY-1", &public, &SECRET.to_lowercase(), &SECRET[..73], "AGE-PLUGIN-X-1QQQ"] {
            assert_eq!(identity(bad).map(|_| ()), Err(KeyError::Identity), "{bad:?}");
        }
    }

    #[test]
    fn identities_are_read_from_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.txt");
        fs::write(&file, format!("# a comment\n{SECRET}\n")).unwrap();
        fs::create_dir(folder.path().join("..data")).unwrap();
        let public = vec![identity(SECRET).unwrap().to_public().to_string()];
        for path in [file.as_path(), folder.path()] {
            assert_eq!(Identities::read_files(&[path]).unwrap().recipients(), public, "{}", path.display());
        }
        let error = Identities::read_files(&[folder.path().join("none")]).err().unwrap();
        assert!(error.message().contains("--identity"), "{error}");
    }

    #[test]
    fn a_weak_recipient_is_refused_however_it_is_written() {
        for weak in [
            // The points 0 and 1, the two of order eight, -1; and 0, 1 and -1 again, not reduced.
            "age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq5cu47z",
            "age1qyqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqj7vrya",
            "age1ur4h5lpmgxu2u9jku0a0r87ydtdqnr0tnsetrlvxvgz3vh6fhqqqzyt4v9",
            "age1t7wft09r2zxzfvwsk92eeql0tvzyghxytqwgapkcyf8dm5ylz9ts6wm9s8",
            "age1anlllllllllllllllllllllllllllllllllllllllllllllllals4n2t7m",
            "age1ahlllllllllllllllllllllllllllllllllllllllllllllllalsn46ayy",
            "age1amlllllllllllllllllllllllllllllllllllllllllllllllalselrwrv",
            "age1anllllllllllllllllllllllllllllllllllllllllllllllllls3hcv9z",
        ] {
            assert_eq!(recipient(weak), Err(KeyError::Weak), "{weak}");
        }
    }

    #[test]
    fn a_bad_recipient_is_named_and_a_private_key_is_not() {
        let public = identity(SECRET).unwrap().to_public().to_string();
        let error = Recipients::parse(&[public.clone(), "age1oops".to_owned()]).unwrap_err();
        assert_eq!(error.class(), ExitClass::Config);
        assert!(error.message().contains("--age-recipient \"age1oops\""), "{error}");
        let error = Recipients::parse(&[SECRET.to_owned()]).unwrap_err();
        assert!(!error.message().contains(&SECRET[16..30]) && error.message().contains("private key"), "{error}");
        assert_eq!(Recipients::parse(&[public.clone(), public]).unwrap().iter().count(), 1);
    }

    #[test]
    fn identity_files_are_those_of_age_keygen() {
        let file = format!("# created: 2026-11-21\r\n# public key: age1...\r\n{SECRET}\r\n\n  {SECRET}\n");
        let found = Identities::parse(file.as_bytes()).unwrap();
        assert_eq!(found.iter().count(), 2);
        let shown = format!("{found:?} {:?}", found.recipients());
        assert!(shown.contains("age1") && !shown.to_uppercase().contains(&SECRET[16..30]), "{shown}");
        let cut = &SECRET[..60];
        let long = "#\n".repeat(40_000);
        for (text, says) in [
            (format!("# one\n{cut}\n").as_bytes(), "line 2"),
            (b"\xff\xfe", "line 1"),
            (b"age-encryption.org/v1\n", "file is encrypted"),
            (long.as_bytes(), "longer than"),
        ] {
            let error = Identities::parse(text).unwrap_err();
            assert_eq!(error.class(), ExitClass::Config);
            assert!(error.message().contains(says) && !error.message().contains(&SECRET[16..30]), "{error}");
        }
        assert!(Identities::parse(b"# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn a_mounted_secret_is_a_folder_of_links() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("..2026_11_21");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("key.txt"), SECRET).unwrap();
        std::os::unix::fs::symlink("..2026_11_21", folder.path().join("..data")).unwrap();
        assert!(Identities::read(&[folder.path()]).unwrap().is_empty());
        std::os::unix::fs::symlink("..data/key.txt", folder.path().join("key.txt")).unwrap();
        fs::write(folder.path().join(".more"), SECRET).unwrap();
        assert_eq!(Identities::read(&[folder.path()]).unwrap().iter().count(), 2);
        fs::write(folder.path().join("other"), "password\n").unwrap();
        let error = Identities::read(&[folder.path()]).unwrap_err();
        assert!(error.message().contains("other: line 1"), "{error}");
        assert!(!error.message().contains("password"), "{error}");
        let error = Identities::read(&[Path::new("/nonexistent")]).unwrap_err();
        assert_eq!(error.class(), ExitClass::Config);
    }
}
