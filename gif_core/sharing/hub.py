"""The Hugging Face hub: uploading the folder of a model, and downloading one."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from gif_core.runtime import install_command
from schemas.errors import GifError
from schemas.files import SCORES_FILE
from schemas.sharing import CARD_FILE, CONFIG_FILE, LARGEST_RECORD, LARGEST_WEIGHTS, WEIGHTS_FILE, Origin

FILES: Final = {
    CONFIG_FILE: LARGEST_RECORD,
    WEIGHTS_FILE: LARGEST_WEIGHTS,
    SCORES_FILE: LARGEST_RECORD,
    CARD_FILE: LARGEST_RECORD,
}
"""Files of a repository that are downloaded, and their largest sizes; whatever else is there is left alone."""


class HubError(GifError, RuntimeError):
    """The hub cannot be used, or has refused something."""


def check_can_push() -> None:
    """HubError unless the client is installed and has a token; asked before anything is written."""
    _need_client()
    from huggingface_hub import get_token

    if get_token() is None:
        raise HubError(
            "--push needs a token of the Hugging Face hub with write access: set HF_TOKEN, or run 'hf auth login'"
        )


def push_folder(folder: Path, repository: str, *, private: bool = True) -> str:
    """Create the repository if it is not there, upload the folder as one commit, and return its address."""
    check_can_push()
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        created = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Model of gif export hf")
    except Exception as error:  # of its own, of httpx, of the operating system
        raise HubError(f"{repository} cannot be pushed: {_reason(error)}; the folder {folder} is complete") from error
    return str(created)


class Downloaded(NamedTuple):
    """Files of a model in the client's cache."""

    folder: Path
    origin: Origin


def download_folder(repository: str, revision: str | None = None) -> Downloaded:
    """Download the files of one commit; their sizes are asked first, and nothing is loaded if one is too large."""
    _need_client()
    from huggingface_hub import HfApi, snapshot_download

    try:
        about = HfApi().model_info(repository, revision=revision, files_metadata=True)
        _check_sizes(repository, {each.rfilename: each.size for each in about.siblings or []})
        origin = Origin(repository=repository, commit=about.sha or "")
        folder = snapshot_download(repository, revision=about.sha, allow_patterns=list(FILES))
    except HubError:
        raise
    except Exception as error:  # of its own, of httpx, of the operating system
        raise HubError(
            f"{repository} cannot be downloaded: {_reason(error)}; is the name right, is the hub reachable, and has "
            "HF_TOKEN access if the repository is private? A folder that was downloaded elsewhere works too"
        ) from error
    return Downloaded(Path(folder), origin)


def _check_sizes(repository: str, sizes: Mapping[str, int | None]) -> None:
    """HubError unless the files of a model are there and within their bounds."""
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if name not in sizes:
            raise HubError(f"{repository} is not a shared model: it has no {name}; 'gif export hf' writes such folders")
    for name, largest in FILES.items():
        size = sizes.get(name, 0)
        if size is None or size > largest:
            found = "an unknown number of" if size is None else f"{size:,}"
            raise HubError(f"{repository} was not downloaded: {name} has {found} bytes, and the limit is {largest:,}")


def _need_client() -> None:
    if find_spec("huggingface_hub") is None:
        raise HubError(f"the Hugging Face hub needs its client: {install_command('huggingface_hub')}")


def _reason(error: Exception) -> str:
    """The first line of an error of the client, which raises those of several libraries."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
