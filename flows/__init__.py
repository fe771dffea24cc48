"""Flows: in what order the stages run, and the command line."""
