"""
Receive STOMP frames: answer what asks for an answer, and note each event that is sent.
"""

from __future__ import annotations

import json
import os
import socketserver

from events_harness.received import note

ANSWER = "{command}\n{headers}\n\n\0"


class Connection(socketserver.StreamRequestHandler):
    """
    One client.
    """

    def handle(self) -> None:
        """
        Read frames until the client goes.
        """
        while line := self.rfile.readline():
            command = line.strip().decode()
            if command:  # else a heart-beat
                self.answer(command, self.headers())

    def headers(self) -> dict[str, str]:
        """
        Read headers up to the blank line.
        """
        found: dict[str, str] = {}
        while line := self.rfile.readline().strip().decode():
            name, _, value = line.partition(":")
            found.setdefault(name, value)
        return found

    def answer(self, command: str, headers: dict[str, str]) -> None:
        """
        Read the body, note an event, and confirm.
        """
        body = self.body(headers)
        if command == "SEND":
            note(json.loads(body)["number"])
        if command in ("CONNECT", "STOMP"):
            self.say("CONNECTED", "version:1.2\nheart-beat:0,0")
        elif "receipt" in headers:
            self.say("RECEIPT", f"receipt-id:{headers['receipt']}")

    def body(self, headers: dict[str, str]) -> bytes:
        """
        Read a body up to the end of its frame.
        """
        found = self.rfile.read(int(headers.get("content-length", 0)))
        while (byte := self.rfile.read(1)) not in (b"\0", b""):
            found += byte
        return found

    def say(self, command: str, headers: str) -> None:
        """
        Send one frame without a body.
        """
        self.wfile.write(ANSWER.format(command=command, headers=headers).encode())


class Server(socketserver.ThreadingTCPServer):
    """
    Listen on the port of this run.
    """

    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    with Server(("127.0.0.1", int(os.environ["BENCH_STOMP_PORT"])), Connection) as server:
        server.serve_forever()
