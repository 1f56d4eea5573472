//! Which keys there are.

/// The longest key, in bytes. Stores allow 1024 with the prefix.
pub(crate) const MAX_KEY: usize = 900;
/// The first part of a key that a directory store keeps for itself.
pub(crate) const RESERVED: &str = ".forebay";

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'=' | b'+' | b'-')
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".." && part.len() <= 255 && part.bytes().all(is_key_byte)
}

/// Says what is wrong with a key, if something is. The rule is with [`Backend`](crate::Backend).
///
/// # Errors
/// The reason, for a person.
pub fn check_key(key: &str) -> Result<(), &'static str> {
    if key.is_empty() {
        return Err("a key must not be empty");
    }
    if key.len() > MAX_KEY {
        return Err("a key is at most 900 bytes long");
    }
    if !key.split('/').all(is_part) {
        return Err(
            "a key consists of parts of A-Z a-z 0-9 . _ = + -, joined by single slashes, none of them . or ..",
        );
    }
    if key.split('/').next() == Some(RESERVED) {
        return Err("keys below .forebay are the store's own");
    }
    Ok(())
}

/// The same for the prefix of a listing, which may be empty.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), &'static str> {
    if prefix.is_empty() { Ok(()) } else { check_key(prefix) }
}

/// Whether a file of this name can be a part of a key.
pub(crate) fn is_key_part(part: &str) -> bool {
    is_part(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parts_joined_by_slashes() {
        for good in ["a", "a/b", "objects/0f/3c.seg", "A-Z_0=9+x", "..a", "a..", "x/.forebay"] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        let long = "k".repeat(901);
        for bad in
            ["", "/", "a/", "/a", "a//b", ".", "a/..", "a b", "ä", "a\0", "a%20", ".forebay/put", &long]
        {
            assert!(check_key(bad).is_err(), "{bad:?}");
        }
        assert_eq!(check_prefix(""), Ok(()));
        assert!(check_prefix("a/").is_err());
    }
}
