"""Prefect tasks: cache, retry and show a stage. Open input artifacts, call the core, publish, return a reference."""
