//! FUSE over io_uring: the memory that kernel and server share, and the commands that travel.
//!
//! A [`Slot`] is the buffers of one ring entry: the kernel writes a request into them, the server its answer. A [`Ring`]
//! is one thread's io_uring instance, which has one slot armed at a time: handing in an answer and asking for the next
//! request is one command. Which thread serves which processor's queue is `session::queues`' business.
//!
//! Order that must hold: a slot's memory is the kernel's from [`Ring::register`] or [`Ring::commit`] until
//! [`Ring::wait`] gives the slot back, and is not looked at meanwhile: the type is not reachable then.
//!
//! Source: Linux `Documentation/filesystems/fuse/fuse-io-uring.rst` and `include/uapi/linux/fuse.h`, 6.14 and later.

mod memory;
mod port;
mod slot;
mod uring;

pub(crate) use port::{Resume, SlotPort};
pub(crate) use slot::{Kept, Slot};
pub(crate) use uring::{Event, Ring, probe};
