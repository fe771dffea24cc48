"""Automations that tell someone: runs that failed, crashed or are late, what retraining decided, and long silence."""

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
from tasks.retraining import EVENT, NOTHING_NEW, RESOURCE

TITLE: Final = "gif: tell about"
"""Beginning of the names of these automations."""
DECISIONS: Final = ("first", "promoted", "kept")
"""Outcomes of retraining that are told; `kept` means that the challenger was refused."""
STATES: Final = {
    "Failed": "a run has failed",
    "Crashed": "a run has crashed",
    "Late": "a run is late: does a worker of the pool gif run?",
}


def ensure_notifications(block: str, silence: timedelta) -> list[str]:
    """Send what happens to a notification block, `TYPE/NAME`; automations of an earlier call are replaced."""
    made = list(_automations(_find_block(block), silence))
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


def _automations(block: UUID, silence: timedelta) -> Iterator[AutomationCore]:
    link = _link()
    for state, subject in STATES.items():
        trigger = EventTrigger(
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={"prefect.resource.role": "flow", "prefect.resource.name": FLOWS},
            expect={f"prefect.flow-run.{state}"},
            posture=Posture.Reactive,
            threshold=1,
        )
        body = f"{{{{ flow.name }}}}, run {{{{ flow_run.name }}}}: {{{{ flow_run.state.message }}}}\n{link}"
        yield _automation(f"{state.lower()} runs", trigger, block, f"GIF: {subject}", body)
    for outcome in DECISIONS:
        trigger = EventTrigger(
            match={"prefect.resource.id": RESOURCE},
            expect={EVENT.format(outcome)},
            posture=Posture.Reactive,
            threshold=1,
        )
        body = f"{{{{ event.payload.text }}}}\n{link}"
        yield _automation(f"retraining: {outcome}", trigger, block, "GIF: {{ event.payload.message }}", body)
    yield _silence(block, silence)


def _silence(block: UUID, silence: timedelta) -> AutomationCore:
    """No decision within this time of the last one, or of a run that found nothing new.

    Without `after`, Prefect would count from a fixed grid of periods and tell up to two periods late.
    """
    decided = {EVENT.format(outcome) for outcome in DECISIONS}
    trigger = EventTrigger(
        match={"prefect.resource.id": RESOURCE},
        after={*decided, EVENT.format(NOTHING_NEW)},
        expect=decided,
        posture=Posture.Proactive,
        threshold=1,
        within=silence,
    )
    period = f"{silence.days // 7} weeks" if silence.days >= 7 else f"{silence.total_seconds():g} seconds"
    body = f"Retraining has decided nothing for {period}: no new data arrived, or it did not run."
    return _automation("silence", trigger, block, f"GIF: nothing new for {period}", body)


def _automation(what: str, trigger: EventTrigger, block: UUID, subject: str, body: str) -> AutomationCore:
    action = SendNotification(block_document_id=block, subject=subject, body=body)
    return AutomationCore(
        name=f"{TITLE} {what}", description="Made by gif deploy --notify.", trigger=trigger, actions=[action]
    )
