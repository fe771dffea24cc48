"""Automations that tell someone: runs that failed or crashed, what retraining decided, and long silence."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL

from flows.deployment import FLOWS
from schemas.errors import GifError
from tasks.retraining import EVENT, RESOURCE

TITLE: Final = "gif: tell about"
"""Beginning of the names of these automations."""
DECISIONS: Final = ("first", "promoted", "kept")
"""Outcomes of retraining that are told; `kept` means that the challenger was refused."""


def ensure_notifications(block: str, weeks: int) -> list[str]:
    """Send what happens to a notification block, `TYPE/NAME`; automations of an earlier call are replaced."""
    document = _find_block(block)
    made = list(_automations(document, weeks))
    with get_client(sync_client=True) as client:
        for automation in made:
            for old in client.read_automations_by_name(automation.name):
                client.delete_automation(old.id)
            client.create_automation(automation)
    return [automation.name for automation in made]


def _find_block(block: str) -> UUID:
    kind, _, name = block.partition("/")
    with get_client(sync_client=True) as client:
        try:
            found = client.read_block_document_by_name(name, kind)
        except ObjectNotFound:
            raise GifError(
                f"--notify {block}: the server has no such block; make one in its UI under Blocks (Slack, custom "
                "webhook, …) and name it TYPE/NAME, as in slack-webhook/team or custom-webhook/ops"
            ) from None
    known = found.block_schema
    if known is None or "notify" not in known.capabilities:
        raise GifError(
            f"--notify {block}: blocks of this type send no notifications; for a plain webhook make a custom-webhook"
        )
    return found.id


def _link() -> str:
    """The page of a run; the server itself does not know the address at which its UI is reached."""
    ui = PREFECT_UI_URL.value() or (PREFECT_API_URL.value() or "").removesuffix("/api")
    return f"{ui}/runs/flow-run/{{{{ flow_run.id }}}}"


def _automations(block: UUID, weeks: int) -> Iterator[AutomationCore]:
    link = _link()
    for state in ("Failed", "Crashed"):
        trigger = EventTrigger(
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={"prefect.resource.role": "flow", "prefect.resource.name": FLOWS},
            expect={f"prefect.flow-run.{state}"},
            posture=Posture.Reactive,
            threshold=1,
        )
        body = f"{{{{ flow.name }}}}, run {{{{ flow_run.name }}}}: {{{{ flow_run.state.message }}}}\n{link}"
        yield _automation(f"{state.lower()} runs", trigger, block, f"GIF: a run has {state.lower()}", body)
    for outcome in DECISIONS:
        trigger = EventTrigger(
            match={"prefect.resource.id": RESOURCE},
            expect={EVENT.format(outcome)},
            posture=Posture.Reactive,
            threshold=1,
        )
        body = f"{{{{ event.payload.text }}}}\n{link}"
        yield _automation(f"retraining: {outcome}", trigger, block, "GIF: {{ event.payload.message }}", body)
    trigger = EventTrigger(
        match={"prefect.resource.id": RESOURCE},
        expect={EVENT.format(outcome) for outcome in DECISIONS},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(weeks=weeks),
    )
    body = f"Retraining has decided nothing for {weeks} weeks: no new data arrived, or it did not run."
    yield _automation("silence", trigger, block, f"GIF: nothing new for {weeks} weeks", body)


def _automation(what: str, trigger: EventTrigger, block: UUID, subject: str, body: str) -> AutomationCore:
    action = SendNotification(block_document_id=block, subject=subject, body=body)
    return AutomationCore(
        name=f"{TITLE} {what}", description="Made by gif deploy --notify.", trigger=trigger, actions=[action]
    )
