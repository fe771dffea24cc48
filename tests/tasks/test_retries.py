"""Faults of disks, networks and servers are tried again; bad input, full disks and time-outs are not."""

import errno

import botocore.exceptions
import pytest
from aiohttp import ClientPayloadError
from httpx import ConnectError
from prefect.task_engine import TaskRunTimeoutError
from pydantic import ValidationError

from gif_core.artifacts import ArtifactDamagedError, StoreAwayError
from gif_core.training.data import DecoderError
from schemas.errors import GifError
from schemas.loading import ConfigError, load_config
from schemas.run import RunConfig
from tasks.retries import may_pass


def answer(status: int, code: str) -> botocore.exceptions.ClientError:
    return botocore.exceptions.ClientError(
        {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject"
    )


def refused_setting() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate({"seed": -1})
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens"),
        ConnectionResetError(),
        TimeoutError("no answer"),
        StoreAwayError("it has not answered for 300 s"),
        DecoderError("a process that decodes images ended with code -9"),
        OSError(errno.EIO, "a disk that stumbles"),
        OSError(errno.ESTALE, "a network file system that was away"),
        OSError(errno.EBUSY, "slow down"),
        botocore.exceptions.EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        botocore.exceptions.ReadTimeoutError(endpoint_url="http://127.0.0.1:1"),
        botocore.exceptions.ConnectionClosedError(endpoint_url="http://127.0.0.1:1"),
        answer(503, "SlowDown"),
        answer(500, "InternalError"),
        ClientPayloadError("half an answer"),
        ConnectError("Prefect's server is away"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    assert may_pass(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a wrong number"),
        GifError("something to put right"),
        ConfigError("a wrong setting"),
        ArtifactDamagedError("a flipped bit"),
        refused_setting(),
        FileNotFoundError(errno.ENOENT, "a wrong path"),
        PermissionError(errno.EACCES, "somebody else's folder"),
        OSError(errno.ENOSPC, "a full disk"),
        RuntimeError("a fault of ours"),
        TaskRunTimeoutError("Scope timed out after 1 second(s)."),
        answer(403, "AccessDenied"),
        answer(404, "NoSuchBucket"),
        botocore.exceptions.NoCredentialsError(),
        botocore.exceptions.ParamValidationError(report="a wrong bucket name"),
        KeyboardInterrupt(),
        None,
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_stays_as_it_is_is_told_at_once(error: BaseException | None) -> None:
    assert not may_pass(error)


def test_a_time_out_of_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ConfigError, match="trainig"):
        load_config({"execution": {"timeouts": {"trainig": 5}}})
