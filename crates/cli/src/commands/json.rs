//! The two layouts of JSON: a list is an array with one object on a line, printed while it is made; all else is one
//! object, indented.

use std::io::{self, Write};

use serde_json::{Map, Value};

/// An array on its way out: lists of any length take no memory.
#[derive(Default)]
pub(super) struct Array {
    begun: bool,
}

impl Array {
    /// Prints one object.
    pub(super) fn push(&mut self, out: &mut dyn Write, object: Map<String, Value>) -> io::Result<()> {
        out.write_all(if self.begun { b",\n" } else { b"[\n" })?;
        self.begun = true;
        write!(out, "{}", Value::Object(object))
    }

    /// Prints the end.
    pub(super) fn end(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.begun { b"\n]\n" } else { b"[]\n" })
    }
}

/// Prints one object, indented.
pub(super) fn print(out: &mut dyn Write, object: impl Into<Value>) -> io::Result<()> {
    writeln!(out, "{:#}", object.into())
}
