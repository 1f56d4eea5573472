//! A volume on one machine: namespace, bytes and store joined
