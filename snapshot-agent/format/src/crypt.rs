//! Encryption of stored objects, in the age format (age-encryption.org/v1), for X25519 keys.
//!
//! The format is the `age` crate's. This file decides: the format, so that `age -d` opens an object without Holdfast; that a
//! save knows only public keys; the maximum length of a header; and the errors for unreadable files. `verbs/save.rs` decides
//! which runs encrypt, `verbs/restore.rs` which keys are needed. Not supported: passphrases, armor, plugins, SSH and
//! post-quantum keys. age proves that nothing was cut or changed, but not the writer, because public keys are public. The
//! manifest's sha256 proves the data, if the user has recorded it elsewhere.

mod keys;

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use age::DecryptError;
use age::stream::{StreamReader, StreamWriter};

pub use keys::{Identities, Recipients};

/// Maximum bytes read in search of a header's end: age has no limit, and reads the header again at every line. A header with
/// the maximum number of recipients has 11 KiB.
const MAX_HEADER: u64 = 16 << 10;

/// Size of a read within the header. Reads of content are longer, and not copied.
const AHEAD: usize = 4 << 10;

/// Bytes of content that age encrypts and authenticates as one piece.
const PIECE: u64 = 64 << 10;

/// Reason of a failed decryption. Never holds a key or a byte of the content.
#[derive(Debug, thiserror::Error)]
pub enum CryptError {
    /// The object starts with other bytes, or the header is invalid.
    #[error("the object is no age file of version 1, or its header is broken")]
    NotAge,
    /// The header ends too early, or does not end.
    #[error("the age header is broken: {0}")]
    Header(&'static str),
    /// The header was changed.
    #[error("the age header was changed: the HMAC does not match")]
    Mac,
    /// The object is encrypted for other keys.
    #[error("none of the identities fits")]
    NoMatch,
    /// A piece was changed, cut or moved.
    #[error("the encrypted bytes were changed or cut, at piece {0}")]
    Piece(u64),
    /// Reading failed.
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

/// Returns a writer that encrypts. Without `finish` the file has no end, and no reader accepts it.
pub fn encrypt<W: Write>(recipients: &Recipients, to: W) -> io::Result<StreamWriter<W>> {
    let each = recipients.iter().map(|recipient| recipient as &dyn age::Recipient);
    age::Encryptor::with_recipients(each).map_err(io::Error::other)?.wrap_output(to)
}

/// Decrypts a reader. The end is authenticated: a truncated file gives an error.
pub struct Decryptor<R: Read> {
    content: StreamReader<BufReader<Bounded<R>>>,
    /// Number of returned bytes.
    given: u64,
}

impl<R: Read> Decryptor<R> {
    /// Reads the header and unwraps the file's key with the first fitting identity.
    pub fn new(identities: &Identities, from: R) -> Result<Self, CryptError> {
        let remaining = Arc::new(AtomicU64::new(MAX_HEADER));
        let from = BufReader::with_capacity(AHEAD, Bounded { from, remaining: Arc::clone(&remaining) });
        let each = identities.iter().map(|identity| identity as &dyn age::Identity);
        let opened = age::Decryptor::new_buffered(from).and_then(|file| file.decrypt(each));
        let content = opened.map_err(|error| match error {
            DecryptError::NoMatchingKeys => CryptError::NoMatch,
            DecryptError::InvalidMac => CryptError::Mac,
            DecryptError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => error.into(),
            DecryptError::Io(_) if remaining.load(Ordering::Relaxed) == 0 => {
                CryptError::Header("the header has no end")
            }
            DecryptError::Io(_) => CryptError::Header("the header ends too early"),
            // age reports a broken header of version 1 as another version too.
            _ => CryptError::NotAge,
        })?;
        remaining.store(u64::MAX, Ordering::Relaxed);
        Ok(Self { content, given: 0 })
    }
}

impl<R: Read> Read for Decryptor<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.content.read(into).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => CryptError::Piece(self.given / PIECE).into(),
            _ => error,
        })?;
        self.given += got as u64;
        Ok(got)
    }
}

impl<R: Read> fmt::Debug for Decryptor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decryptor").field("given", &self.given).finish_non_exhaustive()
    }
}

/// A reader that ends after this many bytes, until the limit is raised.
struct Bounded<R> {
    from: R,
    remaining: Arc<AtomicU64>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let remaining = self.remaining.load(Ordering::Relaxed);
        let length = into.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        let got = self.from.read(into.get_mut(..length).unwrap_or_default())?;
        self.remaining.store(remaining.saturating_sub(got as u64), Ordering::Relaxed);
        Ok(got)
    }
}

/// A writer that encrypts if there are recipients.
pub enum Sealing<W: Write> {
    /// Without encryption.
    Plain(W),
    /// Encrypted for age recipients.
    Age(StreamWriter<W>),
}

impl<W: Write> Sealing<W> {
    /// Begins the stream; without recipients it stays as it is.
    pub fn new(recipients: &Recipients, to: W) -> io::Result<Self> {
        if recipients.is_empty() { Ok(Self::Plain(to)) } else { encrypt(recipients, to).map(Self::Age) }
    }

    /// Writes the last piece, without which decryption fails at the end.
    pub fn finish(self) -> io::Result<W> {
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

/// A reader that decrypts if there are identities.
pub enum Opening<R: Read> {
    /// Without encryption.
    Plain(R),
    /// Encrypted for age recipients.
    Age(Decryptor<R>),
}

impl<R: Read> Opening<R> {
    /// Begins to read; without identities an encrypted stream is an error.
    pub fn new(identities: Option<&Identities>, from: R) -> Result<Self, CryptError> {
        match identities {
            None => Ok(Self::Plain(from)),
            Some(identities) => Decryptor::new(identities, from).map(Self::Age),
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

#[cfg(test)]
mod tests {
    use age::secrecy::ExposeSecret;
    use age::x25519::Identity;

    use super::*;

    /// Counts the read bytes.
    struct Counted<R>(R, u64);

    impl<R: Read> Read for Counted<R> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let got = self.0.read(into)?;
            self.1 += got as u64;
            Ok(got)
        }
    }

    fn identities(one: &Identity) -> Identities {
        Identities::parse(one.to_string().expose_secret().as_bytes()).unwrap()
    }

    #[test]
    fn a_header_without_an_end_is_not_read_on_and_on() {
        let identities = identities(&Identity::generate());
        let line = "A".repeat(64) + "\n";
        for (begin, again) in [
            ("", "x"),
            ("age-encryption.org/", "x"),
            ("age-encryption.org/v1\n-> ", "x"),
            ("age-encryption.org/v1\n", "-> x\n\n"),
            ("age-encryption.org/v1\n-> x\n", &line),
            // The HMAC is too short, and the next line is invalid.
            ("age-encryption.org/v1\n-> x\n\n--- x\n", "x"),
        ] {
            let endless = again.repeat((1 << 20) / again.len());
            let mut from = Counted(begin.as_bytes().chain(endless.as_bytes()), 0);
            let error = Decryptor::new(&identities, &mut from).unwrap_err();
            assert!(
                matches!(error, CryptError::Header("the header has no end") | CryptError::NotAge),
                "{begin:?}: {error}"
            );
            assert!(from.1 <= MAX_HEADER, "{begin:?}: {} bytes were read", from.1);
        }
    }

    #[test]
    fn as_many_recipients_as_are_taken_can_be_read_and_then_nothing_is_bounded() {
        let mut pairs: Vec<_> = (0..=100).map(|_| Identity::generate()).collect();
        let mut public: Vec<_> = pairs.iter().map(|identity| identity.to_public().to_string()).collect();
        assert!(Recipients::parse(&public).unwrap_err().message().contains("more than 100"));
        pairs.truncate(100);
        public.truncate(100);
        let mut writer = encrypt(&Recipients::parse(&public).unwrap(), vec![]).unwrap();
        let plain = vec![7; 200_000];
        writer.write_all(&plain).unwrap();
        let sealed = writer.finish().unwrap();
        let mut opened = vec![];
        Decryptor::new(&identities(&pairs[99]), &sealed[..]).unwrap().read_to_end(&mut opened).unwrap();
        assert_eq!(opened, plain);
    }
}
