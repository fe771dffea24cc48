"""Planning: the key of every stage, whether it is stored already, and whether there is room for it.

keys       What the key of a stage is made of: its settings, what its files hold, and the artifacts that it reads
plan       What a run would do: the key of every stage, whether it is stored already, and what made the difference
preflight  Is there room for a stage? Asked before it begins, since hours later is too late
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "StageIdentity",
    "available_memory",
    "check_room",
    "contents_of",
    "existing_folder",
    "find_inputs",
    "identify_stage",
    "needs_of",
    "plan_stages",
    "select_stages",
    "stage_settings",
    "upstream_of",
]

if TYPE_CHECKING:
    from gif_core.planning.keys import StageIdentity, contents_of, identify_stage, stage_settings
    from gif_core.planning.plan import find_inputs, plan_stages, select_stages, upstream_of
    from gif_core.planning.preflight import available_memory, check_room, existing_folder, needs_of
else:
    __getattr__ = lazy_imports(__name__)
