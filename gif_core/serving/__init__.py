"""Serving: a read-only HTTP service over the models and galleries of a store.

app       The FastAPI application: embed, verify, identify, health, metrics
service   What requests share, and the answers to them
direct    Requests with one image, answered without FastAPI
answers   Parameters and bodies of requests and answers, as OpenAPI shows them
models    The model in use and the galleries, followed when they change
batching  Faces of several requests through the network together
page      /docs, from the OpenAPI description, without a network
guard     Limits of every request: token, host, size, time, number at once; errors as JSON
metrics   Counters in Prometheus' text format
"""

from typing import TYPE_CHECKING

from gif_core.runtime.lazy import lazy_imports

__all__ = ["Batcher", "Limits", "Metrics", "ServedModels", "build_app", "is_loopback", "listen"]

if TYPE_CHECKING:
    from gif_core.serving.app import build_app
    from gif_core.serving.batching import Batcher
    from gif_core.serving.guard import Limits, is_loopback, listen
    from gif_core.serving.metrics import Metrics
    from gif_core.serving.models import ServedModels
else:
    __getattr__ = lazy_imports(__name__)
