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
