//! Spec to validated values, or a refusal that names the field and the remedy.
