"""Requests a second of `gif serve` on one core against the bare model, and the time of a request.

python benchmarks/serving.py [--backbone iresnet18] [--rounds 5] [--seconds 4] [--connections 16]

The server has one core to itself: HTTP, decoding of the images, the network and the answers. The reference embeds
batches of 8 decoded faces in the same process and on the same core, before and after each round; the client has
another core. A request is an aligned face as JPEG, and its answer the feature of image and mirror. The ratio is also
given per second of CPU time of the server's process, which other programs on the machine do not disturb.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gif_core.serving import listen
from gif_core.synthetic import draw_jpeg

BATCH = 8


def make_store(folder: Path, backbone: str) -> None:
    """A store with a model of random weights."""
    from safetensors.torch import save_file

    from gif_core.artifacts import ArtifactStore, move_tag
    from gif_core.backbones import build_backbone

    store = ArtifactStore(str(folder))
    with store.draft(store.ref("training", "1" * 64), {}, {}) as draft:
        weights = build_backbone(backbone, 512).state_dict()
        save_file({name: each.contiguous() for name, each in weights.items()}, draft.folder / "backbone.safetensors")
        about = {"backbone": backbone, "embedding_dim": 512, "head": "cosface"}
        (draft.folder / "model.json").write_text(json.dumps(about))
        move_tag(store, "latest", store.publish(draft))


def serve(store: str, core: int, listening: socket.socket, asked: Connection) -> None:
    """Serve on one core; measure the bare model for as many seconds as a message says; None asks for the CPU time."""
    os.sched_setaffinity(0, {core})
    import torch
    import uvicorn

    from gif_core.serving import ServedModels, build_app

    torch.set_num_threads(1)
    models = ServedModels(store, "latest", device="cpu")
    faces = np.random.default_rng(0).integers(0, 256, (BATCH, 112, 112, 3), np.uint8)

    def measure() -> None:
        while (seconds := asked.recv()) != 0:
            if seconds is None:
                asked.send(time.process_time())
                continue
            done, began, cpu = 0, time.perf_counter(), time.process_time()
            while time.perf_counter() < began + seconds:
                models.current.recognizer.embed_aligned(faces)
                done += BATCH
            asked.send((done / (time.perf_counter() - began), done / (time.process_time() - cpu)))
        server.should_exit = True

    server = uvicorn.Server(uvicorn.Config(build_app(models, threads=1, batch=BATCH), log_level="warning", ws="none"))
    threading.Thread(target=measure).start()
    server.run(sockets=[listening])


async def ask(port: int, request: bytes, end: float, times: list[float]) -> None:
    """Send one request after another on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < end:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await reader.readexactly(length)
        times.append(time.perf_counter() - began)
    writer.close()


async def load(port: int, request: bytes, seconds: float, connections: int) -> tuple[float, list[float]]:
    """Requests a second, and the time of each."""
    times: list[float] = []
    began = time.perf_counter()
    await asyncio.gather(*(ask(port, request, began + seconds, times) for _ in range(connections)))
    return len(times) / (time.perf_counter() - began), times


def main() -> None:
    """Measure, print a table, and JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="iresnet18")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=16)
    given = parser.parse_args()
    face = draw_jpeg(0, 1, 0)
    head = f"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(face)}\r\n\r\n"
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, listen("127.0.0.1", 0) as listening:
        make_store(Path(folder) / "store", given.backbone)
        here, there = multiprocessing.Pipe()
        arguments = (str(Path(folder) / "store"), cores[0], listening, there)
        server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments)
        server.start()
        os.sched_setaffinity(0, {cores[-1]})

        def query(message: float | None) -> Any:
            here.send(message)
            return here.recv()

        port, request = listening.getsockname()[1], head.encode() + face
        query(1.0)
        asyncio.run(load(port, request, 1.0, given.connections))
        references, rounds, times = [query(given.seconds / 2)], list[tuple[float, float]](), list[float]()
        for _ in range(given.rounds):
            cpu = query(None)
            speed, took = asyncio.run(load(port, request, given.seconds, given.connections))
            rounds.append((speed, len(took) / (query(None) - cpu)))
            references.append(query(given.seconds / 2))
            times += took
        here.send(0)
        server.join()
    show(given.backbone, given.connections, references, rounds, times)


def show(
    backbone: str,
    connections: int,
    references: list[tuple[float, float]],
    rounds: list[tuple[float, float]],
    times: list[float],
) -> None:
    """Print what was measured: each round against the reference before and after it."""
    ratios = np.array(rounds) / np.array([np.mean(both, axis=0) for both in pairwise(references)])
    ratio, cpu_ratio = np.median(ratios, axis=0).tolist()
    bare, served = median(speed for speed, _ in references), median(speed for speed, _ in rounds)
    p50, p99 = (float(each) for each in np.percentile(np.array(times) * 1000, [50, 99]))
    print(f"{backbone}: bare model, batches of {BATCH}: {bare:.1f} faces a second")
    print(f"served, {connections} connections: {served:.1f} requests a second")
    print(f"ratio {ratio:.3f}, per second of CPU time {cpu_ratio:.3f}; rounds: {np.round(ratios, 3).tolist()}")
    print(f"a request takes {p50:.0f} ms (median), {p99:.0f} ms (p99)")
    about = {"bare": bare, "served": served, "ratio": ratio, "cpu_ratio": cpu_ratio, "p50_ms": p50, "p99_ms": p99}
    print(json.dumps({"backbone": backbone, "connections": connections, **about}))


if __name__ == "__main__":
    main()
