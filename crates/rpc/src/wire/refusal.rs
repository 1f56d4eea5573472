use std::fmt;

use super::{Cursor, cut};

/// Longest encoded refusal, in bytes.
pub const REFUSAL_LEN_MAX: usize = 16 << 10;
const TEXT_MAX: usize = 1024;
const REDIRECT_MAX: usize = 1024;
const DETAIL_MAX: usize = 8 << 10;

/// Why a request was refused. Codes from 0x8000 on belong to the application.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u16);

/// What a caller may believe and do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Not done, and never will be.
    Never,
    /// Not done; here, later.
    Here,
    /// Not done; at the redirect or another address.
    Elsewhere,
    /// Done, not done, or yet to be done.
    Unknown,
    /// The application's own.
    Application,
}

impl Code {
    /// The kind of message is not known.
    pub const UNSUPPORTED: Code = Code(0x1001);
    /// The body cannot be decoded.
    pub const MALFORMED: Code = Code(0x1002);
    /// The request, or its reply, is larger than allowed.
    pub const TOO_LARGE: Code = Code(0x1003);
    /// The peer may not do this.
    pub const DENIED: Code = Code(0x1004);
    /// No common version.
    pub const VERSION: Code = Code(0x1005);
    /// A required feature is missing.
    pub const FEATURE: Code = Code(0x1006);
    /// The rules of the protocol were broken.
    pub const PROTOCOL: Code = Code(0x1007);
    /// Too much to do.
    pub const BUSY: Code = Code(0x2001);
    /// Somebody else owns what the request is about.
    pub const NOT_OWNER: Code = Code(0x3001);
    /// The server is stopping.
    pub const GOING_AWAY: Code = Code(0x3002);
    /// The deadline passed.
    pub const DEADLINE: Code = Code(0x4001);
    /// The caller cancelled.
    pub const CANCELLED: Code = Code(0x4002);
    /// The handler failed unexpectedly.
    pub const FAILED: Code = Code(0x4003);

    /// Whether a request that is refused so is one that no peer should make.
    #[must_use]
    pub fn is_breach(self) -> bool {
        [Code::UNSUPPORTED, Code::MALFORMED, Code::DENIED].contains(&self)
    }

    const NAMES: [(Code, &'static str); 13] = [
        (Code::UNSUPPORTED, "unsupported"),
        (Code::MALFORMED, "malformed"),
        (Code::TOO_LARGE, "too large"),
        (Code::DENIED, "denied"),
        (Code::VERSION, "no common version"),
        (Code::FEATURE, "a feature is missing"),
        (Code::PROTOCOL, "protocol broken"),
        (Code::BUSY, "busy"),
        (Code::NOT_OWNER, "not the owner"),
        (Code::GOING_AWAY, "going away"),
        (Code::DEADLINE, "deadline passed"),
        (Code::CANCELLED, "cancelled"),
        (Code::FAILED, "failed"),
    ];

    /// What a caller may believe and do, for codes of later releases too.
    #[must_use]
    pub fn class(self) -> Class {
        match self.0 >> 12 {
            1 => Class::Never,
            2 => Class::Here,
            3 => Class::Elsewhere,
            8.. => Class::Application,
            _ => Class::Unknown,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Code::NAMES.iter().find(|(code, _)| code == self) {
            Some((_, name)) => to.write_str(name),
            None => write!(to, "code {:04x}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:04x} ({self})", self.0)
    }
}

/// Why a request was not answered as its caller wished, or why a connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason.
    pub code: Code,
    /// How long to wait before a repetition, in milliseconds.
    pub retry_after_ms: u32,
    /// For people.
    pub text: String,
    /// Where to ask instead: an address, or nothing.
    pub redirect: String,
    /// The application's.
    pub detail: Vec<u8>,
}

impl Refusal {
    /// A refusal with a text for people.
    #[must_use]
    pub fn new(code: Code, text: impl Into<String>) -> Refusal {
        Refusal { code, retry_after_ms: 0, text: text.into(), redirect: String::new(), detail: Vec::new() }
    }

    /// The same, with an address to ask instead.
    #[must_use]
    pub fn redirected(self, redirect: impl Into<String>) -> Refusal {
        Refusal { redirect: redirect.into(), ..self }
    }

    /// The same, with the application's detail.
    #[must_use]
    pub fn detailed(self, detail: Vec<u8>) -> Refusal {
        Refusal { detail, ..self }
    }

    /// Appends the layout, without the code. Text and redirect are cut to 1 KiB; a detail of more than 8 KiB is left out.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let (text, redirect) = (cut(&self.text, TEXT_MAX), cut(&self.redirect, REDIRECT_MAX));
        let detail = if self.detail.len() <= DETAIL_MAX { self.detail.as_slice() } else { &[] };
        to.extend_from_slice(&self.retry_after_ms.to_le_bytes());
        to.extend_from_slice(&(text.len() as u16).to_le_bytes());
        to.extend_from_slice(&(redirect.len() as u16).to_le_bytes());
        to.extend_from_slice(&(detail.len() as u32).to_le_bytes());
        to.extend_from_slice(text.as_bytes());
        to.extend_from_slice(redirect.as_bytes());
        to.extend_from_slice(detail);
    }

    /// Reads the layout; nothing if the bytes end before it does. What follows it is passed over.
    #[must_use]
    pub fn decode(code: Code, bytes: &[u8]) -> Option<Refusal> {
        let mut cursor = Cursor(bytes);
        let retry_after_ms = cursor.u32()?;
        let (text, redirect) = (usize::from(cursor.u16()?), usize::from(cursor.u16()?));
        let detail = usize::try_from(cursor.u32()?).ok()?;
        Some(Refusal {
            code,
            retry_after_ms,
            text: cursor.text(text)?,
            redirect: cursor.text(redirect)?,
            detail: cursor.take(detail)?.to_vec(),
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.as_str() {
            "" => write!(to, "{}", self.code),
            text => write!(to, "{}: {text}", self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Refusal {
        let refusal = Refusal::new(Code::NOT_OWNER, "volume a is owned elsewhere");
        Refusal { retry_after_ms: 7, ..refusal }.redirected("10.0.0.2:7300").detailed(vec![1, 2])
    }

    #[test]
    fn a_refusal_arrives_as_it_was_and_what_a_later_release_adds_is_passed_over() {
        let mut bytes = Vec::new();
        refusal().encode(&mut bytes);
        assert!(bytes.len() <= REFUSAL_LEN_MAX);
        for cut in 0..bytes.len() {
            assert_eq!(Refusal::decode(Code::NOT_OWNER, &bytes[..cut]), None);
        }
        assert_eq!(Refusal::decode(Code::NOT_OWNER, &bytes), Some(refusal()));
        bytes.extend_from_slice(b"more");
        assert_eq!(Refusal::decode(Code::NOT_OWNER, &bytes), Some(refusal()));
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let long =
            Refusal::new(Code::BUSY, "ä".repeat(9000)).redirected("x".repeat(5000)).detailed(vec![0; 9000]);
        let mut bytes = Vec::new();
        long.encode(&mut bytes);
        assert!(bytes.len() <= REFUSAL_LEN_MAX);
        let read = Refusal::decode(Code::BUSY, &bytes).unwrap();
        assert_eq!((read.text.len(), read.redirect.len(), read.detail.len()), (1024, 1024, 0));
    }

    #[test]
    fn codes_of_later_releases_have_a_class() {
        for (code, class) in [
            (0x1fff, Class::Never),
            (0x2abc, Class::Here),
            (0x3abc, Class::Elsewhere),
            (0x4abc, Class::Unknown),
            (0x0000, Class::Unknown),
            (0x7fff, Class::Unknown),
            (0x8000, Class::Application),
            (0xffff, Class::Application),
        ] {
            assert_eq!(Code(code).class(), class, "{code:04x}");
        }
    }
}
