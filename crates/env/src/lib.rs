//! What the system gives: durable files, clock, randomness, fault points
