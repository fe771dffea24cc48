"""`gif detector`: the model file that finds faces in photographs."""

from typing import Annotated

import typer

from gif_core.detection import DETECTOR_URL

app = typer.Typer(help="Install the face detector (YuNet), which is not part of the project.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Keep `install` a sub-command although it is the only one."""


@app.command("install")
def install(
    source: Annotated[
        str, typer.Argument(metavar="[FILE|URL]", help="The model file, or where to download it from.")
    ] = DETECTOR_URL,
) -> None:
    """Keep face_detection_yunet_2023mar.onnx of the OpenCV Zoo (MIT licence, 233 kB) in the cache, its digest checked.

    Examples:
      gif detector install

      gif detector install face_detection_yunet_2023mar.onnx
    """
    from gif_core.detection import install_detector

    print(install_detector(source))
