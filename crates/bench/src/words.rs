//! What a report says in words: facts about place and machine, caches, what was held.

use crate::{Cache, Machine, Measurement, Place, Report, Settings, SideReport};

impl Measurement {
    /// Requests of all kinds for each operation, where they were counted.
    pub(crate) fn requests_an_operation(&self) -> Option<f64> {
        Some(self.requests.as_ref()?.values().sum())
    }

    /// What was cached, with the words of what emptied its own caches.
    pub(crate) fn cache_in_words(&self) -> String {
        match (self.cache, self.emptied.as_slice()) {
            (Cache::Cold { .. }, [_, ..]) => format!("{}: {}", self.cache, self.emptied.join(", ")),
            _ => self.cache.to_string(),
        }
    }

    /// What was observed, as label and value, with its growth for each operation.
    pub(crate) fn observed_in_words(&self) -> Vec<(String, String)> {
        let shown = |name: &str, value: f64| match name.ends_with("_bytes") {
            true if value >= 0.0 => crate::text::bytes(value as u64),
            true => format!("-{}", crate::text::bytes(-value as u64)),
            false if value.fract() == 0.0 => format!("{value:.0}"),
            false => crate::text::digits(value),
        };
        let label = |name: &str| name.trim_end_matches("_bytes").replace('_', " ");
        let words = self.observed.iter().map(|(name, value)| {
            let grown = self.grown.get(name).filter(|grown| name.ends_with("_bytes") && grown.abs() >= 0.5);
            let grown =
                grown.map(|grown| format!(" (+{} an operation)", shown(name, *grown)).replace("+-", "-"));
            (label(name), format!("{}{}", shown(name, *value), grown.unwrap_or_default()))
        });
        words.collect()
    }
}

impl Report {
    /// The place, machine and settings, as label and value.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let place = |side: &SideReport| {
            let Place { path, file_system, source, .. } = &side.place;
            let memory =
                side.peak_memory_bytes.map(|bytes| format!(", peak memory {}", crate::text::bytes(bytes)));
            format!("{} ({file_system}, {source}){}", path.display(), memory.unwrap_or_default())
        };
        let mut facts = vec![("target", place(&self.target))];
        facts.extend(self.reference.as_ref().map(|side| ("reference", place(side))));
        let Machine { cpu, cores, memory_bytes, kernel } = &self.machine;
        facts.push((
            "machine",
            format!("{cpu}, {cores} cores, {}, {kernel}", crate::text::bytes(*memory_bytes)),
        ));
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        facts.push(("program", format!("{}{commit}", self.version)));
        facts.push(("command", self.command.clone()));
        facts.push(("date", format!("{}, took {:.0} s", self.started, self.took_s)));
        let Settings { jobs, rounds, quick, seed, .. } = &self.settings;
        let look = if *quick { ", quick sizes (a first look)" } else { "" };
        facts.push(("settings", format!("jobs {jobs}, rounds {rounds}, seed {seed}{look}")));
        facts
    }
}
