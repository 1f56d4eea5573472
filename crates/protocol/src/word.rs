//! How values become bytes: one field after the other, a tag before the variants of a choice.

use forebay_format::{Decoder, Encoder, FormatError};

/// A value with bytes.
pub trait Word: Sized {
    /// Appends its bytes.
    fn put(&self, to: &mut Encoder<'_>);

    /// Takes a value from the front.
    ///
    /// # Errors
    /// [`FormatError`] where there is none.
    fn take(from: &mut Decoder<'_>) -> Result<Self, FormatError>;
}

/// A value that goes over the wire by itself: all of a body.
pub trait Message: Word {
    /// Its bytes.
    #[must_use]
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        self.put(&mut Encoder(&mut bytes));
        bytes
    }

    /// The message that these bytes are, all of them.
    ///
    /// # Errors
    /// [`FormatError`] where they are none.
    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut from = Decoder::new(bytes, WHAT);
        let message = Self::take(&mut from)?;
        from.end()?;
        Ok(message)
    }
}

impl<T: Word> Message for T {}

const WHAT: &str = "a message";

pub(crate) fn wrong(detail: String) -> FormatError {
    FormatError::Invalid { what: WHAT, detail }
}

/// A byte that is always 1: which of several logs bytes are for, of which there is one (`docs/design/proxy-group.md`, "Why there is no journal of requests").
pub(crate) struct OnlyLog;

impl Word for OnlyLog {
    fn put(&self, to: &mut Encoder<'_>) {
        to.u8(1);
    }

    fn take(from: &mut Decoder<'_>) -> Result<OnlyLog, FormatError> {
        match from.u8()? {
            1 => Ok(OnlyLog),
            other => Err(wrong(format!("{other} is no log that bytes are for"))),
        }
    }
}

/// Implements [`Word`] for a struct: its fields in this order.
macro_rules! record {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::word::Word for $type {
            fn put(&self, to: &mut forebay_format::Encoder<'_>) {
                let _ = &to;
                $($crate::word::Word::put(&self.$field, to);)*
            }

            fn take(from: &mut forebay_format::Decoder<'_>) -> Result<Self, forebay_format::FormatError> {
                let _ = &from;
                Ok(Self { $($field: $crate::word::Word::take(from)?),* })
            }
        }
    };
}

/// Implements [`Word`] for an enum: a byte that says which variant, then its fields in this order.
macro_rules! choice {
    ($type:ty { $($tag:literal => $variant:ident $( ( $($item:ident),* ) )? $( { $($field:ident),* } )? ),* $(,)? }) => {
        impl $crate::word::Word for $type {
            fn put(&self, to: &mut forebay_format::Encoder<'_>) {
                match self {
                    $(Self::$variant $( ( $($item),* ) )? $( { $($field),* } )? => {
                        to.u8($tag);
                        $( $($crate::word::Word::put($item, to);)* )?
                        $( $($crate::word::Word::put($field, to);)* )?
                    })*
                }
            }

            fn take(from: &mut forebay_format::Decoder<'_>) -> Result<Self, forebay_format::FormatError> {
                match from.u8()? {
                    $($tag => {
                        $( $(let $item = $crate::word::Word::take(from)?;)* )?
                        $( $(let $field = $crate::word::Word::take(from)?;)* )?
                        Ok(Self::$variant $( ( $($item),* ) )? $( { $($field),* } )?)
                    })*
                    tag => Err($crate::word::wrong(format!("{tag} is no {}", stringify!($type)))),
                }
            }
        }
    };
}

/// Implements [`Word`] for a number in a newtype.
macro_rules! number {
    ($($type:path),* $(,)?) => {$(
        impl $crate::word::Word for $type {
            fn put(&self, to: &mut forebay_format::Encoder<'_>) {
                $crate::word::Word::put(&self.0, to);
            }

            fn take(from: &mut forebay_format::Decoder<'_>) -> Result<Self, forebay_format::FormatError> {
                Ok($type($crate::word::Word::take(from)?))
            }
        }
    )*};
}

pub(crate) use {choice, number, record};

/// Unsigned numbers are varints that must fit.
macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl Word for $type {
            fn put(&self, to: &mut Encoder<'_>) {
                to.varint(u64::from(*self));
            }

            fn take(from: &mut Decoder<'_>) -> Result<Self, FormatError> {
                let value = from.varint()?;
                <$type>::try_from(value).map_err(|_| wrong(format!("{value} is too large for a {}", stringify!($type))))
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64);

impl Word for i64 {
    fn put(&self, to: &mut Encoder<'_>) {
        to.signed(*self);
    }

    fn take(from: &mut Decoder<'_>) -> Result<i64, FormatError> {
        from.signed()
    }
}

impl Word for u128 {
    fn put(&self, to: &mut Encoder<'_>) {
        to.0.extend_from_slice(&self.to_le_bytes());
    }

    fn take(from: &mut Decoder<'_>) -> Result<u128, FormatError> {
        Ok(u128::from_le_bytes(from.array()?))
    }
}

impl<const N: usize> Word for [u8; N] {
    fn put(&self, to: &mut Encoder<'_>) {
        to.0.extend_from_slice(self);
    }

    fn take(from: &mut Decoder<'_>) -> Result<[u8; N], FormatError> {
        from.array()
    }
}

impl Word for bool {
    fn put(&self, to: &mut Encoder<'_>) {
        to.u8(u8::from(*self));
    }

    fn take(from: &mut Decoder<'_>) -> Result<bool, FormatError> {
        match from.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(wrong(format!("{other} is neither yes nor no"))),
        }
    }
}

impl Word for String {
    fn put(&self, to: &mut Encoder<'_>) {
        to.bytes(self.as_bytes());
    }

    fn take(from: &mut Decoder<'_>) -> Result<String, FormatError> {
        let text = std::str::from_utf8(from.bytes()?).map_err(|_| wrong("a text is not UTF-8".to_owned()))?;
        Ok(text.to_owned())
    }
}

/// Names, targets, values: bytes with their length, as one piece.
impl Word for Vec<u8> {
    fn put(&self, to: &mut Encoder<'_>) {
        to.bytes(self);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Vec<u8>, FormatError> {
        Ok(from.bytes()?.to_vec())
    }
}

impl<T: Word> Word for Option<T> {
    fn put(&self, to: &mut Encoder<'_>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut Decoder<'_>) -> Result<Option<T>, FormatError> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Word> Word for Box<T> {
    fn put(&self, to: &mut Encoder<'_>) {
        T::put(self, to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<Box<T>, FormatError> {
        Ok(Box::new(T::take(from)?))
    }
}

impl<A: Word, B: Word> Word for (A, B) {
    fn put(&self, to: &mut Encoder<'_>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut Decoder<'_>) -> Result<(A, B), FormatError> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

/// Appends a list: how many, then each.
pub(crate) fn put_list<T: Word>(list: &[T], to: &mut Encoder<'_>) {
    to.varint(list.len() as u64);
    list.iter().for_each(|item| item.put(to));
}

/// Takes a list. Each item has a byte at least, so a length that promises more than there is ends at the end of the bytes.
pub(crate) fn take_list<T: Word>(from: &mut Decoder<'_>) -> Result<Vec<T>, FormatError> {
    let count = from.varint()?;
    if count > from.rest().len() as u64 {
        return Err(wrong(format!("a list of {count} in {} bytes", from.rest().len())));
    }
    (0..count).map(|_| T::take(from)).collect()
}

/// Lists of these.
macro_rules! lists {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::word::Word for Vec<$type> {
            fn put(&self, to: &mut forebay_format::Encoder<'_>) {
                $crate::word::put_list(self, to);
            }

            fn take(from: &mut forebay_format::Decoder<'_>) -> Result<Self, forebay_format::FormatError> {
                $crate::word::take_list(from)
            }
        }
    )*};
}

pub(crate) use lists;

lists!(Vec<u8>, String, (Vec<u8>, Vec<u8>), (Vec<u8>, Option<Vec<u8>>));
