//! The cases written by hand, by theme. Each is a function that adds steps to a script; what is right is what the
//! reference does, so a case holds no expected values.

use super::op::Script;

mod attributes;
mod bytes;
mod directories;
mod names;
mod opens;
mod permissions;
mod space;
mod steps;

/// A case before it is made into steps.
pub type Case = (&'static str, fn(&mut Script));

/// All cases in the order they are played.
pub fn all() -> Vec<Script> {
    [
        opens::CASES,
        names::CASES,
        bytes::CASES,
        space::CASES,
        attributes::CASES,
        permissions::CASES,
        directories::CASES,
    ]
    .concat()
    .into_iter()
    .map(|(name, build)| {
        let mut script = Script::new(name);
        build(&mut script);
        script
    })
    .collect()
}
