"""Start the stand-in: ``python -m trialog.judge.standin --port N [--host H] [--state FILE]``.

Once it listens it prints one JSON line, ``{"url": ...}``. Port 0 takes a free one.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path

import uvicorn

from trialog.judge.standin.counter import CallCounter
from trialog.judge.standin.server import application


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m trialog.judge.standin", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--state", type=Path, help="file that keeps the count across restarts")
    options = parser.parse_args()
    counter = CallCounter(options.state)
    with socket.create_server((options.host, options.port), backlog=1024) as listener:
        host, port = listener.getsockname()[:2]
        sys.stdout.write(json.dumps({"url": f"http://{host}:{port}"}) + "\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            application(counter),
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="warning",
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])
    counter.close()


if __name__ == "__main__":
    main()
