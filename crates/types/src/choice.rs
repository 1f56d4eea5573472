use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A word that is none of the allowed ones.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{word}' is not one of {allowed}")]
pub struct ParseChoiceError {
    word: String,
    allowed: &'static str,
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $allowed:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// All of them, in the order in which help texts name them.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The word for it on the command line and in stored configuration.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = ParseChoiceError;

            fn from_str(word: &str) -> Result<Self, ParseChoiceError> {
                Self::ALL.iter().copied().find(|choice| choice.as_str() == word)
                    .ok_or_else(|| ParseChoiceError { word: word.to_owned(), allowed: $allowed })
            }
        }
    };
}

choice!(
    /// How frames are compressed. A frame that does not shrink is stored as it is.
    Compression, "lz4, zstd, none" {
        /// LZ4 block format: fast, the default.
        Lz4 = "lz4",
        /// Zstandard, level 3: smaller.
        Zstd = "zstd",
        /// Not at all.
        None = "none",
    }
);

choice!(
    /// Whether frames are encrypted before they leave this machine.
    Encryption, "none, aes256-gcm" {
        /// Plain.
        None = "none",
        /// AES-256-GCM, a frame at a time, with a key that only this machine has.
        Aes256Gcm = "aes256-gcm",
    }
);

choice!(
    /// Where an acknowledged `fsync` has put the data.
    Durability, "local, object" {
        /// On this machine's disk; the store gets it in the background.
        Local = "local",
        /// In the store.
        Object = "object",
    }
);

choice!(
    /// How machines that share a file agree on its contents (`docs/design/coherence-modes.md`). A directory's is what is made in it gets.
    Coherence, "coherent, close-to-open, immutable" {
        /// A read that begins after a write has returned sees it, on any machine.
        Coherent = "coherent",
        /// What was written is seen by who opens the file after it was closed or synced, perhaps earlier.
        CloseToOpen = "close-to-open",
        /// A file is written by who makes it, until it is closed; a directory: files in it are to be such.
        Immutable = "immutable",
        /// A file that was closed: its contents never change. Nobody sets it.
        Sealed = "sealed",
    }
);

impl Coherence {
    /// The extended attribute that shows it, and sets a directory's.
    pub const ATTRIBUTE: &str = "user.forebay.coherence";

    /// What this word sets a directory to.
    ///
    /// # Errors
    /// [`ParseChoiceError`] for a word that is none that can be set.
    pub fn to_set(word: &[u8]) -> Result<Coherence, ParseChoiceError> {
        let text = String::from_utf8_lossy(word);
        match text.parse()? {
            Coherence::Sealed => "".parse(),
            mode => Ok(mode),
        }
    }
}
