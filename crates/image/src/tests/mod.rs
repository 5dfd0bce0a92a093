//! Tests of builds and exports as callers make them, one module for each subject. They are part of the unit tests' program,
//! since each program more takes time to link and room. That the interface is public is shown by the examples.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cancelling;
mod examples;
mod like;

use crate::{BuildError, Builder, ExportError, Exporter, Source, SourceError, SourceOptions, Watch};

fn is_shared<T: Send + Sync + 'static>() {}

#[test]
fn threads_may_share_what_a_program_keeps() {
    is_shared::<Source>();
    is_shared::<SourceOptions>();
    is_shared::<Watch>();
    is_shared::<SourceError>();
    is_shared::<BuildError>();
    is_shared::<ExportError>();
    is_shared::<Builder<'static>>();
    is_shared::<Exporter<'static>>();
}
