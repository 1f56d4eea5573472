//! Where threads run.

/// Lets the calling thread run wherever this process may: on the processors that its main thread may use. A thread begins on those of the one that
/// started it, and one that serves a processor's requests is bound to it.
pub fn unbind() {
    let main = rustix::process::getpid();
    let bound = rustix::thread::sched_getaffinity(Some(main))
        .and_then(|processors| rustix::thread::sched_setaffinity(None, &processors));
    if let Err(error) = bound {
        tracing::debug!("a thread stays on the processors of the one that started it: {error}");
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    fn processors(of: &CpuSet) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|processor| of.is_set(*processor)).collect()
    }

    #[test]
    fn a_thread_started_by_a_bound_one_may_leave() {
        let all = processors(&sched_getaffinity(Some(rustix::process::getpid())).unwrap());
        let last = *all.last().unwrap();
        let found = std::thread::spawn(move || {
            let mut only = CpuSet::new();
            only.set(last);
            sched_setaffinity(None, &only).unwrap();
            let inherited = std::thread::spawn(|| {
                let before = processors(&sched_getaffinity(None).unwrap());
                super::unbind();
                (before, processors(&sched_getaffinity(None).unwrap()))
            });
            inherited.join().unwrap()
        });
        assert_eq!(found.join().unwrap(), (vec![last], all));
    }
}
