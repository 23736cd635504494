"""Runs a stack until a signal; a program that tests start and kill.

    python hold_stack.py OPTIONS-JSON

Prints one JSON line once all is ready: {"root", "pids": {name: pid}, "watchdog"}.
"""

import asyncio
import json
import sys
from pathlib import Path

from trialog.cli.stack import Stack, StackError, StackOptions
from trialog.cli.stack.signals import stopping_on_signals


async def hold(options: StackOptions) -> None:
    with stopping_on_signals() as stopped:
        async with Stack(options) as stack:
            await stack.ready()
            pids = {name: state.pid for name, state in stack.processes.items()}
            print(json.dumps({"root": str(stack.layout.root), "pids": pids}), flush=True)
            await asyncio.Event().wait()
    print(json.dumps({"stopped": stopped.signal}), flush=True)


def main() -> None:
    given = json.loads(sys.argv[1])
    if given.get("data_dir"):
        given["data_dir"] = Path(given["data_dir"])
    try:
        asyncio.run(hold(StackOptions(**given)))
    except StackError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
