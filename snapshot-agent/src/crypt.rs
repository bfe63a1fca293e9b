//! Encryption of what is stored, in the age format (age-encryption.org/v1), for X25519 keys.
//!
//! It decides that the format is age's, so that `age -d` opens an object without us, and that saving knows public keys
//! alone. Which runs encrypt is `save.rs`'s, which keys are asked for is `restore.rs`'s. Not here: passphrases, armor,
//! plugins, SSH and post-quantum keys. age proves that nothing was cut or changed, never who wrote it: everybody may
//! have the public keys. That is for the manifest's sha256, and for whoever wrote that down elsewhere.
//!
//! ```text
//! age-encryption.org/v1                 ┐
//! -> X25519 <share>                     │ once for each recipient: the file's key, for him alone   header.rs
//! <wrapped file key>                    │
//! --- <HMAC of all this>                ┘
//! 16 bytes of nonce, then pieces of 64 KiB, each with its tag; the last one says that it is        stream.rs
//! ```

mod header;
mod keys;
mod stream;

use std::io::{self, Read, Write};

use ring::hkdf;
use zeroize::Zeroizing;

pub use keys::{Identities, Identity, KeyError, Recipient, Recipients};
pub use stream::{Decryptor, Encryptor};

/// Bytes of the key that one file is encrypted with.
const FILE_KEY: usize = 16;

/// Bytes of X25519 keys and of the keys that are derived.
const KEY: usize = 32;

/// Bytes that ChaCha20-Poly1305 adds.
const TAG: usize = 16;

/// Wiped when it is dropped.
type FileKey = Zeroizing<[u8; FILE_KEY]>;

/// Why something cannot be encrypted or decrypted. Never holds a key or a byte of the content.
#[derive(Debug, thiserror::Error)]
pub enum CryptError {
    /// The beginning is not that of an age file.
    #[error("it is no age file of version 1")]
    NotAge,
    /// The header is not as the format has it.
    #[error("its age header is broken: {0}")]
    Header(&'static str),
    /// The header was changed.
    #[error("its age header was changed: the HMAC does not match")]
    Mac,
    /// It is encrypted for other keys.
    #[error("none of the identities fits")]
    NoMatch,
    /// A piece was changed, cut, or put in another place.
    #[error("its encrypted bytes were changed or cut, at piece {0}")]
    Piece(u64),
    /// ring refused; with keys of these lengths and a working source of chance it does not.
    #[error("the cryptography library failed")]
    Library,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<CryptError> for io::Error {
    fn from(error: CryptError) -> Self {
        match error {
            CryptError::Io(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}

/// 32 bytes derived with HKDF-SHA256.
fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> Result<Zeroizing<[u8; KEY]>, CryptError> {
    let mut key = Zeroizing::new([0; KEY]);
    hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[info], hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(key.as_mut()))
        .map_err(|_| CryptError::Library)?;
    Ok(key)
}

/// Random bytes.
fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, CryptError> {
    let mut bytes = Zeroizing::new([0; N]);
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), bytes.as_mut())
        .map_err(|_| CryptError::Library)?;
    Ok(bytes)
}

/// A writer that encrypts if there is anybody to encrypt for.
pub(crate) enum Sealing<W: Write> {
    Plain(W),
    Age(Box<Encryptor<W>>),
}

impl<W: Write> Sealing<W> {
    pub(crate) fn new(recipients: &Recipients, to: W) -> io::Result<Self> {
        if recipients.is_empty() {
            Ok(Self::Plain(to))
        } else {
            Ok(Self::Age(Box::new(Encryptor::new(recipients, to)?)))
        }
    }

    /// Writes the last piece, without which nothing can be decrypted to its end.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(to) => Ok(to),
            Self::Age(encryptor) => encryptor.finish(),
        }
    }
}

impl<W: Write> Write for Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Age(encryptor) => encryptor.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Age(encryptor) => encryptor.flush(),
        }
    }
}

/// A reader that decrypts if there is something to decrypt with.
pub(crate) enum Opening<R: Read> {
    Plain(R),
    Age(Box<Decryptor<R>>),
}

impl<R: Read> Opening<R> {
    pub(crate) fn new(identities: Option<&Identities>, from: R) -> Result<Self, CryptError> {
        match identities {
            None => Ok(Self::Plain(from)),
            Some(identities) => Ok(Self::Age(Box::new(Decryptor::new(identities, from)?))),
        }
    }
}

impl<R: Read> Read for Opening<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(from) => from.read(into),
            Self::Age(decryptor) => decryptor.read(into),
        }
    }
}
