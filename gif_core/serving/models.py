"""The model in use and the galleries of a service, followed when the champion moves or people are enrolled."""

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from gif_core.artifacts import ArtifactStore, GalleryError, find_model, latest_version
from gif_core.galleries import EnrolledGallery, read_newest
from gif_core.images import IMAGE_SIZE
from gif_core.recognition import METHODS, Method, Recognizer
from gif_core.serving.metrics import Metrics
from schemas.errors import GifError

logger = logging.getLogger(__name__)
WARM: Final = np.zeros((1, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)


@dataclass(frozen=True)
class ServedModel:
    """A model that answers requests."""

    recognizer: Recognizer
    reason: str
    unable: dict[Method, str]
    """Methods of identification that it cannot do, and why."""
    loaded_at: float = field(default_factory=time.time)

    @property
    def key(self) -> str:
        """The key of its artifact."""
        return self.recognizer.model.key


class ServedModels:
    """The model that a name means, by default the champion, and galleries; requests keep what they began with."""

    def __init__(
        self,
        store: ArtifactStore | str,
        model: str | None = None,
        galleries: tuple[str, ...] = (),
        *,
        device: str = "auto",
        metrics: Metrics | None = None,
    ) -> None:
        """Load everything; GifError if something is missing."""
        self.store = ArtifactStore(store) if isinstance(store, str) else store
        self.name, self.device, self.metrics = model, device, metrics or Metrics()
        self.current = self._load()
        self.galleries: dict[str, EnrolledGallery | GalleryError] = {name: self._open(name) for name in galleries}
        self.fault: str | None = None
        """Why the last look at the store failed."""
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Take over what has changed in the store; a fault is noted, and what was loaded stays in use."""
        with self._lock:
            try:
                if find_model(self.store, self.name).artifact.ref.key != self.current.key:
                    self.current = self._load()
                for name in self.galleries:
                    self._refresh_gallery(name)
                self.fault = None
            except (GifError, OSError) as error:
                self.metrics.add("gif_refresh_failures_total")
                if str(error) != self.fault:
                    logger.warning("the store cannot be followed, %s stays in use: %s", self.current.key[:12], error)
                self.fault = str(error)

    def _load(self) -> ServedModel:
        recognizer = Recognizer.load(self.store, self.name, self.device)
        recognizer.embed_aligned(WARM)
        served = ServedModel(recognizer, recognizer.reason, dict(_try_methods(recognizer)))
        self.metrics.set("gif_model_info", 1, key=served.key, reason=served.reason)
        self.metrics.set("gif_model_loaded_timestamp_seconds", served.loaded_at)
        logger.info("%s answers now: %s", recognizer.model, recognizer.reason)
        return served

    def _open(self, name: str) -> EnrolledGallery:
        version, templates = read_newest(self.store, name, digests=False)
        if not len(templates):
            raise GalleryError(f"the gallery {name} is empty: 'gif enroll FOLDER --gallery {name}' adds people")
        same = version.model == self.current.key
        recognizer = (
            self.current.recognizer if same else Recognizer.load(self.store, f"training/{version.model}", self.device)
        )
        recognizer.embed_aligned(WARM)
        return EnrolledGallery(recognizer, version, templates)

    def _refresh_gallery(self, name: str) -> None:
        """Open the newest version; one that is empty or gone must not answer any more."""
        known, newest = self.galleries[name], latest_version(self.store, name)
        if isinstance(known, EnrolledGallery) and newest is not None and newest.number == known.version.number:
            return
        try:
            self.galleries[name] = self._open(name)
        except GalleryError as error:
            self.galleries[name] = error


def _try_methods(recognizer: Recognizer) -> list[tuple[Method, str]]:
    """Open the enrolled identities for every method, so that no request waits for that."""
    unable: list[tuple[Method, str]] = []
    for method in METHODS:
        try:
            recognizer.find(recognizer.embed_aligned(WARM), 1, method)
        except GifError as error:
            unable.append((method, str(error)))
    return unable
