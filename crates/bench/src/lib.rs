//! Measures any mounted directory and writes the report
