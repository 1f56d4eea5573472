//! Numbers of segments and objects that sessions were given, as rows `0 u` have them: what a session is given and has not committed when it ends may be
//! in the store, and is garbage then.

use forebay_cluster::SessionId;
use forebay_format::{
    key::Key,
    row::{ObjectRef, Row},
    shared_row::{NumberRun, NumbersRow},
};
use forebay_protocol::{Numbers, ObjectCommit};
use forebay_types::ObjectId;
use rustc_hash::FxHashMap;

use crate::batch::Core;

/// The numbers of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Given(FxHashMap<SessionId, NumbersRow>);

impl Given {
    pub(crate) fn restore(&mut self, session: SessionId, row: NumbersRow) {
        self.0.insert(session, row);
    }

    /// Segments and objects that a session was given and has not committed.
    pub(crate) fn outstanding(&self, session: SessionId) -> (u64, u64) {
        let Some(row) = self.0.get(&session) else { return (0, 0) };
        let segments = row.segments.iter().map(|(_, count)| count).sum();
        (segments, row.objects.iter().map(|(_, (_, count))| count).sum())
    }

    /// Whether all these are of the session's numbers.
    pub(crate) fn has(&self, session: SessionId, objects: &[ObjectCommit]) -> bool {
        let Some(row) = self.0.get(&session) else { return objects.is_empty() };
        objects.iter().all(|object| {
            let name = object.object;
            let ours = row.objects.iter().any(|(epoch, run)| *epoch == name.epoch && is_in(*run, name.id.0));
            let mut segments = object.segments.iter();
            ours && segments.all(|segment| row.segments.iter().any(|run| is_in(*run, segment.id.0)))
        })
    }

    /// Whether an object is of a session's numbers.
    pub(crate) fn has_object(&self, session: SessionId, name: ObjectRef) -> bool {
        let runs = self.0.get(&session).into_iter().flat_map(|row| &row.objects);
        runs.into_iter().any(|(epoch, run)| *epoch == name.epoch && is_in(*run, name.id.0))
    }

    /// The sessions that have numbers.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.0.keys().copied().collect()
    }

    /// At most `many` objects of a session.
    pub(crate) fn some_objects(&self, session: SessionId, many: usize) -> Vec<ObjectRef> {
        let runs = self.0.get(&session).into_iter().flat_map(|row| &row.objects);
        let all = runs.flat_map(|(epoch, (first, count))| {
            (*first..first.saturating_add(*count)).map(|id| ObjectRef { epoch: *epoch, id: ObjectId(id) })
        });
        all.take(many).collect()
    }
}

fn is_in((first, count): NumberRun, number: u64) -> bool {
    number >= first && number - first < count
}

/// The run without a number: what is below and what is above it.
fn without((first, count): NumberRun, number: u64) -> impl Iterator<Item = NumberRun> {
    let inside = is_in((first, count), number);
    let parts = match inside {
        true => [(first, number - first), (number + 1, first + count - number - 1)],
        false => [(first, count), (0, 0)],
    };
    parts.into_iter().filter(|(_, count)| *count > 0)
}

impl Core {
    pub(crate) fn give_numbers(&mut self, session: SessionId, numbers: &Numbers) {
        let row = self.given.0.entry(session).or_default();
        if numbers.segments > 0 {
            row.segments.push((numbers.first_segment.0, u64::from(numbers.segments)));
        }
        if numbers.objects > 0 {
            let first = numbers.first_object;
            row.objects.push((first.epoch, (first.id.0, u64::from(numbers.objects))));
        }
        self.put_numbers(session);
    }

    /// Takes numbers off a session: they are committed, or garbage.
    pub(crate) fn use_numbers<'a>(
        &mut self,
        session: SessionId,
        objects: impl Iterator<Item = (ObjectRef, &'a [u64])>,
    ) {
        let Some(row) = self.given.0.get_mut(&session) else { return };
        for (object, segments) in objects {
            let runs = std::mem::take(&mut row.objects).into_iter();
            row.objects = runs
                .flat_map(|(epoch, run)| match epoch == object.epoch {
                    true => without(run, object.id.0).map(|run| (epoch, run)).collect(),
                    false => vec![(epoch, run)],
                })
                .collect();
            for segment in segments {
                row.segments = std::mem::take(&mut row.segments)
                    .into_iter()
                    .flat_map(|run| without(run, *segment))
                    .collect();
            }
        }
        self.put_numbers(session);
    }

    fn put_numbers(&mut self, session: SessionId) {
        let used_up = |row: &NumbersRow| row.objects.is_empty() && row.segments.is_empty();
        // Segments without objects are no use to a session that has ended.
        let lives = self.sessions.lives(session);
        let row =
            self.given.0.get(&session).filter(|row| !used_up(row) && (lives || !row.objects.is_empty()));
        let value = row.map(Row::encode);
        if value.is_none() {
            self.given.0.remove(&session);
        }
        self.put(&Key::Numbers(session.0), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_out_of_its_run() {
        let left = |number| without((5, 3), number).collect::<Vec<_>>();
        assert_eq!(left(5), [(6, 2)]);
        assert_eq!(left(6), [(5, 1), (7, 1)]);
        assert_eq!(left(7), [(5, 2)]);
        assert_eq!(left(8), [(5, 3)]);
        assert_eq!(without((5, 1), 5).collect::<Vec<_>>(), []);
    }
}
