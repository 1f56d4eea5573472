//! Secrets of tokens, as people and files have them.
//!
//! ```text
//! fbt-IIIIIIIIIIIIIIII-SSSS…    the token's number, then 32 random bytes; all hexadecimal
//! ```

use forebay_env::random;
use sha2::{Digest, Sha256};

use crate::registry::TokenId;

const PREFIX: &str = "fbt-";
const LEN: usize = 32;

/// A token with its secret. Only its bearer has it: the registry has a digest.
pub(crate) struct Secret {
    pub(crate) id: TokenId,
    bits: [u8; LEN],
}

impl Secret {
    /// A new one.
    pub(crate) fn draw() -> std::io::Result<Secret> {
        Ok(Secret { id: TokenId(u64::from_le_bytes(random()?)), bits: random()? })
    }

    /// Reads one as it was written.
    pub(crate) fn parse(text: &str) -> Option<Secret> {
        let (id, secret) = text.trim().strip_prefix(PREFIX)?.split_once('-')?;
        let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if id.len() != 16 || secret.len() != 2 * LEN || !hexadecimal(id) || !hexadecimal(secret) {
            return None;
        }
        let id = TokenId(u64::from_str_radix(id, 16).ok()?);
        let mut bits = [0; LEN];
        for (index, byte) in bits.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&secret[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Secret { id, bits })
    }

    /// As it is shown once.
    pub(crate) fn text(&self) -> String {
        let secret: String = self.bits.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PREFIX}{}-{secret}", self.id)
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.bits).into()
    }

    /// Whether it is the one with this digest. How long that takes says nothing of where they differ.
    pub(crate) fn fits(&self, digest: &[u8; 32]) -> bool {
        let ours = self.digest();
        ours.iter().zip(digest).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use super::Secret;

    #[test]
    fn secrets_are_read_as_they_were_written() {
        let secret = Secret::draw().unwrap();
        let again = Secret::parse(&format!(" {}\n", secret.text())).unwrap();
        assert_eq!((again.id, again.bits), (secret.id, secret.bits));
        assert!(again.fits(&secret.digest()));
        assert!(!Secret::draw().unwrap().fits(&secret.digest()));
    }

    #[test]
    fn what_is_no_secret_is_none() {
        let good = Secret::draw().unwrap().text();
        let wrong = [
            "",
            "fbt-",
            "fbt-1-2",
            &good[1..],
            &good[..good.len() - 1],
            &good.replace("fbt-", "fbt-+"),
            &good.replacen('-', "_", 1),
            &format!("{}ä", &good[..good.len() - 2]),
        ];
        for text in wrong {
            assert!(Secret::parse(text).is_none(), "{text}");
        }
    }
}
