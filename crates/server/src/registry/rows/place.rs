//! Where the database of a volume is.

use std::fmt;

use forebay_format::{Decoder, FormatError};

use super::text;

/// The address of a place of engines, as it was given: it may have a password. Empty: the cluster's own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PlaceAddress(pub String);

impl fmt::Debug for PlaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once(':') {
            Some((scheme, _)) => write!(f, "{scheme}:…"),
            None => f.write_str("the cluster's own"),
        }
    }
}

/// Where a volume's database is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VolumePlace {
    /// The place.
    pub address: PlaceAddress,
    /// The move that brought it there, in hexadecimal: no two databases of a volume have one name. Empty: where it was made.
    pub brought_by: String,
}

pub(super) fn places(
    from: &mut Decoder<'_>,
    what: &'static str,
) -> Result<(VolumePlace, Option<VolumePlace>), FormatError> {
    let has_left = from.u8()? != 0;
    let mut place = || {
        let address = PlaceAddress(text(from, what)?);
        Ok(VolumePlace { address, brought_by: text(from, what)? })
    };
    Ok((place()?, if has_left { Some(place()?) } else { None }))
}
