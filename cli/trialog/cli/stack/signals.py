"""A clean stop on the signals that end a foreground program."""

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped:
    """Which signal has asked for the stop; None if none did."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None


@contextmanager
def stopping_on_signals() -> Generator[Stopped]:
    """Cancel the calling task at the first signal; leave the block quietly once it has unwound.

    ```
    with stopping_on_signals() as stopped:
        async with Stack(options):
            await asyncio.Event().wait()
    ```

    A second signal means now: this process kills itself and the watchdog cleans up.
    """
    task = asyncio.current_task()
    assert task is not None, "signals stop a task"
    loop = asyncio.get_running_loop()
    stopped = Stopped()

    def on_signal(number: signal.Signals) -> None:
        if stopped.signal is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        stopped.signal = number
        task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stopped
    except asyncio.CancelledError:
        if stopped.signal is None or task.uncancel() > 0:
            raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
