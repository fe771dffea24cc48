"""Training heads: what turns features and labels into a loss. One protocol, one file for each kind."""
