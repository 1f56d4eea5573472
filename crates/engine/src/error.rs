/// An engine, or the place of engines, that could not do what was asked. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Another process has it open.
    #[error("the metadata engine in {place} is in use by another process")]
    Locked {
        /// Where it is.
        place: String,
    },
    /// Its files are not what it wrote.
    #[error("the metadata engine in {place} is damaged: {detail}; `forebay fsck` tells more")]
    Damaged {
        /// Where it is.
        place: String,
        /// What it found.
        detail: String,
    },
    /// No space is left for it.
    #[error("no space is left for the metadata engine in {place}")]
    NoSpace {
        /// Where it is.
        place: String,
    },
    /// It does not answer now, and may later.
    #[error("the metadata engine in {place} cannot be reached: {detail}")]
    Unreachable {
        /// Where it is.
        place: String,
        /// What was seen of it, and what to look at.
        detail: String,
    },
    /// It does not let us in, or not do this.
    #[error("the metadata engine in {place} refuses: {detail}")]
    Refused {
        /// Where it is.
        place: String,
        /// What it said, and what to give it.
        detail: String,
    },
    /// A later release keeps it in a way that this one does not know.
    #[error(
        "the metadata engine in {place} has version {found}, this release knows up to {known}: use a later one"
    )]
    Newer {
        /// Where it is.
        place: String,
        /// The version of what is there.
        found: u32,
        /// The last version that this release knows.
        known: u32,
    },
    /// There is no database of this name.
    #[error("there is no database {name:?} in {place}")]
    Missing {
        /// Where it was looked for.
        place: String,
        /// Which one.
        name: String,
    },
    /// There is a database of this name already.
    #[error("there is a database {name:?} in {place} already")]
    Exists {
        /// Where it is.
        place: String,
        /// Which one.
        name: String,
    },
    /// Anything else.
    #[error("the metadata engine in {place} failed: {detail}")]
    Failed {
        /// Where it is.
        place: String,
        /// What it said.
        detail: String,
    },
}
