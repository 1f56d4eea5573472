use std::{collections::BTreeMap, sync::Arc};

use forebay_engine::{EngineError, EngineHost};
use parking_lot::Mutex;

use crate::{place::DatabasePlace, registry::PlaceAddress};

/// The places that this server has opened: the cluster's own, and those that entries of volumes name.
#[derive(Debug)]
pub(crate) struct Places {
    own: Arc<dyn EngineHost>,
    others: Mutex<BTreeMap<PlaceAddress, Arc<dyn EngineHost>>>,
}

impl Places {
    pub(crate) fn new(own: Arc<dyn EngineHost>) -> Places {
        Places { own, others: Mutex::default() }
    }

    /// A place, opened if it is not yet.
    ///
    /// # Errors
    /// [`EngineError`].
    pub(crate) fn host(&self, address: &PlaceAddress) -> Result<Arc<dyn EngineHost>, EngineError> {
        if address.0.is_empty() {
            return Ok(Arc::clone(&self.own));
        }
        if let Some(open) = self.others.lock().get(address) {
            return Ok(Arc::clone(open));
        }
        let wrong = |error: &dyn std::fmt::Display| EngineError::Failed {
            place: "the registry".to_owned(),
            detail: error.to_string(),
        };
        let host = address.0.parse::<DatabasePlace>().map_err(|error| wrong(&error))?.open()?;
        // Whoever came first: one host a place, since what it has in memory is for all of its databases.
        Ok(Arc::clone(self.others.lock().entry(address.clone()).or_insert(host)))
    }
}
