"""The networks F_θ that turn a face into a feature: one file for each family."""
