"""Names of runs, trials, worlds and events.

A slot names a subject of a run; ``event_id = uuid5(run, slot)``; the first event of a slot wins.
"""

from __future__ import annotations

import functools
import hashlib
import re
import uuid
from dataclasses import dataclass

_RUN = re.compile(r"r-[a-z2-7]{16}")
_TRIAL = re.compile(r"s(0|[1-9]\d{0,8})-p(0|[1-9]\d{0,8})-n(0|[1-9]\d{0,8})", re.ASCII)
_NAMESPACE = uuid.UUID("6f1c1b6e-6c0e-5d0c-9d1f-7472696c6f67")  # ends in "trilog"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class InvalidIdError(ValueError):
    """A name that is not a valid id; the message says what a valid one looks like."""


@dataclass(frozen=True, slots=True)
class TrialName:
    """The parts of a trial id: optimizer step, prompt of the step, sample of the prompt."""

    step: int
    prompt: int
    sample: int

    def __str__(self) -> str:
        return f"s{self.step}-p{self.prompt}-n{self.sample}"


def run_id_from(entropy: bytes) -> str:
    """Return a run id made of 80 bits of the entropy's SHA-256, in base 32."""
    number = int.from_bytes(hashlib.sha256(entropy).digest()[:10])
    return "r-" + "".join(_ALPHABET[(number >> 5 * place) & 31] for place in range(16))


def check_run_id(text: str) -> str:
    """Return the text when it is a run id, else raise InvalidIdError."""
    if not _RUN.fullmatch(text):
        raise InvalidIdError("a run id is r- and 16 of a-z and 2-7, such as r-abcdefghijklmnop")
    return text


def parse_trial_id(text: str) -> TrialName:
    """Return the parts of ``s<step>-p<prompt>-n<sample>``, else raise InvalidIdError."""
    found = _TRIAL.fullmatch(text)
    if not found:
        raise InvalidIdError("a trial id is s<step>-p<prompt>-n<sample>, such as s0-p1-n0")
    return TrialName(*(int(part) for part in found.groups()))


def parse_trial_address(text: str) -> tuple[str, str]:
    """Return run id and trial id of ``RUN/TRIAL``, else raise InvalidIdError."""
    run_id, _, trial_id = text.partition("/")
    parse_trial_id(trial_id)
    return check_run_id(run_id), trial_id


def event_id(run_id: str, slot: str) -> uuid.UUID:
    """Return the id of the one event that may fill a slot of a run."""
    return uuid.uuid5(_run_namespace(run_id), slot)


@functools.lru_cache(maxsize=1024)
def _run_namespace(run_id: str) -> uuid.UUID:
    return uuid.uuid5(_NAMESPACE, run_id)
