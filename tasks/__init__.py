"""Tasks: when a stage is cached, retried and shown. Open references, call the core, publish, return one."""
