use forebay_types::Timespec;

/// Bytes that are not what the layout says.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// The bytes end before the value does.
    #[error("{what} is truncated")]
    Truncated {
        /// What was being read.
        what: &'static str,
    },
    /// A checksum does not fit: the bytes are not the ones that were written.
    #[error("checksum of {what} is {found:08x}, not {expected:08x}")]
    Checksum {
        /// What was being read.
        what: &'static str,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes that are there.
        found: u32,
    },
    /// The bytes are whole, yet say something that the layout does not allow.
    #[error("{what} is not valid: {detail}")]
    Invalid {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// Written by a newer release.
    #[error("{what} has format version {found}; this release reads up to {supported}: use a newer one")]
    Version {
        /// What was being read.
        what: &'static str,
        /// Its version.
        found: u32,
        /// The newest version that is understood here.
        supported: u32,
    },
    /// A frame was sealed with a key that is not at hand, or was changed by somebody who has none.
    #[error("cannot decrypt {what}: {detail}")]
    Decrypt {
        /// What was being read.
        what: &'static str,
        /// Why not.
        detail: String,
    },
}

impl FormatError {
    pub(crate) fn invalid(what: &'static str, detail: impl Into<String>) -> Self {
        FormatError::Invalid { what, detail: detail.into() }
    }
}

/// Appends numbers and bytes to a buffer.
#[derive(Debug)]
pub struct Encoder<'a>(pub &'a mut Vec<u8>);

impl Encoder<'_> {
    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// An unsigned LEB128 number: seven bits a byte, low ones first.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A signed number: zigzag, then LEB128.
    pub fn signed(&mut self, value: i64) {
        self.varint((value << 1 ^ value >> 63) as u64);
    }

    /// Length and bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A point in time.
    pub fn time(&mut self, time: Timespec) {
        self.signed(time.secs);
        self.varint(u64::from(time.nanos));
    }
}

/// Takes numbers and bytes off the front of a slice.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Decoder<'a> {
    /// A decoder over `bytes`; errors will speak of `what`.
    #[must_use]
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Decoder { rest: bytes, what }
    }

    /// What has not been taken yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`FormatError::Truncated`].
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let (head, rest) =
            self.rest.split_at_checked(len).ok_or(FormatError::Truncated { what: self.what })?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// [`FormatError::Truncated`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (head, rest) =
            self.rest.split_first_chunk::<N>().ok_or(FormatError::Truncated { what: self.what })?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`FormatError::Truncated`].
    pub fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// [`FormatError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian.
    ///
    /// # Errors
    /// [`FormatError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// An unsigned LEB128 number.
    ///
    /// # Errors
    /// [`FormatError`] where the bytes end, or the number has more than 64 bits.
    pub fn varint(&mut self) -> Result<u64, FormatError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(FormatError::invalid(self.what, "a number has more than 64 bits"))
    }

    /// A LEB128 number of at most 32 bits.
    ///
    /// # Errors
    /// [`FormatError`], also where it is larger.
    pub fn varint32(&mut self) -> Result<u32, FormatError> {
        let value = self.varint()?;
        u32::try_from(value)
            .map_err(|_| FormatError::invalid(self.what, format!("{value} has more than 32 bits")))
    }

    /// A zigzag LEB128 number.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn signed(&mut self) -> Result<i64, FormatError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Length and bytes.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn bytes(&mut self) -> Result<&'a [u8], FormatError> {
        let len = self.varint()?;
        let len = usize::try_from(len).map_err(|_| FormatError::Truncated { what: self.what })?;
        self.take(len)
    }

    /// A point in time.
    ///
    /// # Errors
    /// [`FormatError`], also where the nanoseconds are a second or more.
    pub fn time(&mut self) -> Result<Timespec, FormatError> {
        let secs = self.signed()?;
        let nanos = self.varint32()?;
        if nanos >= 1_000_000_000 {
            return Err(FormatError::invalid(self.what, format!("{nanos} nanoseconds")));
        }
        Ok(Timespec { secs, nanos })
    }

    /// Says that everything has been taken.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] where bytes are left.
    pub fn end(&self) -> Result<(), FormatError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(FormatError::invalid(self.what, format!("{left} bytes follow it"))),
        }
    }
}
