//! A snapshot file from a user: plain, compressed or encrypted, as its first bytes show, whatever its name is.
//!
//! This file decides the format, and unpacks the file into a scratch folder, up to a limit: a small file may unpack to more
//! than a disk holds. The unpacked database proves itself, because the file has no manifest to compare with.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek as _, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use holdfast_contract::error::{Error, Result, beneath, io_error, of_request, task_error};
use holdfast_io::files::free_bytes;
use holdfast_io::scratch::Scratch;

use crate::crypt::{CryptError, Decryptor, Identities};

/// Size of a read, and enough to recognize a file.
const PIECE: usize = 256 << 10;

/// Format of a packed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// Compressed by zstd.
    Zstd,
    /// Compressed by gzip.
    Gzip,
    /// Encrypted by age.
    Age,
}

impl Packed {
    /// Recognizes the first bytes: RFC 8878 (zstd), RFC 1952 (gzip), age-encryption.org/v1. A database starts with a page's
    /// number, 0.
    pub fn recognize(head: &[u8]) -> Option<Self> {
        const HEADS: [(&[u8], Packed); 3] = [
            (&[0x28, 0xb5, 0x2f, 0xfd], Packed::Zstd),
            (&[0x1f, 0x8b], Packed::Gzip),
            (b"age-encryption.org/v1", Packed::Age),
        ];
        HEADS.iter().find(|(begins, _)| head.starts_with(begins)).map(|(_, packed)| *packed)
    }

    /// Returns the name for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Age => "age",
        }
    }

    /// Returns the command that unpacks such a file.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Zstd => "zstd -d FILE",
            Self::Gzip => "gzip -d FILE",
            Self::Age => "age -d -i KEY -o OUT FILE, and zstd -d or gzip -d on OUT where it is compressed",
        }
    }
}

/// Recognizes other archives by the first bytes (PKWARE's APPNOTE; the .xz and the bzip2 format; POSIX pax), and returns the
/// command that unpacks them.
pub fn archive(head: &[u8]) -> Option<(&'static str, &'static str)> {
    const HEADS: [(usize, &[u8], (&str, &str)); 4] = [
        (0, b"PK\x03\x04", ("zip", "unzip FILE")),
        (0, &[0xfd, b'7', b'z', b'X', b'Z', 0], ("xz", "xz -d FILE")),
        (0, b"BZh", ("bzip2", "bzip2 -d FILE")),
        (257, b"ustar", ("tar", "tar -xf FILE")),
    ];
    let begins = |at: usize, bytes: &[u8]| head.get(at..).is_some_and(|head| head.starts_with(bytes));
    HEADS.iter().find(|(at, bytes, _)| begins(*at, bytes)).map(|(.., text)| *text)
}

/// Bytes that [`archive`] needs.
pub const HEAD: usize = 512;

/// Refuses an archive that the agent does not unpack.
pub fn refuse_archive(what: &str, head: &[u8]) -> Result<()> {
    match archive(head) {
        Some((kind, command)) => Err(Error::config(format!(
            "{what} is packed with {kind}, which the agent does not unpack: unpack the file ({command}), and name the \
             snapshot in it"
        ))),
        None => Ok(()),
    }
}

/// Maximum size of an unpacked file.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Number of bytes.
    pub bytes: u64,
    /// The error beyond the limit.
    pub beyond: Error,
}

/// Decrypts and decompresses into a file. `what`: the packed file, for messages.
pub fn unpack_file(
    what: &str,
    packed: Packed,
    from: &File,
    identities: &Identities,
    (to, limit): (&mut File, &Limit),
) -> Result<()> {
    let mut begin = from;
    begin.rewind().map_err(io_error(what))?;
    let mut bounded = Bounded { to, remaining: limit.bytes };
    unpack(from, identities, &mut bounded).map_err(|error| broken(what, packed, error, limit))
}

/// Refuses an unpacked archive, such as the tar of a gzip file. `what`: the packed file, for messages.
pub fn refuse_packed_archive(what: &str, unpacked: &File) -> Result<()> {
    refuse_archive(what, &head_of(unpacked).map_err(io_error(what))?)
}

/// Writes at most this many bytes.
struct Bounded<'a> {
    to: &'a mut File,
    remaining: u64,
}

/// The unpacked file exceeds its limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the file unpacks to more than it may")]
struct TooMuch;

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let remaining = self.remaining.checked_sub(bytes.len() as u64).ok_or_else(|| io::Error::other(TooMuch))?;
        let written = self.to.write(bytes)?;
        self.remaining = remaining + (bytes.len() - written) as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Returns the first bytes of a file, whatever its position is.
pub fn head_of(file: &File) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    let got = file.read_at(&mut head, 0)?;
    head.truncate(got);
    Ok(head)
}

/// A file that can be read as a database. Dropping it removes the unpacked copy.
pub struct Plain {
    /// The file.
    pub path: PathBuf,
    /// Format of the packed file.
    pub packed: Option<Packed>,
    _scratch: Option<Scratch>,
}

impl Plain {
    /// Returns the file itself, or its unpacked content in a folder below `scratch`.
    pub async fn unpack(path: &Path, identities: &[PathBuf], scratch: &Path) -> Result<Self> {
        let reading = format!("reading {}", path.display());
        let file = File::open(path).map_err(io_error(&reading)).map_err(of_request)?;
        let head = head_of(&file).map_err(io_error(&reading))?;
        refuse_archive(&path.display().to_string(), &head)?;
        let Some(packed) = Packed::recognize(&head) else {
            return Ok(Self { path: path.to_owned(), packed: None, _scratch: None });
        };
        if packed == Packed::Age && identities.is_empty() {
            return Err(Error::config(format!(
                "{} is encrypted with age: name an identity file with --identity, or decrypt the file first ({})",
                path.display(),
                packed.command()
            )));
        }
        let identities = Identities::read_files(identities)?;
        let bytes = file.metadata().map_err(io_error(&reading))?.len();
        // A lower bound: the unpacked size is not known before.
        let room = Scratch::new(scratch, bytes)?;
        let limit = limit_below(scratch, &reading)?;
        let (unpacked, mut to) = room.file("snapshot.db")?;
        let unpacking = tokio::task::spawn_blocking(move || {
            unpack_file(&reading, packed, &file, &identities, (&mut to, &limit))?;
            refuse_packed_archive(&reading, &to)
        });
        unpacking.await.map_err(|error| task_error(&error))??;
        Ok(Self { path: unpacked, packed: Some(packed), _scratch: Some(room) })
    }
}

/// Leaves a tenth of the free space, because other programs write to the disk of a scratch folder too.
fn limit_below(scratch: &Path, reading: &str) -> Result<Limit> {
    let free = free_bytes(scratch).map_err(io_error(format!("looking at --scratch={}", scratch.display())))?;
    let bytes = free - free / 10;
    let beyond = Error::full(format!(
        "{reading}: the file unpacks to more than {} MiB, and {} has {} MiB of free space, a tenth of which stays free. Name \
         another folder with --scratch",
        bytes >> 20,
        scratch.display(),
        free >> 20
    ));
    Ok(Limit { bytes, beyond })
}

/// Decrypts, and decompresses the result if it is compressed.
fn unpack(from: &File, identities: &Identities, to: &mut impl Write) -> std::result::Result<(), CryptError> {
    let mut from = BufReader::with_capacity(PIECE, from);
    match Packed::recognize(from.fill_buf()?) {
        Some(Packed::Age) => inflate(BufReader::with_capacity(PIECE, Decryptor::new(identities, from)?), to),
        Some(Packed::Zstd | Packed::Gzip) | None => inflate(from, to),
    }
}

fn inflate(mut from: impl BufRead, to: &mut impl Write) -> std::result::Result<(), CryptError> {
    match Packed::recognize(from.fill_buf()?) {
        Some(Packed::Zstd) => io::copy(&mut zstd::stream::read::Decoder::with_buffer(from)?, to)?,
        Some(Packed::Gzip) => io::copy(&mut MultiGzDecoder::new(from), to)?,
        Some(Packed::Age) | None => io::copy(&mut from, to)?,
    };
    Ok(())
}

/// Converts an error; an error of the operating system is about the disk, not about the file.
fn broken(reading: &str, packed: Packed, error: CryptError, limit: &Limit) -> Error {
    match error {
        CryptError::Io(error) if beneath::<TooMuch>(&error).is_some() => limit.beyond.clone(),
        CryptError::NoMatch => Error::config(format!("{reading}: none of the identities given with --identity fits")),
        CryptError::Io(error) if error.raw_os_error().is_some() => {
            io_error(format!("unpacking the file, {reading}"))(error)
        }
        other => Error::corrupt(format!("{reading}: the {} file is broken or was cut: {other}", packed.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use age::secrecy::ExposeSecret as _;
    use holdfast_contract::{Compression, ExitClass};

    use super::*;
    use crate::crypt::{Recipients, encrypt};
    use crate::pack::Packing;

    fn packed(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        let mut packing = Packing::new(compression, Vec::new()).unwrap();
        packing.write_all(bytes).unwrap();
        packing.finish().unwrap()
    }

    #[tokio::test]
    async fn what_is_packed_otherwise_is_named_with_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot.db");
        let tar = [&[b'x'; 257][..], b"ustar\0", &[0; 300]].concat();
        for (bytes, command) in [
            (b"PK\x03\x04rest".to_vec(), "(unzip FILE)"),
            (b"\xfd7zXZ\0rest".to_vec(), "(xz -d FILE)"),
            (b"BZh9rest".to_vec(), "(bzip2 -d FILE)"),
            (tar.clone(), "(tar -xf FILE)"),
            (packed(Compression::Gzip, &tar), "(tar -xf FILE)"),
            (packed(Compression::Zstd, &tar), "(tar -xf FILE)"),
        ] {
            fs::write(&path, bytes).unwrap();
            let error = Plain::unpack(&path, &[], folder.path()).await.err().unwrap();
            assert!(error.class() == ExitClass::Config && error.message().contains(command), "{error}");
        }
    }

    /// A megabyte of zeros compresses to a kilobyte.
    #[test]
    fn no_more_comes_out_than_may() {
        let folder = tempfile::tempdir().unwrap();
        let zeros = vec![0; 1 << 20];
        for how in [Compression::Zstd, Compression::Gzip] {
            let (stored, out) = (folder.path().join("stored"), folder.path().join("out"));
            fs::write(&stored, packed(how, &zeros)).unwrap();
            let unpack = |bytes: u64| {
                let from = File::open(&stored).unwrap();
                let kind = Packed::recognize(&head_of(&from).unwrap()).unwrap();
                let mut to = File::create(&out).unwrap();
                let limit = Limit { bytes, beyond: Error::full("too much") };
                unpack_file("x", kind, &from, &Identities::default(), (&mut to, &limit))
            };
            assert_eq!(unpack(1 << 20), Ok(()), "{how:?}");
            assert_eq!(fs::read(&out).unwrap(), zeros, "{how:?}");
            assert_eq!(unpack((1 << 20) - 1), Err(Error::full("too much")), "{how:?}");
            assert!(fs::metadata(&out).unwrap().len() < 1 << 20, "{how:?}");
        }
    }

    #[tokio::test]
    async fn a_file_is_read_by_its_first_bytes_whatever_its_name_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot.db");
        let database: Vec<u8> = (0..300_000).map(|i| u8::try_from(i / 700 % 251).unwrap()).collect();
        let key = age::x25519::Identity::generate();
        let (identity, other) = (folder.path().join("key.txt"), folder.path().join("other.txt"));
        fs::write(&identity, key.to_string().expose_secret()).unwrap();
        fs::write(&other, age::x25519::Identity::generate().to_string().expose_secret()).unwrap();
        let sealed = |bytes: &[u8]| {
            let recipients = Recipients::parse(&[key.to_public().to_string()]).unwrap();
            let mut writer = encrypt(&recipients, Vec::new()).unwrap();
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        };
        let [zstd, gzip] = [Compression::Zstd, Compression::Gzip].map(|how| packed(how, &database));
        let of = async |bytes: &[u8], identities: &[PathBuf]| {
            fs::write(&path, bytes).unwrap();
            Plain::unpack(&path, identities, folder.path()).await
        };
        let keys = std::slice::from_ref(&identity);
        for (bytes, keys, is) in [
            (database.clone(), &[][..], None),
            (zstd.clone(), &[], Some(Packed::Zstd)),
            ([&zstd[..], &zstd].concat(), &[], Some(Packed::Zstd)),
            (gzip.clone(), keys, Some(Packed::Gzip)),
            (sealed(&database), keys, Some(Packed::Age)),
            (sealed(&zstd), keys, Some(Packed::Age)),
            (sealed(&gzip), keys, Some(Packed::Age)),
        ] {
            let plain = of(&bytes, keys).await.unwrap();
            assert_eq!((plain.packed, is.is_none()), (is, plain.path == path));
            let found = fs::read(&plain.path).unwrap();
            assert!(found.starts_with(&database) && found.len() % database.len() == 0, "{is:?}");
        }
        for (bytes, keys, class, says) in [
            (zstd[..zstd.len() - 9].to_vec(), &[][..], ExitClass::Corrupt, "the zstd file is broken or was cut"),
            (gzip[..gzip.len() - 9].to_vec(), &[], ExitClass::Corrupt, "the gzip file is broken or was cut"),
            (sealed(&zstd)[..600].to_vec(), keys, ExitClass::Corrupt, "the age file is broken or was cut"),
            (sealed(&zstd), &[], ExitClass::Config, "--identity"),
            (sealed(&zstd), std::slice::from_ref(&other), ExitClass::Config, "none of the identities"),
        ] {
            let error = of(&bytes, keys).await.err().unwrap();
            assert!(error.class() == class && error.message().contains(says), "{says}: {error}");
        }
        let remaining: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(remaining.len(), 3, "no scratch stays: {remaining:?}");
    }
}
