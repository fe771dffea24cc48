"""Bodies of requests and answers, as OpenAPI shows them."""

from typing import Annotated, Any, Final

from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from gif_core.detection import FaceMode
from gif_core.recognition import Method

IMAGE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "An image file: JPEG, PNG, WebP or BMP.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
    }
}
"""The body of requests with one image, which is taken as it is, whatever its content type."""


class EmbedQuery(BaseModel):
    """Parameters of `/embed`."""

    faces: FaceMode = Field("auto", description="How faces are found; auto takes images of 112×112 as aligned.")
    every: bool = Field(False, alias="all", description="Answer for every face, not for the largest only.")


class VerifyQuery(BaseModel):
    """Parameters of `/verify`."""

    faces: FaceMode = Field("auto", description="How faces are found; auto takes images of 112×112 as aligned.")
    pairs: str | None = Field(None, alias="set", description="Take the threshold of this evaluated set.")


class IdentifyQuery(EmbedQuery):
    """Parameters of `/identify`."""

    gallery: str | None = Field(None, description="A gallery; else the identities the model was trained on.")
    top: int = Field(5, ge=1, le=100, description="Candidates of a face.")
    by: Method = Field("reranked", description="How identities of the training are found; galleries have one way.")


class Problem(BaseModel):
    """Why a request was not answered, and what to do."""

    error: str


class Found(BaseModel):
    """A face in an image."""

    box: list[float] | None = Field(None, description="Left, top, width, height; none for an aligned face.")
    score: float | None = Field(None, description="The detector's score.")
    remarks: list[str] = Field([], description="What is doubtful: other faces, few pixels, blur.")


class Embedded(Found):
    """A face and its feature."""

    feature: list[float] = Field(description="Of unit length; faces are compared by cosine.")


class EmbedAnswer(BaseModel):
    """Features of the faces of an image, largest face first."""

    model: str = Field(description="Key of the model; features of different models cannot be compared.")
    faces: list[Embedded]


class Pair(BaseModel):
    """Two image files."""

    model_config = ConfigDict(extra="forbid")

    left: Annotated[Base64Bytes, Field(min_length=1, description="An image file in base64.")]
    right: Annotated[Base64Bytes, Field(min_length=1, description="An image file in base64.")]


class VerifyAnswer(BaseModel):
    """Whether two images show one identity, by the threshold that evaluation found."""

    model: str
    same: bool
    cosine: float
    threshold: float
    set: str = Field(description="The evaluated set that the threshold and the rates come from.")
    pairs: int
    accuracy: float
    far: float
    domain: str = Field(description="What the images of that set are, if they are not photographs.")
    faces: list[Found]


class CandidateAnswer(BaseModel):
    """An identity that a face may show."""

    identity_id: int
    label: str
    probability: float | None
    cosine: float


class IdentifiedFace(Found):
    """A face and who it may be."""

    known: bool | None = Field(description="Whether the first candidate reaches the threshold; null without one.")
    candidates: list[CandidateAnswer]


class IdentifyAnswer(BaseModel):
    """Who the faces of an image show."""

    model: str
    gallery: str | None
    promise: str = Field(description="What the threshold between known and unknown promises.")
    faces: list[IdentifiedFace]


class Health(BaseModel):
    """What answers requests."""

    status: str
    model: str
    reason: str
    galleries: dict[str, int] = Field(description="Identities of each gallery.")
    fault: str | None = Field(description="Why the store could not be followed, if it could not.")
