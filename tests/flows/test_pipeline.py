"""The flow on a real Prefect server: what ran is read from the states the server has recorded."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from prefect import State
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.exceptions import PrefectException
from prefect.results import ResultStore
from prefect.serializers import JSONSerializer
from prefect.settings import PREFECT_API_URL

from flows.pipeline import gif
from gif_core.artifacts import (
    Artifact,
    ArtifactMissingError,
    ArtifactStore,
    check_artifacts,
    find_leftovers,
    find_run,
    list_runs,
    list_tags,
)
from gif_core.protocols import read_scores
from gif_core.runtime import percent
from schemas.artifacts import ArtifactRef, RunRecord
from schemas.loading import load_config
from schemas.run import RunConfig
from schemas.stages import STAGES, StageName
from tasks.results import StoreResults
from tests.flows.recorded import has_ended, stage_of, task_runs
from tests.test_layers import CONTRACTS

pytestmark = pytest.mark.usefixtures("prefect")
CACHED = CONTRACTS["Nothing on a cached path imports torch"]
RUN_AND_LIST_MODULES = """
import atexit, sys
atexit.register(lambda: print(*sorted(sys.modules)))
from flows.cli import main
main()
"""


def states_of(state: State) -> dict[str, str]:
    """Stage → final state name, as the server has them for this flow run; a stage may have tasks of its own."""
    found = task_runs(state, *getattr(state.result(raise_on_failure=False), "stages", ()))
    return {stage_of(task): str(task.state_name) for task in found if stage_of(task) in STAGES and has_ended(task)}


def computed(state: State) -> set[str]:
    return {stage for stage, name in states_of(state).items() if name == "Completed"}


def reused(state: State) -> set[str]:
    return {stage for stage, name in states_of(state).items() if name == "Cached"}


@pytest.fixture(scope="module")
def finished(prefect_api: str, tiny_settings: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A small run that has gone through all stages."""
    from prefect.settings import temporary_settings

    alone = {"reporting": {"compare": False}}
    config = load_config({**tiny_settings, **alone, "store": str(tmp_path_factory.mktemp("store"))})
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        assert computed(gif(config, return_state=True)) == set(STAGES)
    return config


def changed(config: RunConfig, *overrides: str) -> RunConfig:
    return load_config(config, list(overrides))


def test_the_same_run_again_reuses_every_stage(finished: RunConfig) -> None:
    state = gif(finished, return_state=True)
    assert reused(state) == set(STAGES)
    assert computed(state) == set()


def test_a_cached_run_loads_no_torch_and_only_modules_of_its_contract(finished: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(finished.model_dump_json())
    command = [sys.executable, "-c", RUN_AND_LIST_MODULES, "run", "--config", str(tmp_path / "run.yaml")]
    environment = os.environ | {"PREFECT_API_URL": str(PREFECT_API_URL.value())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("│ reused") == len(STAGES)
    loaded = done.stdout.splitlines()[-1].split()
    assert "torch" not in loaded
    ours = {name for name in loaded if name.split(".")[0] in ("flows", "tasks", "gif_core", "schemas")}
    assert "gif_core.planning.keys" in ours
    assert {name for name in ours if not any(matches(name, each) for each in CACHED["source_modules"])} == set()


def matches(module: str, pattern: str) -> bool:
    """Whether import-linter means this module: `*` stands for one name, `**` for any number of them."""
    names = re.escape(pattern).replace(r"\*\*", r"[\w.]+").replace(r"\*", r"\w+")
    return re.fullmatch(names, module) is not None


def test_a_changed_code_length_reruns_tokenization_and_what_follows(finished: RunConfig) -> None:
    state = gif(changed(finished, "tokenization.length=4"), return_state=True)
    assert computed(state) == {"tokenization", "training", "evaluation", "reporting"}
    assert reused(state) == {"ingestion", "embedding", "separation"}


def test_refresh_reruns_that_stage_alone(finished: RunConfig) -> None:
    state = gif(finished, refresh=["tokenization"], return_state=True)
    assert computed(state) == {"tokenization"}
    assert reused(state) == set(STAGES) - {"tokenization"}


def test_only_runs_one_stage_on_what_is_stored(finished: RunConfig) -> None:
    state = gif(changed(finished, "tokenization.length=5"), only="tokenization", return_state=True)
    assert states_of(state) == {"tokenization": "Completed"}


def test_a_run_beside_which_others_have_come_makes_only_its_report_again(finished: RunConfig) -> None:
    config = changed(finished, "reporting.compare=true")
    gif(config)
    others = {head: gif(changed(config, f"training.head={head}")) for head in ("arcface", "partial_fc")}
    state = gif(config, return_state=True)
    assert computed(state) == {"reporting"}
    assert reused(gif(config, return_state=True)) == set(STAGES)
    record = gif(config)
    rows = rows_beside(open_stage(config, record, "reporting").path("report.html").read_text())
    for head, run in {"gif": record, **others}.items():
        column = rows["training.head"].index(head)
        scores = read_scores(open_stage(config, run, "evaluation").path("scores.json"))
        assert rows["Held out: Accuracy"][column].startswith(
            percent(scores["held_out"]["systems"]["model"]["accuracy"])
        )


def open_stage(config: RunConfig, record: RunRecord, stage: StageName) -> Artifact:
    store = ArtifactStore(config.store)
    return store.open(store.ref(stage, record.stages[stage].key))


def rows_beside(report: str) -> dict[str, list[str]]:
    """The rows of the table that puts runs side by side, by their labels."""
    section = report.split('id="beside"')[1].split("</section>")[0]
    rows = re.findall(r"<tr>\s*<td>(.*?)</td>(.*?)</tr>", section, re.DOTALL)
    return {label: re.findall(r"<td[^>]*>(?:<b>)?(.*?)(?:</b>)?</td>", cells) for label, cells in rows}


def test_the_report_is_linked_in_prefects_ui_also_when_it_is_reused(finished: RunConfig) -> None:
    state = gif(finished, return_state=True)
    assert "reporting" in reused(state)
    run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[state.state_details.flow_run_id]))
    with get_client(sync_client=True) as client:
        [shown] = [found for found in client.read_artifacts(artifact_filter=run) if found.key == "report"]
    where = shown.data.split("](")[1].split(")")[0]
    assert Path(where.removeprefix("file://")).read_text().startswith("<!doctype html>")
    assert "| Held out: Accuracy |" in shown.data
    assert "`gif runs show` names" in shown.data, "for browsers do not follow such a link from a page of a server"


def test_from_begins_in_the_middle(finished: RunConfig) -> None:
    state = gif(changed(finished, "evaluation.flip=false"), from_stage="evaluation", return_state=True)
    assert states_of(state) == {"evaluation": "Completed", "reporting": "Completed"}


def test_a_stage_alone_is_reused_or_refreshed(finished: RunConfig) -> None:
    assert states_of(gif(finished, only="tokenization", return_state=True)) == {"tokenization": "Cached"}
    assert states_of(gif(finished, only="tokenization", refresh=["tokenization"], return_state=True)) == {
        "tokenization": "Completed"
    }


def test_an_artifact_deleted_behind_prefects_back_is_rebuilt(finished: RunConfig) -> None:
    store = ArtifactStore(finished.store)
    record = gif(finished)
    store.remove(store.ref("tokenization", record.stages["tokenization"].key))
    state = gif(finished, return_state=True)
    assert computed(state) == {"tokenization"}


def test_a_missing_input_is_told_with_what_to_run(tiny: RunConfig) -> None:
    with pytest.raises(
        ArtifactMissingError, match=r"training needs ingestion, separation, tokenization.*--from ingestion"
    ):
        gif(tiny, only="training")


def test_a_wrong_setting_is_refused_before_anything_runs(tmp_path: Path) -> None:
    settings = {"preset": "demo", "store": str(tmp_path), "tokenization": {"lenght": 3}}
    with pytest.raises(PrefectException, match="lenght"):
        gif(settings)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_inline_table_may_start_from_a_preset(finished: RunConfig) -> None:
    state = gif(finished.model_dump(mode="json"), return_state=True)  # type: ignore[arg-type]
    assert reused(state) == set(STAGES)


def test_the_run_is_written_down_with_what_it_made(finished: RunConfig) -> None:
    record = gif(finished)
    store = ArtifactStore(finished.store)
    assert find_run(store) == record
    assert record.state == "completed"
    assert {done.action for done in record.stages.values()} == {"reused"}
    latest = {tag.ref.stage: tag.ref.key for tag in list_tags(store) if tag.name == "latest"}
    assert latest == {stage: done.key for stage, done in record.stages.items()}


def test_a_failed_run_is_written_down_with_its_stage_and_error(tiny: RunConfig) -> None:
    with pytest.raises(ValueError, match="open_clip has no such model"):
        gif(changed(tiny, "embedding.model=ViT-X"))
    record = list_runs(ArtifactStore(tiny.store))[0]
    assert (record.state, record.current) == ("failed", "embedding")
    assert "open_clip has no such model" in str(record.error)
    assert find_leftovers(ArtifactStore(tiny.store), older_than=0) == []


def test_codes_are_unique_and_no_cluster_is_above_its_capacity(finished: RunConfig) -> None:
    store = ArtifactStore(finished.store)
    record = gif(finished)
    path = store.open(store.ref("tokenization", record.stages["tokenization"].key)).path("codes.duckdb")
    with duckdb.connect(str(path), read_only=True) as table:
        assert table.execute("SELECT count(*) = count(DISTINCT code) FROM codes").fetchone() == (True,)
        assert table.execute("SELECT count(*) FROM nodes WHERE size > capacity").fetchone() == (0,)


def test_every_stored_file_is_what_its_manifest_says(finished: RunConfig) -> None:
    store = ArtifactStore(finished.store)
    checks = list(check_artifacts(store, store.refs()))
    assert len(checks) > len(STAGES)
    assert [check for check in checks if check.fault] == []


def test_the_stages_log_lines_reach_the_server(finished: RunConfig, wait: Callable[..., None]) -> None:
    state = gif(finished, refresh=["reporting"], return_state=True)
    run = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[state.state_details.flow_run_id]))

    def published() -> list[str]:
        with get_client(sync_client=True) as client:
            return [log.name for log in client.read_logs(run) if "is published" in log.message]

    wait(lambda: bool(published()), seconds=20, what="a line of a stage in the server's log")
    assert published() == ["tasks.stage"]


def test_the_whole_pipeline_runs_on_s3_and_reuses_it(s3_url: str, finished: RunConfig) -> None:
    config = changed(finished, f"store={s3_url}")
    assert computed(gif(config, return_state=True)) == set(STAGES)
    assert reused(gif(config, return_state=True)) == set(STAGES)


@pytest.mark.parametrize("place", ["local", "s3"])
def test_results_of_the_flow_and_its_tasks_lie_in_the_store_of_the_run(
    finished: RunConfig, tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    address = str(tmp_path / "store") if place == "local" else request.getfixturevalue("s3_url")
    config = changed(finished, f"store={address}")
    state = gif(config, only="ingestion", return_state=True)
    with get_client(sync_client=True) as client:
        told = client.read_flow_run(state.state_details.flow_run_id)
    [task] = task_runs(state, "ingestion")
    assert told.state
    assert task.state
    results = ResultStore(result_storage=StoreResults(store=address), serializer=JSONSerializer())
    record, ref = (results.read(found.data.storage_key).result for found in (told.state, task.state))
    assert RunRecord.model_validate(record) == list_runs(ArtifactStore(address))[0]
    assert ArtifactRef.model_validate(ref).key == list_runs(ArtifactStore(address))[0].stages["ingestion"].key
    assert len(list(ArtifactStore(address).storage.find("prefect"))) == 2
