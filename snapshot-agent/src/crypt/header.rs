//! The header of an age file: the file's key, wrapped for each recipient, and an HMAC over it.
//!
//! It decides what is a header, as strictly as the format does: what can be written in two ways is taken in one, so that
//! the HMAC is always that of the bytes that were read. Stanzas of kinds that we do not know are passed over.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use super::{CryptError, FILE_KEY, FileKey, Identities, Identity, KEY, Recipient, Recipients, TAG, derive, random};

const VERSION: &str = "age-encryption.org/v1";
const X25519: &str = "X25519";
const WRAPPING: &[u8] = b"age-encryption.org/v1/X25519";

/// Characters of one line of a stanza's body.
const LINE: usize = 64;

/// A header for a hundred recipients has 11 KiB.
const MAX_HEADER: usize = 64 << 10;

/// A header for these recipients, up to the payload's nonce.
pub(super) fn render(file_key: &FileKey, recipients: &Recipients) -> Result<Vec<u8>, CryptError> {
    let mut header = format!("{VERSION}\n");
    for recipient in recipients.iter() {
        let secret = StaticSecret::from(*random::<KEY>()?);
        let (share, wrapped) = wrap(file_key, recipient, &secret)?;
        // 48 bytes of body make exactly one line, and one that is full would need an empty one after it.
        header.push_str(&format!("-> {X25519} {}\n{}\n", encode(&share), encode(&wrapped)));
    }
    header.push_str("---");
    let mac = encode(hmac::sign(&mac_key(file_key)?, header.as_bytes()).as_ref());
    header.push_str(&format!(" {mac}\n"));
    Ok(header.into_bytes())
}

/// Reads a header, and nothing behind it, and unwraps the file's key with the first identity that fits.
pub(super) fn read(from: &mut impl Read, identities: &Identities) -> Result<FileKey, CryptError> {
    let mut header = Header { from, seen: vec![] };
    let version = header.line()?.ok_or(CryptError::NotAge)?;
    if version != VERSION.as_bytes() {
        return Err(CryptError::NotAge);
    }
    let (mut ours, mut stanzas, mut passphrase) = (vec![], 0, false);
    let (mac, signed) = loop {
        let before = header.seen.len();
        let line = header.line()?.ok_or(CryptError::Header("it ends too early"))?;
        let line = str::from_utf8(&line).map_err(|_| CryptError::Header("it is not ASCII"))?;
        if let Some(mac) = line.strip_prefix("--- ") {
            break (decode(mac)?, before + "---".len());
        }
        let arguments = line.strip_prefix("-> ").ok_or(CryptError::Header("a stanza begins otherwise"))?;
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let graphic = |argument: &&str| !argument.is_empty() && argument.bytes().all(|b| b.is_ascii_graphic());
        if !arguments.iter().all(graphic) {
            return Err(CryptError::Header("an argument is empty or not ASCII"));
        }
        let body = header.body()?;
        match arguments.as_slice() {
            [X25519, share] => ours.push(Wrapped::of(share, &body)?),
            [X25519, ..] => return Err(CryptError::Header("an X25519 stanza has one argument")),
            ["scrypt", ..] => passphrase = true,
            _ => {}
        }
        stanzas += 1;
    };
    if passphrase && stanzas > 1 {
        return Err(CryptError::Header("a passphrase stands alone"));
    }
    if mac.len() != KEY {
        return Err(CryptError::Header("the HMAC has 32 bytes"));
    }
    let file_key = unwrap(&ours, identities)?.ok_or(CryptError::NoMatch)?;
    let signed = header.seen.get(..signed).ok_or(CryptError::Library)?;
    hmac::verify(&mac_key(&file_key)?, signed, &mac).map_err(|_| CryptError::Mac)?;
    Ok(file_key)
}

fn mac_key(file_key: &FileKey) -> Result<hmac::Key, CryptError> {
    Ok(hmac::Key::new(hmac::HMAC_SHA256, derive(&**file_key, &[], b"header")?.as_ref()))
}

/// The file's key for one recipient: the share that goes with it, and the key wrapped.
fn wrap(
    file_key: &FileKey,
    recipient: &Recipient,
    secret: &StaticSecret,
) -> Result<([u8; KEY], Zeroizing<Vec<u8>>), CryptError> {
    let share = PublicKey::from(secret).to_bytes();
    let key = wrapping_key(secret, recipient.point(), &share, recipient.point().as_bytes())?;
    let mut wrapped = Zeroizing::new(file_key.to_vec());
    key.seal_in_place_append_tag(zero_nonce(), Aad::empty(), &mut *wrapped).map_err(|_| CryptError::Library)?;
    Ok((share, wrapped))
}

fn unwrap(stanzas: &[Wrapped], identities: &Identities) -> Result<Option<FileKey>, CryptError> {
    for stanza in stanzas {
        for identity in identities.iter() {
            if let Some(key) = stanza.open(identity)? {
                return Ok(Some(key));
            }
        }
    }
    Ok(None)
}

/// A stanza of our kind.
struct Wrapped {
    share: [u8; KEY],
    body: [u8; FILE_KEY + TAG],
}

impl Wrapped {
    fn of(share: &str, body: &[u8]) -> Result<Self, CryptError> {
        let share = decode(share)?.try_into().map_err(|_| CryptError::Header("an X25519 share has 32 bytes"))?;
        let body = body.try_into().map_err(|_| CryptError::Header("a wrapped key has 32 bytes"))?;
        Ok(Self { share, body })
    }

    fn open(&self, identity: &Identity) -> Result<Option<FileKey>, CryptError> {
        let own = identity.recipient();
        let key = wrapping_key(identity.secret(), &PublicKey::from(self.share), &self.share, own.point().as_bytes())?;
        let mut body = Zeroizing::new(self.body);
        Ok(match key.open_in_place(zero_nonce(), Aad::empty(), body.as_mut()) {
            Ok(opened) => opened.first_chunk().map(|key: &[u8; FILE_KEY]| Zeroizing::new(*key)),
            Err(_) => None,
        })
    }
}

/// The key that wraps the file's, from either side: the shared secret, bound to both public keys.
fn wrapping_key(
    secret: &StaticSecret,
    public: &PublicKey,
    share: &[u8; KEY],
    recipient: &[u8; KEY],
) -> Result<LessSafeKey, CryptError> {
    let shared = secret.diffie_hellman(public);
    if !shared.was_contributory() {
        return Err(CryptError::Header("an X25519 share is a point of small order"));
    }
    let key = derive(shared.as_bytes(), &[&share[..], &recipient[..]].concat(), WRAPPING)?;
    UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).map(LessSafeKey::new).map_err(|_| CryptError::Library)
}

/// The key is used once.
fn zero_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn encode(bytes: &[u8]) -> String {
    STANDARD_NO_PAD.encode(bytes)
}

/// Strict: no padding, no bits left over.
fn decode(text: &str) -> Result<Vec<u8>, CryptError> {
    STANDARD_NO_PAD.decode(text).map_err(|_| CryptError::Header("it holds what is no base64"))
}

/// The header as it is read, a byte at a time: what follows is not ours to take.
struct Header<'a, R: Read> {
    from: &'a mut R,
    seen: Vec<u8>,
}

impl<R: Read> Header<'_, R> {
    /// The next line, without its end; `None`: nothing comes that could be one.
    fn line(&mut self) -> Result<Option<Vec<u8>>, CryptError> {
        let (start, mut byte) = (self.seen.len(), [0]);
        loop {
            match self.from.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) if self.seen.len() == MAX_HEADER => return Err(CryptError::Header("it has no end")),
                Ok(_) => self.seen.extend(byte),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            // What cannot be an age file is not read on and on.
            if start == 0 && self.seen.len() > VERSION.len() + 1 {
                return Ok(None);
            }
            if byte == *b"\n" {
                return Ok(self.seen.get(start..self.seen.len() - 1).map(<[u8]>::to_vec));
            }
        }
    }

    /// A stanza's body: full lines, and one that is not full.
    fn body(&mut self) -> Result<Vec<u8>, CryptError> {
        let mut text = String::new();
        loop {
            let line = self.line()?.ok_or(CryptError::Header("it ends too early"))?;
            let line = str::from_utf8(&line).map_err(|_| CryptError::Header("it is not ASCII"))?;
            if line.len() > LINE {
                return Err(CryptError::Header("a line of a stanza is too long"));
            }
            text.push_str(line);
            if line.len() < LINE {
                return decode(&text);
            }
        }
    }
}
