"""A client of uma-serve's framed protocol. It needs the standard library only; docs/protocol.md describes the messages."""

import itertools
import json
import os
import socket
import struct


class Refused(Exception):
    """The daemon refused or failed a request. code is one of docs/protocol.md; retry_after_ms is None or a wait."""

    def __init__(self, event):
        super().__init__(f"{event['code']}: {event['message']}")
        self.code = event["code"]
        self.retry_after_ms = event.get("retry_after_ms")


def default_socket():
    """The daemon's socket: $UMA_SOCKET, else the path that uma-serve listens on by default."""
    if path := os.environ.get("UMA_SOCKET"):
        return path
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return runtime + "/uma-serve/uma.sock"
    if os.geteuid() == 0:
        return ("/run" if os.path.isdir("/run") else "/var/run") + "/uma-serve/uma.sock"
    return f"{os.environ.get('TMPDIR', '/tmp')}/uma-serve-{os.geteuid()}/uma.sock"


class Client:
    """One connection. It carries any number of requests; a Client belongs to one thread."""

    def __init__(self, path=None):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path or default_socket())
        self.file = self.sock.makefile("rb")
        self.ids = itertools.count(1)
        self.pending = {}  # events of other requests, by id

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.sock.close()  # the daemon cancels what still runs on this connection

    def send(self, message):
        body = json.dumps(message).encode()
        self.sock.sendall(struct.pack("<I", len(body)) + body)

    def receive(self):
        head = self.file.read(4)
        if len(head) < 4:
            raise ConnectionError("the daemon closed the connection")
        return json.loads(self.file.read(struct.unpack("<I", head)[0]))

    def start(self, messages, **fields):
        """Sends a request and returns its id. A string is one message of the user."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        request = str(next(self.ids))
        self.pending[request] = []
        self.send({"id": request, "messages": messages, **fields})
        return request

    def events(self, request):
        """Yields the events of one request; the last one is its eos event."""
        while True:
            if self.pending[request]:
                event = self.pending[request].pop(0)
            else:
                event = self.receive()
                if event.get("id", request) != request:
                    self.pending.get(event["id"], []).append(event)
                    continue
            if event["event"] == "error":
                raise Refused(event)
            yield event
            if event["event"] == "eos":
                del self.pending[request]
                return

    def cancel(self, request):
        """Asks the daemon to end a request. Its eos event then has the reason "cancelled"."""
        self.send({"event": "cancel", "id": request})

    def chat(self, messages, **fields):
        """Waits for the complete answer and returns the eos event: text, reason, usage, timings."""
        return list(self.events(self.start(messages, stream=False, **fields)))[-1]
