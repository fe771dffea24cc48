"""Tasks: when a stage is cached, retried and shown. Load references, call the core, store, return a reference."""
