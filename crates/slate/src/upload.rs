//! Uploads in parts. A store of ours takes an object whole, so the parts are collected; tables are bounded for it.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::bucket::{Bucket, generic, stored};

#[derive(Debug)]
pub(crate) struct Upload {
    bucket: Bucket,
    key: String,
    /// In order: parts are given in it.
    parts: Option<Vec<PutPayload>>,
}

impl Upload {
    pub(crate) fn new(bucket: Bucket, key: String) -> Upload {
        Upload { bucket, key, parts: Some(Vec::new()) }
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let taken = match &mut self.parts {
            Some(parts) => {
                parts.push(data);
                Ok(())
            }
            None => Err(generic("the upload has ended")),
        };
        async { taken }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let parts = self.parts.take().ok_or_else(|| generic("the upload has ended"))?;
        let mut bytes = BytesMut::with_capacity(parts.iter().map(PutPayload::content_length).sum());
        parts.iter().flatten().for_each(|piece: &Bytes| bytes.extend_from_slice(piece));
        self.bucket.overwrite(self.key.clone(), bytes.freeze()).await.map(stored)
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts = None;
        Ok(())
    }
}
