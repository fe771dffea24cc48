"""The core: how everything is computed, with plain values and arrays in and out."""
