//! `plat info` of a container image: its configuration, without looking at layers.

use std::ffi::OsStr;
use std::path::Path;

use platfs_image::Source;
use serde_json::Value;

use crate::console::{Console, Failure};
use crate::image;
use crate::text::Shown;

/// Fields of the whole, and of its part `config` (OCI image specification, "Image Configuration").
const WHOLE: [(&str, &str); 5] = [
    ("OS", "os"),
    ("Architecture", "architecture"),
    ("Variant", "variant"),
    ("Created", "created"),
    ("Author", "author"),
];
const PARTS: [(&str, &str); 10] = [
    ("User", "User"),
    ("Entry point", "Entrypoint"),
    ("Command", "Cmd"),
    ("Working directory", "WorkingDir"),
    ("Environment", "Env"),
    ("Ports", "ExposedPorts"),
    ("Volumes", "Volumes"),
    ("Labels", "Labels"),
    ("Stop signal", "StopSignal"),
    ("Health check", "Healthcheck"),
];

/// Prints the configuration of the image at a path; false if none is there.
pub(super) fn print(console: &mut Console<'_>, name: &OsStr, as_json: bool) -> Result<bool, Failure> {
    let shown = image::shown(name).to_string();
    let found = Source::options().configuration(Path::new(name));
    let Some(config) = found.map_err(|error| Failure::Failed(error.to_string().into()))? else {
        return Ok(false);
    };
    let config: Value = serde_json::from_slice(&config).map_err(|error| Failure::about(&shown, error))?;
    if as_json {
        writeln!(console.out, "{config}")?;
        return Ok(true);
    }
    writeln!(console.out, "Container image:          {shown}")?;
    for (label, value) in WHOLE.iter().map(|(label, key)| (label, &config[*key])) {
        lines(console, label, value)?;
    }
    for (label, value) in PARTS.iter().map(|(label, key)| (label, &config["config"][*key])) {
        lines(console, label, value)?;
    }
    let layers = config["rootfs"]["diff_ids"].as_array().map_or(0, Vec::len);
    writeln!(console.out, "Layers:                   {layers}")?;
    Ok(true)
}

/// A line for a value; of a list or an object one for each part.
fn lines(console: &mut Console<'_>, label: &str, value: &Value) -> Result<(), Failure> {
    let texts: Vec<String> = match value {
        Value::Null => return Ok(()),
        Value::String(text) if text.is_empty() => return Ok(()),
        Value::String(text) => vec![text.clone()],
        // An entry point is one command, whatever words it has.
        Value::Array(words) if label != "Environment" => vec![Value::Array(words.clone()).to_string()],
        Value::Array(words) => {
            words.iter().map(|word| word.as_str().unwrap_or_default().to_owned()).collect()
        }
        Value::Object(parts) if parts.values().all(Value::is_string) => {
            parts.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
        }
        Value::Object(parts) if label != "Health check" => parts.keys().cloned().collect(),
        other => vec![other.to_string()],
    };
    for (text, label) in
        texts.iter().zip(std::iter::once(format!("{label}:")).chain(std::iter::repeat(String::new())))
    {
        writeln!(console.out, "{label:<25} {}", Shown(text.as_bytes()))?;
    }
    Ok(())
}
