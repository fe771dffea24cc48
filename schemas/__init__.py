"""Schemas: every setting, stored record and file name, with the values that are allowed. No computation.

run           RunConfig: all settings of one pipeline run
stages        the seven stages, their inputs and their format versions
ingestion, embedding, separation, tokenization, training, evaluation, reporting
              settings of the stage of that name
execution     device, parallelism, retries and time limits; never part of a key
retraining    the retraining policy, and the stored decisions about champions
artifacts     references, manifests, tags and run records, as the artifact store writes them
files         names of the files in artifacts
loading       presets, YAML files and `--set` to a checked RunConfig, with readable errors
presets/      the YAML files of the presets
addresses     folders and URLs, checked to hold no credentials
errors        GifError, the base of all errors that a user can fix
base          the two pydantic base classes: settings and stored records
"""
