//! What goes to the terminal. A reader that went away early (`| head`) is no error.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Writes to standard output, as it is.
pub(crate) fn out(text: &impl Display) {
    let mut stdout = io::stdout().lock();
    let _ = write!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Writes a line to standard output.
pub(crate) fn line(text: &impl Display) {
    out(&format_args!("{text}\n"));
}

/// Writes a line about something that went wrong to standard error. Control characters, as names of files may have them, are shown.
pub(crate) fn complain(text: &impl Display) {
    let text: String = text.to_string().trim_end().chars().flat_map(shown).collect();
    let _ = writeln!(io::stderr().lock(), "forebay: {text}");
}

/// Writes a line of information to standard error.
pub(crate) fn note(text: &impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn shown(character: char) -> Vec<char> {
    if character.is_control() { character.escape_default().collect() } else { vec![character] }
}
