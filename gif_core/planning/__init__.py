"""Planning: the key of every stage, whether it is stored already, and whether there is room for it.

plan       What a run would do: the key of every stage, whether it is stored already, and what made the difference
preflight  Is there room for a stage? Asked before it begins, since hours later is too late
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = [
    "available_memory",
    "check_room",
    "existing_folder",
    "find_inputs",
    "needs_of",
    "plan_stages",
    "select_stages",
    "stage_settings",
]

if TYPE_CHECKING:
    from gif_core.planning.plan import find_inputs, plan_stages, select_stages, stage_settings
    from gif_core.planning.preflight import available_memory, check_room, existing_folder, needs_of
else:
    __getattr__ = lazy_imports(__name__)
