//! Keys of age as text: recipients (public, `age1...`) and identities (private, `AGE-SECRET-KEY-1...`).
//!
//! It decides what is a key, and that a private one never gets into an error, a log line or `Debug` output: what is
//! wrong with an identity is told by its file and line.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32, Hrp};
use x25519_dalek::{PublicKey, SharedSecret, StaticSecret};
use zeroize::Zeroizing;

use super::KEY;
use crate::error::{Error, Result, io_error};

/// How the text of a public key begins, before the `1` that separates.
const RECIPIENT: &str = "age";

/// How the text of a private key begins, before the `1` that separates.
const IDENTITY: &str = "age-secret-key-";

/// A file of `age-keygen` has 190 bytes; so has a Kubernetes Secret at most 1 MiB, and nobody has that many keys.
const MAX_FILE: u64 = 64 << 10;

/// Files of one folder that are read.
const MAX_FILES: usize = 100;

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The beginning or the checksum is wrong.
    #[error("is no X25519 recipient of age (`age1` and 58 more letters and digits, as `age-keygen -y` prints it)")]
    Recipient,
    /// The beginning or the checksum is wrong.
    #[error("is no X25519 identity of age (`AGE-SECRET-KEY-1...`, as `age-keygen` writes it)")]
    Identity,
    /// A point of small order: what is encrypted for it can be read by everybody.
    #[error("is a weak public key: nothing may be encrypted for it")]
    Weak,
}

/// A public key: whoever has its identity can decrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient(PublicKey);

impl Recipient {
    pub(super) const fn point(&self) -> &PublicKey {
        &self.0
    }
}

impl FromStr for Recipient {
    type Err = KeyError;

    fn from_str(text: &str) -> std::result::Result<Self, KeyError> {
        let bytes = text.starts_with("age1").then(|| decode(RECIPIENT, text)).flatten().ok_or(KeyError::Recipient)?;
        let recipient = Self(PublicKey::from(*bytes));
        // The same key has one text.
        if recipient.to_string() != text {
            return Err(KeyError::Recipient);
        }
        // A scalar is a multiple of eight, so any of them shows a point of small order.
        let shared: SharedSecret = StaticSecret::from([9; KEY]).diffie_hellman(&recipient.0);
        if shared.was_contributory() { Ok(recipient) } else { Err(KeyError::Weak) }
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Hrp::parse(RECIPIENT).map_err(|_| fmt::Error)?;
        bech32::encode_lower_to_fmt::<Bech32, _>(f, text, self.0.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Those who can decrypt: each alone. None: nothing is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipients(Vec<Recipient>);

impl Recipients {
    /// Reads public keys, each once; `Err` names the bad one and the flag.
    pub fn parse(texts: &[String]) -> Result<Self> {
        let mut all: Vec<Recipient> = vec![];
        for text in texts {
            let recipient = text.parse().map_err(|error: KeyError| {
                if text.to_ascii_lowercase().starts_with(IDENTITY) {
                    return Error::config(
                        "--age-recipient was given a private key: give the public one (`age-keygen -y FILE` prints \
                         it), and make a new pair, since this one has been seen",
                    );
                }
                let text: String = text.chars().take(80).collect();
                Error::config(format!("--age-recipient {text:?} {error}"))
            })?;
            if !all.contains(&recipient) {
                all.push(recipient);
            }
        }
        Ok(Self(all))
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Recipient> {
        self.0.iter()
    }
}

/// A private key. It is wiped when it is dropped, and shows only its public half.
#[derive(Clone)]
pub struct Identity(StaticSecret);

impl Identity {
    /// The public half.
    pub fn recipient(&self) -> Recipient {
        Recipient(PublicKey::from(&self.0))
    }

    pub(super) const fn secret(&self) -> &StaticSecret {
        &self.0
    }
}

impl FromStr for Identity {
    type Err = KeyError;

    fn from_str(text: &str) -> std::result::Result<Self, KeyError> {
        let upper = text.bytes().all(|b| !b.is_ascii_lowercase());
        let bytes = upper.then(|| decode(IDENTITY, text)).flatten().ok_or(KeyError::Identity)?;
        Ok(Self(StaticSecret::from(*bytes)))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity of {}", self.recipient())
    }
}

/// Private keys that are tried one after the other.
#[derive(Clone, Debug, Default)]
pub struct Identities(Vec<Identity>);

impl Identities {
    /// Reads every file of these folders (mounted Secrets). None at all is no error: it is for the caller to say what
    /// is missing.
    pub fn read(folders: &[impl AsRef<Path>]) -> Result<Self> {
        let mut all = Self::default();
        for folder in folders {
            all.read_folder(folder.as_ref())?;
        }
        Ok(all)
    }

    /// Reads these identity files.
    pub fn read_files(files: &[impl AsRef<Path>]) -> Result<Self> {
        let mut all = Self::default();
        for file in files {
            all.read_file(file.as_ref()).map_err(|error| error.context("--identity"))?;
        }
        Ok(all)
    }

    fn read_folder(&mut self, folder: &Path) -> Result<()> {
        let reading = || format!("reading --age-identity-dir={}", folder.display());
        let entries = fs::read_dir(folder).map_err(io_error(reading()))?;
        let mut files = vec![];
        for entry in entries {
            let path = entry.map_err(io_error(reading()))?.path();
            // kubelet keeps a Secret's files in a folder of its own, `..data`, with a link to each beside it.
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

    /// Reads what `age-keygen` writes: one key a line, `#` begins a comment.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut all = Self::default();
        all.read_text(text)?;
        Ok(all)
    }

    fn read_text(&mut self, text: &[u8]) -> Result<()> {
        let remedy = "every key of the Secret has to be an identity file as `age-keygen` writes it";
        if text.len() as u64 > MAX_FILE {
            return Err(Error::config(format!("longer than {MAX_FILE} bytes: {remedy}")));
        }
        if text.starts_with(b"age-encryption.org/") || text.starts_with(b"-----BEGIN AGE") {
            return Err(Error::config("the identity file is encrypted itself: decrypt it first (`age -d`)"));
        }
        // What is not text is told like any other line that is no key.
        let lines = str::from_utf8(text).unwrap_or("?").lines().map(str::trim).enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let identity = line
                .parse()
                .map_err(|error: KeyError| Error::config(format!("line {} {error}: {remedy}", number + 1)))?;
            self.0.push(identity);
        }
        Ok(())
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Identity> {
        self.0.iter()
    }

    /// Their public halves, for messages.
    pub fn recipients(&self) -> String {
        self.iter().map(|identity| identity.recipient().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// The 32 bytes of a key.
fn decode(kind: &str, text: &str) -> Option<Zeroizing<[u8; KEY]>> {
    let checked = CheckedHrpstring::new::<Bech32>(text).ok()?;
    if checked.hrp() != Hrp::parse(kind).ok()? {
        return None;
    }
    checked.validate_segwit_padding().ok()?;
    let mut bytes = Zeroizing::new([0; KEY]);
    let mut found = checked.byte_iter();
    for byte in bytes.iter_mut() {
        *byte = found.next()?;
    }
    found.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ExitClass;

    /// From the test vectors of the format; its public half is derived.
    const SECRET: &str = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";

    #[test]
    fn keys_are_read_as_they_are_written_and_not_otherwise() {
        let identity: Identity = SECRET.parse().unwrap();
        let public = identity.recipient().to_string();
        assert_eq!(public.parse::<Recipient>().unwrap(), identity.recipient());
        assert_eq!(public.len(), 62);
        let flipped = public.replacen('q', "p", 1);
        let changed = if flipped == public { public.replacen('l', "p", 1) } else { flipped };
        for bad in
            ["", "age1", "age1pq1qqq", SECRET, &changed, &public[..61], &public.to_uppercase(), "ssh-ed25519 AAA"]
        {
            assert_eq!(bad.parse::<Recipient>(), Err(KeyError::Recipient), "{bad:?}");
        }
        for bad in ["", "AGE-SECRET-KEY-1", &public, &SECRET.to_lowercase(), &SECRET[..73], "AGE-PLUGIN-X-1QQQ"] {
            assert_eq!(bad.parse::<Identity>().map(|_| ()), Err(KeyError::Identity), "{bad:?}");
        }
        let weak = Recipient(PublicKey::from([0; KEY])).to_string();
        assert_eq!(weak.parse::<Recipient>(), Err(KeyError::Weak));
    }

    #[test]
    fn a_bad_recipient_is_named_and_a_private_key_is_not() {
        let public = SECRET.parse::<Identity>().unwrap().recipient().to_string();
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
            (b"age-encryption.org/v1\n", "encrypted itself"),
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
        assert_eq!(error.class(), ExitClass::NotFound);
    }
}
