//! Captures the whole log. It decides nothing: each test decides what must not be in the log.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use crate::support::child_input;

/// Captures the log at every level, of every crate.
#[derive(Clone, Default)]
pub(crate) struct Ear(Arc<Mutex<String>>);

impl tracing::field::Visit for Ear {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        write!(self.0.lock().unwrap(), "{field}={value:?} ").unwrap();
    }
}

impl tracing::Subscriber for Ear {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
        self.0.lock().unwrap().push('\n');
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

impl Ear {
    /// Captures the log of this process, which has to be the child half of a test (`support::child`).
    pub(crate) fn alone() -> Self {
        child_input();
        let ear = Self::default();
        tracing::subscriber::set_global_default(ear.clone()).unwrap();
        ear
    }

    /// The log so far.
    pub(crate) fn heard(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}
