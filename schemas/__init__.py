"""Schemas: what everything is called and what it may be."""
