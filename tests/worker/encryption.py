"""
Put TLS in front of a PostgreSQL that was built without it.

It ends the encryption as the server would, one connection of a client being one of the server, and notes what breaks.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from example.services import ServiceMissing

#: What a client sends before anything else, to ask for TLS: its length and a code.
REQUEST_BYTES = 8
YES = b"S"
CHUNK = 65_536


class Encryption:
    """
    Tell where clients connect, how many have, and which of their connections broke.
    """

    def __init__(self, server: Path, certificate: ssl.SSLContext) -> None:
        self.server, self.certificate = server, certificate
        self.port = 0
        self.count = 0
        self.broken: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """
        Carry one connection until either side ends it.
        """
        try:
            await reader.readexactly(REQUEST_BYTES)
            writer.write(YES)
            await writer.drain()
            await writer.start_tls(self.certificate)
            behind_reader, behind_writer = await asyncio.open_unix_connection(self.server)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()
            return
        self.count += 1
        await asyncio.gather(self.carry(reader, behind_writer), self.carry(behind_reader, writer))

    async def carry(self, source: asyncio.StreamReader, goal: asyncio.StreamWriter) -> None:
        """
        Carry one direction.
        """
        try:
            while chunk := await source.read(CHUNK):
                goal.write(chunk)
                await goal.drain()
        except ssl.SSLError as error:
            self.broken.append(str(error))
        except OSError:
            pass
        finally:
            goal.close()


@contextmanager
def encryption(socket_path: Path) -> Iterator[Encryption]:
    """
    Take connections with TLS on a port of the loopback, until the block ends.

    Raises: ServiceMissing without openssl, which makes the certificate.
    """
    with _certificate() as context:
        made = Encryption(socket_path, context)
        loop = asyncio.new_event_loop()
        listening = loop.run_until_complete(asyncio.start_server(made.serve, "127.0.0.1", 0))
        made.port = listening.sockets[0].getsockname()[1]
        thread = threading.Thread(target=loop.run_forever, name="encryption")
        thread.start()
        try:
            yield made
        finally:
            asyncio.run_coroutine_threadsafe(_end(listening), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _end(listening: asyncio.Server) -> None:
    listening.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def _certificate() -> Iterator[ssl.SSLContext]:
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ServiceMissing("openssl", "the Debian package openssl")
    with tempfile.TemporaryDirectory(prefix="dl-tls-") as folder:
        key, certificate = f"{folder}/key", f"{folder}/crt"
        made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        subprocess.run([openssl, "req", *made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        yield context
