//! The engine: rows that are changed together or not at all, and only if those that were looked at are as they were.

use std::collections::BTreeMap;

use forebay_cluster::SessionId;
use forebay_group::{GroupRow, MemberId, MemberRow, SetRow};
use forebay_types::SegmentId;

use crate::messages::Answer;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    Group,
    Member(MemberId),
    Set(SegmentId),
    Segment(SegmentId),
    File(u64),
    Session(SessionId),
    /// What was asked last in a slot of a session, and what was answered.
    Slot(SessionId, usize),
    Object(u64),
    Garbage(u64),
    NextSegment,
}

/// What a file consists of: one version, in one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRow {
    pub version: u64,
    pub segment: SegmentId,
    pub offset: u64,
    pub len: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentRow {
    /// The object, and where in it.
    pub object: Option<(u64, u64)>,
    pub live: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRow {
    pub writer: usize,
    pub beat: u64,
    /// How many times segments were opened: nobody opens one unseen.
    pub opened: u64,
}

/// The last request of a slot: carried out once, and answered from here when it comes again.
#[derive(Clone, PartialEq, Debug)]
pub struct SlotRow {
    pub number: u64,
    pub answer: Answer,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Group(GroupRow),
    Member(MemberRow),
    Set(SetRow),
    Segment(SegmentRow),
    File(FileRow),
    Session(SessionRow),
    Slot(SlotRow),
    Object(Vec<SegmentId>),
    Number(u64),
}

pub type Rows = BTreeMap<Key, Value>;

macro_rules! typed {
    ($($get:ident, $put:ident, $variant:ident($inner:ty);)*) => {
        impl Txn<'_> {
            $(
                pub fn $get(&mut self, key: Key) -> Option<$inner> {
                    match self.look(key) {
                        Some(Value::$variant(value)) => Some(value),
                        _ => None,
                    }
                }

                #[allow(dead_code, reason = "not all kinds are put singly")]
                pub fn $put(&mut self, key: Key, value: $inner) {
                    self.put(key, Some(Value::$variant(value)));
                }
            )*
        }
    };
}

typed! {
    group, put_group, Group(GroupRow);
    member, put_member, Member(MemberRow);
    set, put_set, Set(SetRow);
    segment, put_segment, Segment(SegmentRow);
    file, put_file, File(FileRow);
    session, put_session, Session(SessionRow);
    slot, put_slot, Slot(SlotRow);
    object, put_object, Object(Vec<SegmentId>);
    number, put_number, Number(u64);
}

/// A batch in the making: what was looked at is its fences.
pub struct Txn<'a> {
    rows: &'a Rows,
    pub batch: Batch,
}

#[derive(Clone, Debug, Default)]
pub struct Batch {
    expects: BTreeMap<Key, Option<Value>>,
    puts: BTreeMap<Key, Option<Value>>,
}

impl<'a> Txn<'a> {
    pub fn new(rows: &'a Rows) -> Txn<'a> {
        Txn { rows, batch: Batch::default() }
    }

    fn look(&mut self, key: Key) -> Option<Value> {
        if let Some(put) = self.batch.puts.get(&key) {
            return put.clone();
        }
        let value = self.rows.get(&key).cloned();
        self.batch.expects.insert(key, value.clone());
        value
    }

    pub fn put(&mut self, key: Key, value: Option<Value>) {
        self.look(key);
        self.batch.puts.insert(key, value);
    }

    /// Sets of one session as they are; whoever makes one changes the session's row.
    pub fn sets_of(&self, session: SessionId) -> Vec<SegmentId> {
        let of = |(key, value): (&Key, &Value)| match (key, value) {
            (Key::Set(segment), Value::Set(row)) if row.writer == session => Some(*segment),
            _ => None,
        };
        self.rows.iter().filter_map(of).collect()
    }
}

impl Batch {
    /// Whether it was committed.
    pub fn commit(self, rows: &mut Rows) -> bool {
        if self.expects.iter().any(|(key, expect)| rows.get(key) != expect.as_ref()) {
            return false;
        }
        for (key, value) in self.puts {
            match value {
                Some(value) => drop(rows.insert(key, value)),
                None => drop(rows.remove(&key)),
            }
        }
        true
    }
}
