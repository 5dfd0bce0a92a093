//! Maps against a naive model.
