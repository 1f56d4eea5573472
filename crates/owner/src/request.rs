//! Where what is said leaves.

use forebay_cluster::SessionId;
use forebay_protocol::{Push, Refusal, Response};

/// Where a response goes. Called once, from any thread; it must not wait.
pub type Reply = Box<dyn FnOnce(Result<Response, Refusal>) + Send>;

/// Where sessions are told what they did not ask for. Called from any thread; it must not wait.
pub type Tell = Box<dyn Fn(SessionId, Push) + Send + Sync>;
