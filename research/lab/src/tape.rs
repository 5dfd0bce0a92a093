//! Recording the requests of a run: where its engine leaves them, as a trace in a file.

use placement::trace::Recorder;
use placement::{EventSink, Layout};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes the bytes of a trace.
type Writing = Box<dyn FnMut(&[u8]) + Send>;

/// Where the requests of a run go, if they are recorded.
#[derive(Clone, Default)]
pub(crate) struct Tape(Option<Arc<Mutex<State>>>);

struct State {
    file: std::fs::File,
    recorder: Option<Arc<Recorder<Writing>>>,
    engines: u32,
    failed: Arc<Mutex<Option<std::io::Error>>>,
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tape").field(&self.0.is_some()).finish()
    }
}

impl Tape {
    /// A tape in a new file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn create(path: &Path) -> std::io::Result<Tape> {
        let file = std::fs::File::create(path)?;
        let state = State { file, recorder: None, engines: 0, failed: Arc::default() };
        Ok(Tape(Some(Arc::new(Mutex::new(state)))))
    }

    /// The sink for a new engine: the first one of a run is recorded.
    pub(crate) fn sink(&self, layout: &Layout) -> Option<Arc<dyn EventSink>> {
        let mut state = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        state.engines += 1;
        if state.engines > 1 {
            return None;
        }
        let (mut file, failed) = (state.file.try_clone().ok()?, Arc::clone(&state.failed));
        let write: Writing = Box::new(move |part: &[u8]| {
            if let Err(error) = file.write_all(part) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        let recorder = Arc::new(Recorder::new(layout, write));
        state.recorder = Some(Arc::clone(&recorder));
        Some(recorder)
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// No volume or several; errors of the file system.
    pub(crate) fn finish(&self) -> Result<(), String> {
        let Some(state) = &self.0 else { return Ok(()) };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match (state.engines, state.recorder.take()) {
            (1, Some(recorder)) => recorder.flush(),
            (0, _) => return Err("nothing was recorded: no case or policy of this name".into()),
            (n, _) => {
                return Err(format!("the run has {n} volumes; choose one with --case and --policy"));
            }
        };
        let failed = state.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), |error| Err(error.to_string()))
    }
}
