//! Encryption of frames: AES-256-GCM, a key for each writer, no nonce used twice.
//!
//! A writer (one opening of a volume) draws 128 random bits, its *salt*, and seals with a key derived from the volume's master key and the
//! salt (HKDF-SHA-256). It counts its runs; the nonce of a frame is the run's number (8 bytes) and the frame's (4 bytes). So a nonce
//! repeats under one key only if two writers draw the same 128 bits: a crash, a clone or a copy of a volume cannot cause it. Compaction copies sealed
//! runs as they are and needs no keys.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use aes_gcm::{
    Aes256Gcm, KeyInit,
    aead::{AeadInOut, Buffer},
};
use hkdf::Hkdf;
use sha2::Sha256;

use crate::{Decoder, FormatError};

/// Bytes that a sealed frame is longer than the plain one.
pub const TAG_LEN: usize = 16;
/// Bytes before the frame table of a sealed run.
pub const SEAL_HEAD_LEN: usize = 48;
const WHAT: &str = "a sealed frame";
const KEYS_KEPT: usize = 1024;

/// The key of a volume: 256 random bits. It is never printed.
#[derive(Clone)]
pub struct MasterKey {
    id: u32,
    bits: [u8; 32],
}

impl MasterKey {
    /// The key with this number (1 for a volume's first one).
    #[must_use]
    pub fn new(id: u32, bits: [u8; 32]) -> MasterKey {
        MasterKey { id, bits }
    }

    fn derive(&self, salt: &[u8; 16]) -> Result<Aes256Gcm, FormatError> {
        let mut key = [0; 32];
        Hkdf::<Sha256>::new(Some(salt), &self.bits)
            .expand(b"forebay frames", &mut key)
            .map_err(|error| FormatError::invalid("a derived key", error.to_string()))?;
        Aes256Gcm::new_from_slice(&key)
            .map_err(|error| FormatError::invalid("a derived key", error.to_string()))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

/// What stands before the frame table of a sealed run: key number, reserved, salt of the writer, number of the run, reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SealHead {
    key: u32,
    salt: [u8; 16],
    run: u64,
}

impl SealHead {
    pub(crate) fn encode(&self) -> [u8; SEAL_HEAD_LEN] {
        let mut head = [0; SEAL_HEAD_LEN];
        head[..4].copy_from_slice(&self.key.to_le_bytes());
        head[8..24].copy_from_slice(&self.salt);
        head[24..32].copy_from_slice(&self.run.to_le_bytes());
        head
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SealHead, FormatError> {
        let mut from = Decoder::new(bytes, "a seal head");
        let key = from.u32()?;
        from.u32()?;
        Ok(SealHead { key, salt: from.array()?, run: from.u64()? })
    }

    fn nonce(&self, frame: u32) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.run.to_le_bytes());
        nonce[8..].copy_from_slice(&frame.to_le_bytes());
        nonce
    }

    fn context(&self, frame: &[u8; 9]) -> [u8; SEAL_HEAD_LEN + 9] {
        let mut context = [0; SEAL_HEAD_LEN + 9];
        context[..SEAL_HEAD_LEN].copy_from_slice(&self.encode());
        context[SEAL_HEAD_LEN..].copy_from_slice(frame);
        context
    }
}

/// Seals the runs of one writer. Shared by all its threads.
pub struct RunSealer {
    key: u32,
    salt: [u8; 16],
    cipher: Aes256Gcm,
    next: AtomicU64,
}

impl fmt::Debug for RunSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunSealer(key {})", self.key)
    }
}

impl RunSealer {
    /// A writer with this salt, which must be 128 fresh random bits.
    ///
    /// # Errors
    /// [`FormatError`] where no key can be derived.
    pub fn new(master: &MasterKey, salt: [u8; 16]) -> Result<RunSealer, FormatError> {
        Ok(RunSealer { key: master.id, salt, cipher: master.derive(&salt)?, next: AtomicU64::new(0) })
    }

    pub(crate) fn next_run(&self) -> Result<RunSeal<'_>, FormatError> {
        let run = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(RunSeal { head: SealHead { key: self.key, salt: self.salt, run }, cipher: &self.cipher })
    }
}

pub(crate) struct RunSeal<'a> {
    pub(crate) head: SealHead,
    cipher: &'a Aes256Gcm,
}

impl RunSeal<'_> {
    /// Encrypts what `out` has from `at` on, and appends the tag.
    pub(crate) fn seal(
        &self,
        frame: u32,
        context: &[u8; 9],
        at: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        let nonce = self.head.nonce(frame);
        let mut tail = Tail { at, out };
        self.cipher
            .encrypt_in_place(&nonce.into(), &self.head.context(context), &mut tail)
            .map_err(|error| FormatError::invalid(WHAT, error.to_string()))
    }
}

struct Tail<'a> {
    at: usize,
    out: &'a mut Vec<u8>,
}

impl AsRef<[u8]> for Tail<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.out[self.at..]
    }
}

impl AsMut<[u8]> for Tail<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.out[self.at..]
    }
}

impl Buffer for Tail<'_> {
    fn extend_from_slice(&mut self, other: &[u8]) -> aes_gcm::aead::Result<()> {
        self.out.extend_from_slice(other);
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.out.truncate(self.at + len);
    }
}

/// The keys with which sealed runs can be opened. Empty for a plain volume.
#[derive(Debug, Default)]
pub struct Keyring {
    masters: Vec<MasterKey>,
    derived: Mutex<HashMap<WriterId, Arc<DebugCipher>>>,
}

/// Number of the master key, and the salt.
type WriterId = (u32, [u8; 16]);

struct DebugCipher(Aes256Gcm);

impl fmt::Debug for DebugCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aes256Gcm")
    }
}

impl Keyring {
    /// A ring with these keys.
    #[must_use]
    pub fn new(masters: Vec<MasterKey>) -> Keyring {
        Keyring { masters, derived: Mutex::default() }
    }

    pub(crate) fn open(
        &self,
        head: &SealHead,
        frame: u32,
        context: &[u8; 9],
        sealed: &[u8],
    ) -> Result<Vec<u8>, FormatError> {
        let cipher = self.cipher(head)?;
        let mut opened = sealed.to_vec();
        cipher.0.decrypt_in_place(&head.nonce(frame).into(), &head.context(context), &mut opened).map_err(
            |_| FormatError::Decrypt {
                what: WHAT,
                detail: "it is not what was sealed with this volume's key".into(),
            },
        )?;
        Ok(opened)
    }

    fn cipher(&self, head: &SealHead) -> Result<Arc<DebugCipher>, FormatError> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cipher) = derived.get(&(head.key, head.salt)) {
            return Ok(Arc::clone(cipher));
        }
        let master = self.masters.iter().find(|master| master.id == head.key).ok_or_else(|| {
            FormatError::Decrypt { what: WHAT, detail: format!("key {} is not at hand", head.key) }
        })?;
        let cipher = Arc::new(DebugCipher(master.derive(&head.salt)?));
        if derived.len() >= KEYS_KEPT {
            derived.clear();
        }
        derived.insert((head.key, head.salt), Arc::clone(&cipher));
        Ok(cipher)
    }
}
