//! `forebay://HOST[:PORT][,HOST…]/NAME`

use std::{fmt, path::Path, str::FromStr};

use forebay_rpc::Address;

const SCHEME: &str = "forebay://";

/// A shared volume: who serves it, and its name there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SharedUrl {
    /// Any of them is asked.
    pub(crate) servers: Vec<Address>,
    pub(crate) volume: String,
}

impl SharedUrl {
    /// The URL that a person gave in place of a volume's directory, if it is one.
    pub(crate) fn of(place: &Path) -> Option<Result<SharedUrl, String>> {
        let text = place.to_str()?;
        text.starts_with(SCHEME).then(|| text.parse())
    }

    /// Whether that is what is mounted.
    pub(crate) fn is_one(source: &Path) -> bool {
        source.as_os_str().as_encoded_bytes().starts_with(SCHEME.as_bytes())
    }
}

impl FromStr for SharedUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<SharedUrl, String> {
        let wrong = |what: &str| {
            format!(
                "'{text}' {what}: a shared volume is forebay://HOST/NAME, with :PORT and further hosts after commas"
            )
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("is no URL of a shared volume"))?;
        let (hosts, volume) = rest.rsplit_once('/').ok_or_else(|| wrong("names no volume"))?;
        if volume.is_empty() {
            return Err(wrong("names no volume"));
        }
        let servers = hosts.split(',').map(Address::from_str).collect::<Result<Vec<_>, _>>();
        let servers = servers.map_err(|error| wrong(&format!("names no server ({error})")))?;
        Ok(SharedUrl { servers, volume: volume.to_owned() })
    }
}

impl fmt::Display for SharedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        write!(f, "{SCHEME}{}/{}", servers.join(","), self.volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written() {
        let url: SharedUrl = "forebay://meta1.example.org,10.0.0.2:7400/home".parse().unwrap();
        assert_eq!((url.servers.len(), url.volume.as_str()), (2, "home"));
        assert_eq!(url.to_string().parse(), Ok(url));
        let socket: SharedUrl = "forebay://unix:/run/forebay/meta.sock/home".parse().unwrap();
        assert_eq!(socket.servers, [Address::Unix("/run/forebay/meta.sock".into())]);
        assert!(SharedUrl::of(Path::new("/srv/volume")).is_none());
        assert!(SharedUrl::of(Path::new("forebay://a/b")).unwrap().is_ok());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("forebay://meta1", "names no volume"),
            ("forebay://meta1/", "names no volume"),
            ("forebay:///home", "names no server"),
            ("forebay://meta1,/home", "names no server"),
            ("forebay://meta1:x/home", "names no server"),
        ] {
            let error = text.parse::<SharedUrl>().unwrap_err();
            assert!(error.contains(what) && error.contains(text), "{error}");
        }
    }
}
