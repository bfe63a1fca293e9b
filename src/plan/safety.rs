//! Rules that must hold for every plan; checked in tests and in production.
