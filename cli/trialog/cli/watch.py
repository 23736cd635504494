"""Live progress of a run on standard error: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trialog.cli import output
from trialog.cli.progress import RunProgress, StepProgress

if TYPE_CHECKING:
    from trialog.client.models import Event

_STEPS_SHOWN = 12
_LINE_EVERY_S = 1.0
_TOLD = frozenset(
    {
        "RunRequested",
        "RunPaused",
        "RunResumed",
        "RunCompleted",
        "RunFailed",
        "RunCancelled",
        "FaultInjected",
        "DeliveryDeadLettered",
    }
)
_OF_WEIGHTS = frozenset({"weights_version", "weights_digest"})
_NOT_TOLD = frozenset({"spec", "root", "initial_weights", "lineage", "code"})


class View(AbstractContextManager["View"]):
    """Shows a run's progress while it is watched."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Stop showing."""

    @abstractmethod
    def show(self, progress: RunProgress, event: Event) -> None:
        """Take the progress after one more event."""

    @abstractmethod
    def waiting(self, cause: str, waited_s: float) -> None:
        """Tell that the server does not answer at the moment."""


def view() -> View:
    """Return the view that fits standard error."""
    return LiveView() if sys.stderr.isatty() else LineView()


def follow(
    events: Iterable[Event], shown: View, progress: RunProgress | None = None
) -> RunProgress:
    """Show events as they come and return the progress after the last."""
    progress = progress or RunProgress()
    with shown:
        for event in events:
            progress.apply(event)
            shown.show(progress, event)
    return progress


def cells(step: StepProgress) -> dict[str, str]:
    """Return a step's row by the short headings of the table."""
    return {
        "step": str(step.step),
        "req": str(step.requested),
        "rec": str(step.recorded),
        "judged": str(step.judged),
        "skip": str(step.skipped),
        "cancel": str(step.cancelled),
        "retry": str(step.retries),
        "lost": str(step.lost),
        "reward": "-" if step.mean_reward is None else f"{step.mean_reward:.3f}",
        "turns": "-" if step.mean_turns is None else f"{step.mean_turns:.2f}",
        "calls": str(step.judge_calls),
        "time": f"{step.elapsed_s:.1f} s",
    }


def headline(progress: RunProgress) -> str:
    """Return the run's own line."""
    if not progress.run_id:
        return "waiting for the first event"
    steps = f"{progress.steps_applied}/{progress.n_steps or '?'} steps"
    reason = f": {output.visible(output.one_line(progress.reason))}" if progress.reason else ""
    return (
        f"{output.visible(progress.run_id)} {progress.state}{reason}, "
        f"{steps}, {progress.elapsed_s:.1f} s"
    )


class LineView(View):
    """One line a second at most, by recorded time, and one for whatever happens to the run."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._told = False

    def show(self, progress: RunProgress, event: Event) -> None:
        """Write what is worth a line."""
        self._told = False
        now_s, type_ = progress.elapsed_s, event["type"]
        if type_ in _TOLD:
            not_told = _NOT_TOLD if progress.trains else _NOT_TOLD | _OF_WEIGHTS
            about = {k: v for k, v in event["data"].items() if k not in not_told}
            self._line(
                now_s, " ".join([type_, *(f"{k}={output.short(v)}" for k, v in about.items())])
            )
        elif type_ == "StepApplied" or now_s - self._last_s >= _LINE_EVERY_S:
            step = _step_for(progress, event)
            if step is not None:
                self._last_s = now_s
                self._line(now_s, describe(step, judges=progress.trains))

    def waiting(self, cause: str, waited_s: float) -> None:
        """Say once that the server is away."""
        if not self._told and waited_s >= _LINE_EVERY_S:
            self._told = True
            output.note(f"the server does not answer ({cause}): waiting for it")

    def _line(self, now_s: float, text: str) -> None:
        output.note(f"{now_s:8.1f} s  {text}")


def _step_for(progress: RunProgress, event: Event) -> StepProgress | None:
    number = event["data"].get("step")
    if number in progress.steps:
        return progress.steps[number]
    return progress.steps[max(progress.steps)] if progress.steps else None


def describe(step: StepProgress, *, judges: bool = True) -> str:
    """Return a step's progress as one line; what is rare is named when there is some, and so are
    judge calls where a run may do without (``judges``)."""
    cell = cells(step)
    cancelled = f" (+{step.cancelled} cancelled)" if step.cancelled else ""
    lost = f" (+{step.lost} lost)" if step.lost else ""
    parts = (
        f"step {cell['step']}",
        f"requested {cell['req']}",
        f"recorded {cell['rec']}",
        f"judged {cell['judged']}",
        f"skipped {cell['skip']}{cancelled}",
        f"retries {cell['retry']}{lost}",
        f"mean reward {cell['reward']}",
        f"mean turns {cell['turns']}",
        *([f"judge calls {cell['calls']}"] if judges or step.judge_calls else []),
        f"elapsed {cell['time']}",
    )
    return "  ".join(parts) + ("  applied" if step.applied else "")


class LiveView(View):
    """A table that is drawn again as events come."""

    def __init__(self) -> None:
        self._progress = RunProgress()
        self._notice = ""
        self._live = Live(
            console=output.console(stderr=True),
            get_renderable=self._render,
            refresh_per_second=8,
        )

    def __enter__(self) -> Self:
        """Start drawing."""
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Leave the last state of the table standing."""
        self._live.__exit__(kind, error, trace)

    def show(self, progress: RunProgress, event: Event) -> None:
        """Take the progress; it is drawn at the next refresh."""
        del event
        self._progress, self._notice = progress, ""

    def waiting(self, cause: str, waited_s: float) -> None:
        """Show that the server is away."""
        self._notice = f"the server does not answer ({cause}), {waited_s:.0f} s"

    def _render(self) -> Table:
        return table(self._progress, self._notice)


def table(progress: RunProgress, notice: str = "") -> Table:
    """Return the progress as a table of the latest steps."""
    # The live view draws in a thread of its own: take a copy before looking at it.
    latest = [step for _, step in sorted(dict(progress.steps).items())[-_STEPS_SHOWN:]]
    rare = {
        "calls": progress.trains or any(step.judge_calls for step in latest),
        "cancel": any(step.cancelled for step in latest),
        "lost": any(step.lost for step in latest),
    }
    shown = Table(
        box=box.SIMPLE_HEAD,
        title=Text(headline(progress)),
        title_justify="left",
        caption=Text(notice) if notice else None,
        caption_justify="left",
        pad_edge=False,
        collapse_padding=True,
        padding=(0, 0 if all(rare.values()) else 1),  # 80 columns hold counts of five digits
    )
    columns = [column for column in cells(StepProgress(0)) if rare.get(column, True)]
    for column in columns:
        shown.add_column(column, justify="right", no_wrap=True)
    for step in latest:
        row = cells(step)
        shown.add_row(*(row[column] for column in columns), style="green" if step.applied else None)
    return shown
