"""A relay of TCP connections with a limited speed, in a process of its own: a slow network to a server.

python benchmarks/slow_network.py PORT TARGET_PORT MEGABYTES_PER_SECOND

All connections together send so much to the server, and get so much from it.
"""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

BLOCK = 2**16


class Lane:
    """One direction of the network, which blocks of all connections pass one after the other."""

    def __init__(self, rate: float) -> None:
        """`rate` is in bytes per second."""
        self.rate, self.free_at = rate, 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what is read until there is no more."""
        with suppress(OSError):
            while block := await reader.read(BLOCK):
                self.free_at = max(self.free_at, time.monotonic()) + len(block) / self.rate
                await asyncio.sleep(self.free_at - time.monotonic())
                writer.write(block)
                await writer.drain()
        writer.close()


async def serve(port: int, target: int, rate: float) -> None:
    """Relay connections until the process is ended."""
    to_server, from_server = Lane(rate), Lane(rate)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(to_server.carry(reader, questions), from_server.carry(answers, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", port)
    await server.serve_forever()


@contextmanager
def slow_network(port: int, target: int, megabytes_per_second: float) -> Iterator[None]:
    """Run the relay while the block runs."""
    process = subprocess.Popen([sys.executable, __file__, str(port), str(target), str(megabytes_per_second)])
    try:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), 1e6 * float(sys.argv[3])))
