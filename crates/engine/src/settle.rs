use crate::{Batch, Engine, EngineError, Outcome};

/// Finds out what became of a batch whose outcome was [`Outcome::Unknown`], and makes sure that it stays so.
///
/// Reading alone does not tell: a server may still have the batch in its hands and commit it after the question. So the batch is
/// committed again, which its *mark* makes harmless. The mark is a row that the batch expects with one value and puts with another; only this batch
/// writes that value, and nobody but the batch's author ever changes the row (a counter for each owner and epoch is such a row). Either
/// attempt fences the other one off, and whoever finds the mark with the batch's value knows that one of them was committed.
///
/// [`Outcome::Unknown`] and an error leave it unsettled: call again.
///
/// # Errors
/// [`EngineError`]; [`EngineError::Failed`] where `mark` is not as said above.
pub fn settle(engine: &dyn Engine, batch: &Batch<'_>, mark: &[u8]) -> Result<Outcome, EngineError> {
    let before = batch.expect.iter().find(|(key, _)| key == mark).map(|(_, value)| value.as_deref());
    let after = batch.rows.iter().find(|(key, _)| *key == mark).map(|(_, value)| *value);
    let after = match (before, after) {
        (Some(before), Some(after)) if before != after => after,
        _ => {
            let detail = "a batch without a mark cannot be settled".to_owned();
            return Err(EngineError::Failed { place: format!("{engine:?}"), detail });
        }
    };
    match engine.commit(batch)? {
        Outcome::Fenced if engine.get(mark)?.as_deref() == after => Ok(Outcome::Committed),
        outcome => Ok(outcome),
    }
}
