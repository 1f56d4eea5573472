//! Waiting for a place that one server at a time has.

use std::time::Duration;

use forebay_engine::EngineError;

/// How often a place is looked at that another process has.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Opens a place once no other process has it. `None` once `stopped` says so. Whoever stands by goes on while the place cannot be reached; who has just started does not.
///
/// # Errors
/// [`EngineError`]: at the start all but that it is in use; later on what does not pass by itself.
pub(crate) fn wait_for<T>(
    open: impl Fn() -> Result<T, EngineError>,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<T>, EngineError> {
    let (mut stands_by, mut away) = (false, false);
    while !stopped() {
        match open() {
            Ok(place) => return Ok(Some(place)),
            Err(error @ EngineError::Locked { .. }) => {
                if !std::mem::replace(&mut stands_by, true) {
                    tracing::warn!("{error}: this server stands by until that has ended");
                }
                away = false;
            }
            Err(error @ EngineError::Unreachable { .. }) if stands_by => {
                if !std::mem::replace(&mut away, true) {
                    tracing::warn!("{error}: this server goes on to stand by");
                }
            }
            Err(error) => return Err(error),
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque};

    use super::*;

    fn place() -> String {
        "there".to_owned()
    }

    fn locked() -> Result<u8, EngineError> {
        Err(EngineError::Locked { place: place() })
    }

    fn away() -> Result<u8, EngineError> {
        Err(EngineError::Unreachable { place: place(), detail: "timed out".to_owned() })
    }

    /// What comes of a place that answers so, one after the other.
    fn waits(answers: impl IntoIterator<Item = Result<u8, EngineError>>) -> Result<Option<u8>, EngineError> {
        let answers = RefCell::new(answers.into_iter().collect::<VecDeque<_>>());
        let next = || answers.borrow_mut().pop_front();
        wait_for(|| next().expect("nobody looks at it any more"), &|| answers.borrow().is_empty())
    }

    #[test]
    fn who_stands_by_goes_on_while_the_place_is_away() {
        assert_eq!(waits([Ok(7)]).unwrap(), Some(7));
        assert_eq!(waits([locked(), away(), away(), locked(), Ok(7)]).unwrap(), Some(7));
        assert_eq!(waits([locked(), away()]).unwrap(), None, "it was stopped");
        assert!(
            matches!(waits([away(), Ok(7)]), Err(EngineError::Unreachable { .. })),
            "it has just started"
        );
        let damaged = Err(EngineError::Damaged { place: place(), detail: "a table".to_owned() });
        assert!(matches!(waits([locked(), damaged]), Err(EngineError::Damaged { .. })));
    }
}
