"""A real server on a free port of this machine, asked by a real HTTP client."""

import base64
import hashlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import uvicorn
from safetensors.torch import save_file

from gif_core.artifacts import ArtifactStore, find_model
from gif_core.backbones import build_backbone
from gif_core.galleries import enroll, read_album, remove
from gif_core.recognition import Recognizer
from gif_core.retraining import promote
from gif_core.serving import Limits, ServedModels, build_app, listen
from gif_core.synthetic import draw_jpeg
from tests.recognition_store import DIM, fill_store, open_split, save_model

FACES = [draw_jpeg(0, person, 0) for person in range(4)]
NEVER = 1e6
SCHEMATHESIS = "schemathesis==4.32.5"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two models, of which the first is evaluated and the champion, and a gallery of three people."""
    folder = tmp_path_factory.mktemp("serving")
    fill_store(folder / "store")
    store = ArtifactStore(str(folder / "store"))
    first = find_model(store, "latest").artifact
    promote(store, first, because="first")
    with store.draft(store.ref("training", "f" * 64), {}, first.manifest.inputs) as draft:
        save_model(draft.folder)
        torch.manual_seed(1)
        weights = build_backbone("iresnet_tiny", DIM).state_dict()
        save_file({name: each.contiguous() for name, each in weights.items()}, draft.folder / "backbone.safetensors")
        store.publish(draft)
    for person in range(3):
        add_person(folder / "photos", person)
    enroll(Recognizer.load(store, "latest", "cpu"), store, "staff", read_album(folder / "photos"))
    return folder


def add_person(album: Path, person: int) -> None:
    (album / f"P{person}").mkdir(parents=True)
    (album / f"P{person}" / "1.jpg").write_bytes(FACES[person])


@pytest.fixture
def store(prepared: Path, tmp_path: Path) -> ArtifactStore:
    shutil.copytree(prepared / "store", tmp_path / "store")
    return ArtifactStore(str(tmp_path / "store"))


@pytest.fixture
def models(store: ArtifactStore) -> ServedModels:
    return ServedModels(store, galleries=("staff",), device="cpu")


@contextmanager
def serving(models: ServedModels, **options: Any) -> Iterator[httpx.Client]:
    app = build_app(models, **{"follow": NEVER, **options})
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        with httpx.Client(base_url=address, timeout=30, trust_env=False) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def client(models: ServedModels) -> Iterator[httpx.Client]:
    with serving(models) as client:
        yield client


def pair(left: bytes, right: bytes) -> dict[str, str]:
    return {"left": base64.b64encode(left).decode(), "right": base64.b64encode(right).decode()}


def test_the_service_answers_as_the_python_api_does(client: httpx.Client, store: ArtifactStore, prepared: Path) -> None:
    recognizer = Recognizer.load(store, device="cpu")
    embedded = client.post("/embed", content=FACES[0]).json()
    assert embedded["model"] == recognizer.model.key
    assert np.allclose(embedded["faces"][0]["feature"], recognizer.embed(FACES[0])[0], atol=1e-6)
    for right in FACES[:2]:
        answer, wanted = client.post("/verify", json=pair(FACES[0], right)).json(), recognizer.verify(FACES[0], right)
        assert (answer["same"], answer["domain"]) == (wanted.same, "drawn faces")
        assert answer["cosine"] == pytest.approx(wanted.cosine, abs=1e-5)
        assert (answer["threshold"], answer["far"]) == (wanted.threshold, wanted.far)
    ingestion = store.open(store.ref("ingestion", find_model(store).artifact.manifest.inputs["ingestion"].key))
    enrolled = bytes(open_split({"ingestion": ingestion}, "identities").content(0))
    for by in ("reranked", "codes", "exhaustive"):
        face = client.post("/identify", params={"by": by, "top": 2}, content=enrolled).json()["faces"][0]
        (wanted_one,) = recognizer.identify(enrolled, 2, by)  # type: ignore[arg-type]
        assert face["known"] == wanted_one.known
        assert [each["label"] for each in face["candidates"]] == [each.label for each in wanted_one.candidates]


def test_people_of_a_gallery_are_named_and_changes_of_it_are_followed(
    client: httpx.Client, models: ServedModels, store: ArtifactStore, tmp_path: Path
) -> None:
    def first(face: bytes) -> str:
        answer = client.post("/identify", params={"gallery": "staff"}, content=face).json()
        return str(answer["faces"][0]["candidates"][0]["label"])

    assert first(FACES[1]) == "P1"
    add_person(tmp_path / "photos", 3)
    enroll(Recognizer.load(store, device="cpu"), store, "staff", read_album(tmp_path / "photos"))
    assert first(FACES[3]) != "P3"
    models.refresh()
    assert first(FACES[3]) == "P3"
    remove(store, "staff", "P3")
    models.refresh()
    assert first(FACES[3]) != "P3"
    for label in ("P0", "P1", "P2"):
        remove(store, "staff", label)
    models.refresh()
    answer = client.post("/identify", params={"gallery": "staff"}, content=FACES[1])
    assert answer.status_code == 404
    assert "the gallery staff is empty: 'gif enroll FOLDER --gallery staff'" in answer.json()["error"]
    unknown = client.post("/identify", params={"gallery": "guests"}, content=FACES[1])
    assert unknown.status_code == 404
    assert "there is no gallery 'guests' here; there are: staff" in unknown.json()["error"]


def test_the_champion_is_swapped_under_load_and_no_request_fails(models: ServedModels, store: ArtifactStore) -> None:
    keys = find_model(store, "latest").artifact.ref.key, "f" * 64
    wanted = {key: Recognizer.load(store, f"training/{key}", "cpu").embed(FACES[0])[0] for key in keys}
    assert np.abs(wanted[keys[0]] - wanted[keys[1]]).max() > 0.01
    ended, answers = threading.Event(), list[httpx.Response]()

    def ask(client: httpx.Client) -> None:
        while not ended.is_set():
            answers.append(client.post("/embed", content=FACES[0]))

    with serving(models, follow=0.05) as client, ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask, client) for _ in range(4)]
        for key in (keys[1], keys[0], keys[1]):
            promote(store, store.open(store.ref("training", key)), because="swapped")
            deadline = time.monotonic() + 30
            while client.get("/health").json()["model"] != key:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        ended.set()
        for each in asking:
            each.result()
    assert {answer.status_code for answer in answers} == {200}
    bodies = [answer.json() for answer in answers]
    assert {body["model"] for body in bodies} == set(keys)
    for body in bodies:
        assert np.allclose(body["faces"][0]["feature"], wanted[body["model"]], atol=1e-5), "the model it names"


def test_a_store_that_cannot_be_read_leaves_the_model_in_use(models: ServedModels, store: ArtifactStore) -> None:
    folder = Path(store.storage.url.removeprefix("file://"))
    shutil.move(folder, folder.with_name("away"))
    with serving(models, follow=0.05) as client:
        deadline = time.monotonic() + 30
        while client.get("/health").json()["fault"] is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert client.post("/embed", content=FACES[0]).status_code == 200
        shutil.move(folder.with_name("away"), folder)
        while client.get("/health").json()["fault"] is not None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert "gif_refresh_failures_total " in client.get("/metrics").text


def png_bomb() -> bytes:
    """A few bytes that declare 60,000 × 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not a JPEG, PNG, WebP or BMP file"),
        (b"\x00garbage" * 100, "not a JPEG, PNG, WebP or BMP file"),
        (FACES[0][: len(FACES[0]) // 3], "image 0: "),
        (png_bomb(), "too large: 60000×60000"),
    ],
)
def test_bodies_that_are_no_images_are_refused_with_the_reason(client: httpx.Client, content: bytes, told: str) -> None:
    for path in ("/embed", "/identify"):
        answer = client.post(path, content=content)
        assert answer.status_code == 422
        assert told in answer.json()["error"]
    assert client.post("/verify", json=pair(FACES[0], content or b"-")).status_code == 422
    assert client.post("/embed", content=FACES[0]).status_code == 200


def test_photographs_are_searched_for_faces_if_a_detector_is_installed(
    models: ServedModels, no_detector: Path, detector: Path, photographs: Path
) -> None:
    photograph = next(photographs.rglob("*.jpg")).read_bytes()
    (installed,) = no_detector.rglob("*.onnx")
    with serving(models) as client:
        (face,) = client.post("/embed", content=photograph).json()["faces"]
        assert len(face["box"]) == 4
        assert face["score"] > 0.7
        everyone = client.post("/identify", params={"all": True, "gallery": "staff"}, content=photograph).json()
        assert face["box"] in [each["box"] for each in everyone["faces"]]
        installed.unlink()
        answer = client.post("/embed", content=photograph)
        assert answer.status_code == 422
        assert "this service has no face detector: 'gif detector install'" in answer.json()["error"]
        assert client.post("/embed", params={"faces": "aligned"}, content=photograph).status_code == 200


def test_requests_that_are_not_understood_are_told_what_is_expected(client: httpx.Client) -> None:
    for answer, status, told in (
        (client.post("/verify", json={"left": "AAAA"}), 422, "body.right: Field required; /docs"),
        (client.post("/verify", content=b"{"), 422, "body: Input should be a valid dictionary"),
        (client.post("/embed", params={"faces": "some"}, content=FACES[0]), 422, "query.faces: Input should be"),
        (client.post("/identify", params={"top": 0}, content=FACES[0]), 422, "query.top: "),
        (client.post("/verify", params={"set": "LFW"}, json=pair(FACES[0], FACES[1])), 422, "there are: held_out"),
        (client.get("/nothing"), 404, "Not Found: /docs lists what there is"),
        (client.get("/embed"), 405, "Method Not Allowed: /docs lists what there is"),
    ):
        assert answer.status_code == status
        assert told in answer.json()["error"]


def test_a_body_above_the_limit_is_refused_whether_it_states_its_size_or_not(models: ServedModels) -> None:
    with serving(models, limits=Limits(body=100_000)) as client:
        for content in (bytes(5_000_000), iter([bytes(60_000)] * 50)):
            answer = client.post("/embed", content=content)
            assert answer.status_code == 413
            assert "and the limit is 100,000: send a smaller image" in answer.json()["error"]
        assert client.post("/embed", content=FACES[0]).status_code == 200


def test_a_token_is_asked_for_everywhere_but_for_health(models: ServedModels) -> None:
    with serving(models, token="secret") as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            for method, path in (("POST", "/embed"), ("GET", "/metrics"), ("GET", "/docs"), ("GET", "/nothing")):
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 401
                assert "Authorization: Bearer TOKEN" in answer.json()["error"]
        right = {"Authorization": "Bearer secret"}
        assert client.post("/embed", content=FACES[0], headers=right).status_code == 200
        assert client.get("/health").status_code == 200


def test_without_a_token_requests_for_another_host_are_refused(client: httpx.Client) -> None:
    assert client.get("/health", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/health", headers={"Host": f"localhost:{client.base_url.port}"}).status_code == 200


HALF_A_BODY = b"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf"


def test_requests_beyond_the_number_at_once_are_told_to_try_again(models: ServedModels) -> None:
    with serving(models, limits=Limits(at_once=1)) as client:
        with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as slow:
            slow.sendall(HALF_A_BODY)
            while (busy := client.post("/embed", content=FACES[0])).status_code == 200:
                pass  # the half request has not arrived yet
            assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
            assert "try again in a moment" in busy.json()["error"]
            assert client.get("/health").status_code == 200
        while (free := client.post("/embed", content=FACES[0])).status_code == 503:
            pass  # the server has not seen the end of the connection yet
        assert free.status_code == 200


def test_a_body_that_arrives_too_slowly_is_refused(models: ServedModels) -> None:
    with (
        serving(models, limits=Limits(seconds=0.5)) as client,
        socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=60) as slow,
    ):
        slow.sendall(HALF_A_BODY)
        answer = b"".join(iter(lambda: slow.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within 0.5 s" in answer


def test_an_answer_that_takes_too_long_and_a_fault_of_the_network_are_told(
    models: ServedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = Recognizer.embed_aligned

    def slow(*given: Any, **more: Any) -> Any:
        time.sleep(1.0)
        return embed(*given, **more)

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory")

    with serving(models, limits=Limits(seconds=0.4)) as client:
        monkeypatch.setattr(Recognizer, "embed_aligned", slow)
        late = client.post("/embed", content=FACES[0])
        assert (late.status_code, "within 0.4 s" in late.json()["error"]) == (504, True)
        time.sleep(1.0)
        monkeypatch.setattr(Recognizer, "embed_aligned", fail)
        failed = client.post("/embed", content=FACES[0])
        assert (failed.status_code, failed.json()["error"]) == (500, "the service has a fault: its log says more")
        monkeypatch.setattr(Recognizer, "embed_aligned", embed)
        assert client.post("/embed", content=FACES[0]).status_code == 200


def test_requests_at_the_same_time_go_through_the_network_together(
    models: ServedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, embed = list[int](), Recognizer.embed_aligned

    def watched(self: Recognizer, faces: Any, **more: Any) -> Any:
        sizes.append(len(faces))
        time.sleep(0.05)
        return embed(self, faces, **more)

    monkeypatch.setattr(Recognizer, "embed_aligned", watched)
    with serving(models, batch=8) as client, ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda face: client.post("/embed", content=face), FACES * 6))
    assert [answer.status_code for answer in answers] == [200] * 24
    assert sum(sizes) == 24
    assert 1 < max(sizes) <= 8
    alone = Recognizer.load(models.store, device="cpu")
    for answer, face in zip(answers, FACES * 6, strict=True):
        assert np.allclose(answer.json()["faces"][0]["feature"], alone.embed(face)[0], atol=1e-5), "its own face"


def test_metrics_are_read_by_prometheus(client: httpx.Client) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    client.post("/embed", content=FACES[0])
    client.post("/embed", content=b"garbage")
    client.get("/private/a-path-of-the-caller")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in parser.text_string_to_metric_families(answer.text)}
    requests = {tuple(each.labels.values()): each.value for each in families["gif_requests"].samples}
    assert requests == {("/embed", "200"): 1, ("/embed", "422"): 1, ("other", "404"): 1}
    seconds = families["gif_request_seconds"].samples
    assert [each.value for each in seconds if each.name.endswith("_count")] == [2, 1]
    (info,) = families["gif_model_info"].samples
    assert info.labels["key"] == client.get("/health").json()["model"]


def test_openapi_describes_every_path(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()["paths"]
    assert set(described) == {"/embed", "/verify", "/identify", "/health", "/metrics"}
    assert "application/octet-stream" in described["/embed"]["post"]["requestBody"]["content"]


def test_the_page_describes_every_path_and_parameter_and_needs_no_other_server(client: httpx.Client) -> None:
    answer = client.get("/docs")
    policy = answer.headers["content-security-policy"]
    page, described = answer.text, client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            assert f"{method.upper()} {path}</code>" in page
            assert escape(about["description"]) in page
            for each in about.get("parameters", []):
                assert f"<code>{each['name']}</code>" in page
    for name in described["components"]["schemas"]:
        assert f'id="{name}"' in page
    assert not re.search(r"https?://|src=|@import|url\(", page)
    script = page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy, "the one script that a browser runs"


@pytest.mark.slow
def test_schemathesis_finds_nothing(client: httpx.Client, tmp_path: Path) -> None:
    """Requests drawn from the description, valid and not; that bytes are an image is all that it does not state."""
    packages = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages), SCHEMATHESIS]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"schemathesis cannot be installed here: {installed.stderr.strip().splitlines()[-1]}")
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(client.base_url.join("/openapi.json"))]
    command += ["--checks", "all", "--exclude-checks", "positive_data_acceptance", "--max-examples", "100"]
    environment = {**os.environ, "PYTHONPATH": str(packages), "NO_PROXY": "127.0.0.1"}
    asked = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert client.get("/health").status_code == 200
