//! The thread that writes what is pending, so that whoever appends goes on meanwhile.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use super::{Shared, stream_file::StreamFile};

/// Ends, after it has written what it was asked to, when it is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<Sender<Arc<StreamFile>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// `None` where no thread can be had.
    pub(super) fn start(shared: &Arc<Shared>) -> Option<Writer> {
        let (sender, receiver) = channel();
        let shared = Arc::clone(shared);
        let started =
            std::thread::Builder::new().name("fb-stream".to_owned()).spawn(move || write(&receiver, &shared));
        match started {
            Ok(thread) => Some(Writer { queue: Some(sender), thread: Some(thread) }),
            Err(error) => {
                tracing::warn!("large writes wait for the disk, as no thread can be started: {error}");
                None
            }
        }
    }

    pub(super) fn wake(&self, stream: Arc<StreamFile>) {
        if stream.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(queue) = &self.queue {
            // It receives as long as there is a sender.
            let _ = queue.send(stream);
        }
    }
}

fn write(queue: &Receiver<Arc<StreamFile>>, shared: &Shared) {
    // It is begun by the first who appends.
    forebay_env::threads::unbind();
    while let Ok(stream) = queue.recv() {
        stream.queued.store(false, Ordering::Release);
        stream.drain(shared);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes streams panicked");
        }
    }
}
