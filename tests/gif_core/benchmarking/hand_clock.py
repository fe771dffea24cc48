"""A clock that moves only when a test says so: benchmarks measure the same on every machine."""

from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

MODULES = ("clock", "train", "head", "embed", "separate", "tokenize", "evaluate")
"""Modules of benchmarks that look at the time."""


class HandClock:
    """Seconds that pass only within the work that was made slow."""

    def __init__(self, patch: pytest.MonkeyPatch, hooks: ExitStack) -> None:
        self.now, self.patch, self.hooks = 0.0, patch, hooks
        reads = SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: self.now)
        for name in MODULES:
            patch.setattr(f"gif_core.benchmarking.{name}.time", reads)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def slow(self, owner: Any, name: str, seconds: float) -> None:
        """Let every call take so long."""
        self.patch.setattr(owner, name, self.slowed(getattr(owner, name), seconds))

    def slowed(self, work: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        def run(*given: Any, **settings: Any) -> Any:
            self.advance(seconds)
            return work(*given, **settings)

        return run

    def slow_modules(self, kind: type, *, forward: float, backward: float) -> None:
        """Let networks of this class take so long in both directions."""
        from torch.nn.modules.module import register_module_forward_hook

        def hook(module: object, _: object, output: Any) -> None:
            if isinstance(module, kind):
                self.advance(forward)
                result = getattr(output, "loss", output)
                if result.requires_grad:
                    result.register_hook(lambda _: self.advance(backward))

        self.hooks.callback(register_module_forward_hook(hook).remove)

    def slow_optimizers(self, seconds: float) -> None:
        """Let every step of an optimizer take so long."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.hooks.callback(register_optimizer_step_post_hook(lambda *_: self.advance(seconds)).remove)
