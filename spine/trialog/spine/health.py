"""/livez, /readyz and /metrics of a process, on a thread of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


class HealthServer:
    """Serves until stopped. ``waiting_for`` returns what the process still waits for, or None."""

    def __init__(self, host: str, port: int, waiting_for: Callable[[], str | None]) -> None:
        self._server = ThreadingHTTPServer((host, port), _handler(waiting_for))
        self._server.daemon_threads = True
        self.port: int = self._server.server_port

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


def _handler(waiting_for: Callable[[], str | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path:
                case "/livez":
                    self._answer(200, {"status": "ok"})
                case "/readyz":
                    waits = waiting_for()
                    body = {"status": "ready"} if waits is None else {"waiting_for": waits}
                    self._answer(200 if waits is None else 503, body)
                case "/metrics":
                    self._send(200, CONTENT_TYPE_LATEST, generate_latest())
                case _:
                    self._answer(404, {"status": "not found"})

        def _answer(self, status: int, body: dict[str, str]) -> None:
            self._send(status, "application/json", json.dumps(body).encode())

        def _send(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: probes come every few seconds."""

    return Handler
