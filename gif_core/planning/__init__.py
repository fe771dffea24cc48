"""Planning: which stages would run and why, and do disk and memory suffice for them?

keys       What a stage's key is computed from: its settings, the contents of its files, and the artifacts it reads
plan       What a run would do: the key of every stage, whether it is stored, and if not, which change caused that
checks     Checks of a run before its first stage: paths, encoder, room, and whether the faces suffice
weight_checks  Whether local files of weights can be opened, and fit
evaluation_sets  Which evaluation sets a run would score, and which are not there
cached     Recording a run of which every stage is stored
preflight  Checks before a stage starts that disk and memory suffice
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "StageIdentity",
    "available_memory",
    "check_before_run",
    "check_faces",
    "check_room",
    "contents_of",
    "existing_folder",
    "identify_stage",
    "is_cached",
    "is_scored",
    "leave_out_missing_sets",
    "missing_files",
    "needs_of",
    "plan_stages",
    "record_cached",
    "resolve_length",
    "select_stages",
    "stage_settings",
    "stored_inputs",
]

if TYPE_CHECKING:
    from gif_core.planning.cached import is_cached, is_scored, record_cached
    from gif_core.planning.checks import check_before_run, check_faces
    from gif_core.planning.evaluation_sets import leave_out_missing_sets, missing_files
    from gif_core.planning.keys import StageIdentity, contents_of, identify_stage, resolve_length, stage_settings
    from gif_core.planning.plan import plan_stages, select_stages, stored_inputs
    from gif_core.planning.preflight import available_memory, check_room, existing_folder, needs_of
else:
    __getattr__ = lazy_imports(__name__)
