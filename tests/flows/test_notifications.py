"""What happens to runs reaches a webhook on this machine, through the automations of a real Prefect server."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prefect import flow
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.states import Crashed, Scheduled

from flows.notifications import TITLE, ensure_notifications
from schemas.errors import GifError
from schemas.retraining import RetrainingResult
from tasks.retraining import show_result
from tests.conftest import run_module


class Received(HTTPServer):
    """Keeps the messages that it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.messages: list[dict[str, str]] = []

    def wait_for(self, text: str) -> dict[str, str]:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            for message in list(self.messages):
                if text in message["subject"]:
                    return message
            time.sleep(0.2)
        raise AssertionError(f"no message about {text}; there are: {self.messages}")


class _Handler(BaseHTTPRequestHandler):
    server: Received

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        self.server.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()


@pytest.fixture
def webhook(prefect: str) -> Iterator[Received]:
    with Received() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        block = CustomWebhookNotificationBlock(
            name="ops",
            url=f"http://127.0.0.1:{server.server_port}",
            json_data={"subject": "{{subject}}", "body": "{{body}}"},
        )
        block.save("ops", overwrite=True)
        yield server
        server.shutdown()
        thread.join()
        with get_client(sync_client=True) as client:
            for old in client.read_automations():
                if old.name.startswith(TITLE):
                    client.delete_automation(old.id)


@flow(name="gif")
def failing() -> None:
    raise ValueError("the disk of the store is full")


@flow(name="gif")
def crashing() -> object:
    return Crashed(message="its process is gone")


@flow(name="retrain")
def deciding(outcome: str, message: str) -> None:
    show_result(RetrainingResult.model_validate({"outcome": outcome, "message": message}))


@flow(name="another")
def another() -> None:
    raise ValueError("of someone else")


@pytest.mark.slow
def test_failed_crashed_promoted_and_refused_runs_are_told_with_reason_and_link(
    webhook: Received, prefect: str
) -> None:
    printed = run_module("flows.cli", "deploy", "--notify", "custom-webhook/ops", PREFECT_API_URL=prefect)
    names = ensure_notifications("custom-webhook/ops", timedelta(weeks=4))
    assert printed.splitlines()[-len(names) :] == names
    with get_client(sync_client=True) as client:
        assert sorted(each.name for each in client.read_automations() if each.name.startswith(TITLE)) == sorted(names)
    time.sleep(5)  # until the server has loaded them
    assert another(return_state=True).type == StateType.FAILED
    assert failing(return_state=True).type == StateType.FAILED
    assert crashing(return_state=True).type == StateType.CRASHED
    deciding("promoted", "training/4f2a is the new champion: LFW accuracy +1.20 points")
    deciding("kept", "training/4f2a stays champion, training/77aa is not promoted")
    failed = webhook.wait_for("a run has failed")
    assert "the disk of the store is full" in failed["body"]
    assert f"{prefect.removesuffix('/api')}/runs/flow-run/" in failed["body"]
    assert "its process is gone" in webhook.wait_for("a run has crashed")["body"]
    promoted = webhook.wait_for("is the new champion")
    assert "LFW accuracy +1.20 points" in promoted["body"]
    assert "/runs/flow-run/" in promoted["body"]
    assert "is not promoted" in webhook.wait_for("stays champion")["body"]
    assert len(webhook.messages) == 4, "runs of other flows are not told"


@pytest.mark.slow
def test_silence_is_told_after_a_decision_and_after_a_run_without_news(webhook: Received, prefect: str) -> None:
    ensure_notifications("custom-webhook/ops", timedelta(seconds=10))
    time.sleep(5)  # until the server has loaded it
    for outcome in ("kept", "nothing_new"):
        webhook.messages.clear()
        deciding(outcome, f"{outcome}, and then nothing")
        message = webhook.wait_for("nothing new for 10 seconds")
        assert message["body"].startswith("Retraining has decided nothing for 10 seconds: no new data arrived")


@pytest.mark.slow
def test_a_scheduled_run_that_no_worker_takes_is_told(webhook: Received, prefect: str) -> None:
    ensure_notifications("custom-webhook/ops", timedelta(weeks=4))
    time.sleep(5)  # until the server has loaded it
    with get_client(sync_client=True) as client:
        missed = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(minutes=5))
        run = client.create_flow_run(deciding, parameters={"outcome": "kept", "message": ""}, state=missed)
        try:
            assert str(run.id) in webhook.wait_for("a run is late: does a worker of the pool gif run?")["body"]
        finally:
            client.delete_flow_run(run.id)


def test_blocks_that_cannot_notify_are_refused(prefect: str) -> None:
    with pytest.raises(GifError, match=r"--notify slack-webhook/nobody: the server has no such block; make one"):
        ensure_notifications("slack-webhook/nobody", timedelta(weeks=4))
    Secret(value="x").save("quiet", overwrite=True)
    with pytest.raises(GifError, match="--notify secret/quiet: blocks of this type send no notifications"):
        ensure_notifications("secret/quiet", timedelta(weeks=4))
