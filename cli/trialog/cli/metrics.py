"""Reads what a process says at /metrics: Prometheus' text format, as far as the demo needs it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One number of a process: a metric's name, its labels, its value."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str) -> list[Sample]:
    """Return the samples of a page; lines that are none pass by."""
    found = (_SAMPLE.fullmatch(line.strip()) for line in text.splitlines() if line[:1] != "#")
    return [
        Sample(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3]))
        for match in found
        if match is not None
    ]


def total(samples: Iterable[Sample], name: str, **labels: str) -> float:
    """Return the sum of a metric's samples that have these labels."""
    return sum(
        sample.value
        for sample in samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def quantile(samples: Iterable[Sample], name: str, share: float) -> float | None:
    """Return a quantile of a histogram, summed over all samples; None when nothing was observed.

    Within a bucket values count as evenly spread, as in Prometheus' histogram_quantile; above the
    last bound the answer is infinite.
    """
    counts: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{name}_bucket":
            bound = float(sample.labels["le"])
            counts[bound] = counts.get(bound, 0.0) + sample.value
    rank = share * max(counts.values(), default=0.0)
    if rank == 0:
        return None
    low, below = 0.0, 0.0
    for bound, count in sorted(counts.items()):
        if count >= rank:
            if math.isinf(bound):
                return bound
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return None
