//! The payload of an age file: pieces of 64 KiB, each with its number and whether it is the last.
//!
//! It decides that nothing comes out that was not proven: a piece is given away only when its tag fits, and the end only
//! counts when a piece says that it is the last. Memory is one piece on either side.

use std::fmt;
use std::io::{self, Read, Write};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::{CryptError, FILE_KEY, FileKey, Identities, Recipients, TAG, derive, header, random};

/// Bytes of a piece before it is encrypted.
const PIECE: usize = 64 << 10;

/// Bytes of a full piece in the file.
const SEALED: usize = PIECE + TAG;

/// Bytes of the nonce that the payload's key is derived with.
const NONCE: usize = 16;

/// The payload's key and the number of the next piece.
struct Pieces {
    key: LessSafeKey,
    number: u64,
}

impl Pieces {
    fn new(file_key: &FileKey, nonce: &[u8; NONCE]) -> Result<Self, CryptError> {
        let key = derive(&**file_key, nonce, b"payload")?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).map_err(|_| CryptError::Library)?;
        Ok(Self { key: LessSafeKey::new(key), number: 0 })
    }

    /// Eleven bytes of number and one that says whether it is the last: no nonce comes twice.
    fn nonce(&mut self, last: bool) -> Result<Nonce, CryptError> {
        let mut nonce = [0; 12];
        let (_, number) = nonce.split_at_mut(3);
        let (number, flag) = number.split_at_mut(8);
        number.copy_from_slice(&self.number.to_be_bytes());
        flag.fill(u8::from(last));
        self.number = self.number.checked_add(1).ok_or(CryptError::Library)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Encrypts what is written to it. Without [`Encryptor::finish`] the file has no end, and nobody takes it for whole.
pub struct Encryptor<W: Write> {
    to: W,
    pieces: Pieces,
    /// The next piece: full only until more comes, since the last one is written otherwise.
    piece: Zeroizing<Vec<u8>>,
}

impl<W: Write> Encryptor<W> {
    /// Writes the header; a key of its own for every file.
    pub fn new(recipients: &Recipients, mut to: W) -> io::Result<Self> {
        let file_key: FileKey = random::<FILE_KEY>()?;
        let nonce = random::<NONCE>()?;
        to.write_all(&header::render(&file_key, recipients)?)?;
        to.write_all(nonce.as_ref())?;
        let piece = Zeroizing::new(Vec::with_capacity(SEALED));
        Ok(Self { to, pieces: Pieces::new(&file_key, &nonce)?, piece })
    }

    /// Writes the last piece and gives the writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        Ok(self.to)
    }

    fn seal(&mut self, last: bool) -> io::Result<()> {
        let nonce = self.pieces.nonce(last)?;
        self.pieces
            .key
            .seal_in_place_append_tag(nonce, Aad::empty(), &mut *self.piece)
            .map_err(|_| CryptError::Library)?;
        self.to.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}

impl<W: Write> Write for Encryptor<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() == PIECE && !bytes.is_empty() {
            self.seal(false)?;
        }
        let length = bytes.len().min(PIECE - self.piece.len());
        let (taken, _) = bytes.split_at(length);
        self.piece.extend_from_slice(taken);
        Ok(length)
    }

    /// What is not a full piece yet stays: pieces are of one size.
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> fmt::Debug for Encryptor<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryptor").field("pieces", &self.pieces.number).finish_non_exhaustive()
    }
}

/// Decrypts what is read from it. Its end is proven: a file that was cut ends in an error.
pub struct Decryptor<R: Read> {
    from: R,
    pieces: Pieces,
    /// The piece that is being given away, from `given` to `open`.
    piece: Zeroizing<Vec<u8>>,
    given: usize,
    open: usize,
    /// The first byte of the next piece, read to see whether there is one.
    ahead: Option<u8>,
    then: Then,
}

/// What follows the piece that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    More,
    End,
    /// A piece was broken: those behind it are never given away, however often somebody asks.
    Broken(u64),
}

impl<R: Read> Decryptor<R> {
    /// Reads the header and unwraps the file's key with the first identity that fits.
    pub fn new(identities: &Identities, mut from: R) -> Result<Self, CryptError> {
        let file_key = header::read(&mut from, identities)?;
        let mut nonce = [0; NONCE];
        if fill(&mut from, &mut nonce)? != NONCE {
            return Err(CryptError::Header("it ends too early"));
        }
        let piece = Zeroizing::new(vec![0; SEALED + 1]);
        Ok(Self {
            from,
            pieces: Pieces::new(&file_key, &nonce)?,
            piece,
            given: 0,
            open: 0,
            ahead: None,
            then: Then::More,
        })
    }

    /// Decrypts the next piece. One byte more is read than it has: the last piece is the one that nothing follows.
    fn next(&mut self) -> Result<(), CryptError> {
        let number = self.pieces.number;
        (self.given, self.open, self.then) = (0, 0, Then::Broken(number));
        let begun = usize::from(self.ahead.is_some());
        if let (Some(first), Some(ahead)) = (self.piece.first_mut(), self.ahead.take()) {
            *first = ahead;
        }
        let read = begun + fill(&mut self.from, self.piece.get_mut(begun..).unwrap_or_default())?;
        let last = read <= SEALED;
        if !last {
            self.ahead = self.piece.get(SEALED).copied();
        }
        let nonce = self.pieces.nonce(last)?;
        let sealed = self.piece.get_mut(..read.min(SEALED)).unwrap_or_default();
        let opened = self.pieces.key.open_in_place(nonce, Aad::empty(), sealed).map_or(None, |open| Some(open.len()));
        // Only a file without content has an empty last piece.
        let open = opened.filter(|length| *length > 0 || number == 0).ok_or(CryptError::Piece(number))?;
        (self.open, self.then) = (open, if last { Then::End } else { Then::More });
        Ok(())
    }
}

impl<R: Read> Read for Decryptor<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while self.given == self.open {
            match self.then {
                Then::More => self.next()?,
                Then::End => return Ok(0),
                Then::Broken(number) => return Err(CryptError::Piece(number).into()),
            }
        }
        let rest = self.piece.get(self.given..self.open).unwrap_or_default();
        let length = rest.len().min(into.len());
        let ((into, _), (rest, _)) = (into.split_at_mut(length), rest.split_at(length));
        into.copy_from_slice(rest);
        self.given += length;
        Ok(length)
    }
}

impl<R: Read> fmt::Debug for Decryptor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decryptor").field("pieces", &self.pieces.number).finish_non_exhaustive()
    }
}

/// Reads until there is no room or no more, and says how much.
fn fill(from: &mut impl Read, mut into: &mut [u8]) -> io::Result<usize> {
    let whole = into.len();
    while !into.is_empty() {
        match from.read(into) {
            Ok(0) => break,
            Ok(got) => into = into.get_mut(got..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(whole - into.len())
}
