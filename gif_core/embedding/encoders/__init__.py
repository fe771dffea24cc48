"""Encoders: what turns a face into a general-purpose vector. One protocol, and one file for each library."""
