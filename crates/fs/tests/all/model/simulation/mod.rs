//! The random runs of `model.rs`: profiles of volumes, the model, the steps, the judges.

pub mod judge;
pub mod model;
pub mod profile;
pub use testkit::random;
pub mod run;
