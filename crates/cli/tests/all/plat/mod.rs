//! Running `plat` in the process of a test.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Result of a command.
pub struct Ran {
    /// Exit code.
    pub code: ExitCode,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// The output, of a command that must have succeeded in silence.
    pub fn fine(self) -> Vec<u8> {
        assert_eq!((self.code, &self.err[..]), (ExitCode::SUCCESS, ""));
        self.out
    }

    /// The complaint of a command that must have failed.
    pub fn failed(self) -> String {
        assert_eq!(self.code, ExitCode::FAILURE, "{}", self.err);
        self.err
    }
}

/// An output that its reader closes after `most` bytes.
pub struct Limited {
    pub bytes: Vec<u8>,
    pub most: usize,
}

impl Write for Limited {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > self.most {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn line(command: &str, image: &Path, rest: &[&OsStr]) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["plat".into()];
    line.extend(command.split(' ').map(OsString::from));
    line.push(image.into());
    line.extend(rest.iter().map(OsString::from));
    line
}

/// Runs `plat COMMAND IMAGE REST`; `command` may hold options, separated by blanks.
pub fn plat(command: &str, image: &Path, rest: &[&OsStr]) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = plat_cli::run_with(line(command, image, rest), &mut out, &mut err);
    Ran { code, out, err: String::from_utf8(err).expect("errors are text") }
}

/// As [`plat`], with an output that is closed after `most` bytes.
pub fn plat_limited(command: &str, image: &Path, rest: &[&OsStr], most: usize) -> Ran {
    let (mut out, mut err) = (Limited { bytes: Vec::new(), most }, Vec::new());
    let code = plat_cli::run_with(line(command, image, rest), &mut out, &mut err);
    Ran { code, out: out.bytes, err: String::from_utf8(err).expect("errors are text") }
}
