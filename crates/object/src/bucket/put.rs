//! Conditional puts, and finding out whose object it is when one is refused after a lost answer.

use bytes::Bytes;
use object_store::{
    Attribute, Attributes, GetOptions, PutMode, PutOptions, PutPayload, UpdateVersion, path::Path,
};

use super::{BucketStore, request::Request};
use crate::{Ability, ETag, ErrorKind, Expected, ObjectError, Operation, PutOutcome, StoreUrl, random};

/// The user metadata that names the put an object comes from. Azure allows neither dashes nor dots.
const MARK: &str = "forebayput";

/// One put: what it sends and how it recognises its own work.
struct Sent {
    chunks: Vec<Bytes>,
    size: u64,
    crc: u32,
    mark: String,
}

impl Sent {
    fn new(chunks: Vec<Bytes>) -> std::io::Result<Sent> {
        let size = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let crc = chunks.iter().fold(0, |crc, chunk| crc32c::crc32c_append(crc, chunk));
        let mark = format!("{}-{size:x}-{crc:08x}", random::name()?);
        Ok(Sent { chunks, size, crc, mark })
    }

    fn options(&self, expected: &Expected) -> PutOptions {
        let mode = match expected {
            Expected::Absent => PutMode::Create,
            Expected::Etag(ETag(etag)) => {
                PutMode::Update(UpdateVersion { e_tag: Some(etag.clone()), version: Some(etag.clone()) })
            }
        };
        let attributes = Attributes::from_iter([(Attribute::Metadata(MARK.into()), self.mark.clone())]);
        PutOptions { mode, attributes, ..PutOptions::default() }
    }

    fn payload(&self) -> PutPayload {
        self.chunks.iter().cloned().collect()
    }
}

impl BucketStore {
    pub(super) fn put(
        &self,
        operation: Operation,
        key: &str,
        chunks: Vec<Bytes>,
        expected: &Expected,
    ) -> Result<PutOutcome, ObjectError> {
        let location = self.location(operation, key)?;
        let sent = Sent::new(chunks).map_err(|error| {
            ObjectError::caused(ErrorKind::Other, operation, &self.shared.url, key, "no random bits", error)
        })?;
        let ability = match expected {
            Expected::Absent => Ability::ConditionalCreate,
            Expected::Etag(_) => Ability::ConditionalReplace,
        };
        let request = Request::new(self, operation, key, sent.size).needing(ability);
        let result =
            request.run(|| self.shared.client.put_opts(&location, sent.payload(), sent.options(expected)));
        let refused = |error: &ObjectError| {
            matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::PreconditionFailed)
        };
        let etag = match result {
            Ok(put) => self.etag(put.e_tag, put.version),
            Err(error) if refused(&error) && request.is_uncertain() => {
                match self.find_own(key, &location, &sent)? {
                    Some(etag) => Some(etag),
                    None => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        let versioned = request.is_versioned() && !matches!(self.shared.url, StoreUrl::Gs { .. });
        self.need_etag(operation, key, etag).map(|etag| PutOutcome { etag, versioned })
    }

    /// The tag of the object that is there, if it is what was sent. The mark decides; where the store kept none, size and content do.
    fn find_own(&self, key: &str, location: &Path, sent: &Sent) -> Result<Option<ETag>, ObjectError> {
        let read = Request::new(self, Operation::Get, key, sent.size);
        let found = read.run(|| async {
            let head = GetOptions { head: true, ..GetOptions::default() };
            let head = self.shared.client.get_opts(location, head).await?;
            let mark =
                head.attributes.get(&Attribute::Metadata(MARK.into())).map(|mark| mark.as_ref().to_owned());
            if mark.is_some() || head.meta.size != sent.size {
                return Ok((head.meta, mark, None));
            }
            let got = self.shared.client.get_opts(location, GetOptions::default()).await?;
            let meta = got.meta.clone();
            Ok((meta, None, Some(got.bytes().await?)))
        });
        let (meta, mark, content) = match found {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let same = |content: Bytes| content.len() as u64 == sent.size && crc32c::crc32c(&content) == sent.crc;
        let own = match (mark, content) {
            (Some(mark), _) => mark == sent.mark && meta.size == sent.size,
            (None, Some(content)) => same(content),
            (None, None) => false,
        };
        Ok(if own { self.etag(meta.e_tag, meta.version) } else { None })
    }
}
