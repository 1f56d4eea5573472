//! `forebay late-store`: the far-away bucket of a benchmark, in a process of its own so that its processor time is nobody else's.

use std::{io::BufRead, process::ExitCode, time::Duration};

use forebay_object::late::LateStore;
use serde_json::json;

use crate::{args::LateStoreArgs, error::CliError, output};

/// Answers questions about itself, a line of JSON for each line of standard input, and ends when that ends. `refuse 30`: from now on 30 of a hundred requests are
/// refused as too many.
pub(crate) fn run(args: &LateStoreArgs) -> Result<ExitCode, CliError> {
    let started = LateStore::start(Duration::from_millis(args.delay_ms));
    let store = started.map_err(|error| CliError::Told(format!("cannot start a store: {error}")))?;
    for question in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Some(of_hundred) = question.strip_prefix("refuse ").and_then(|number| number.parse().ok()) {
            store.refuse(of_hundred);
        }
        match question.as_str() {
            "reads" => output::line(&json!(store.reads())),
            "objects" => output::line(&json!(store.objects())),
            _ => output::line(&json!(store.address())),
        }
    }
    Ok(ExitCode::SUCCESS)
}
