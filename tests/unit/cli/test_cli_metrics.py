"""Reading a process' metrics page."""

import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from trialog.cli.metrics import parse, quantile, total


def page(*seconds: float) -> str:
    registry = CollectorRegistry()
    counter = Counter("work", "x", ["kind", "ended"], registry=registry)
    counter.labels("trial", 'a "quoted"\nline').inc(2)
    counter.labels("trial", "done").inc(3)
    counter.labels("judge", "done").inc(5)
    histogram = Histogram("fork_seconds", "x", buckets=[0.01, 0.05, 0.1], registry=registry)
    for value in seconds:
        histogram.observe(value)
    return generate_latest(registry).decode()


def test_samples_are_summed_by_label():
    samples = parse(page())
    assert total(samples, "work_total", kind="trial") == 5
    assert total(samples, "work_total", ended="done") == 8
    assert total(samples, "work_total", kind="trial", ended="done") == 3
    assert total(samples, "nothing") == 0


def test_a_quantile_lies_in_its_bucket():
    samples = parse(page(0.02, 0.03, 0.04, 0.2))
    median = quantile(samples, "fork_seconds", 0.5)
    assert median == pytest.approx(0.01 + 0.04 * 2 / 3)
    assert quantile(samples, "fork_seconds", 0.99) == math.inf


def test_pages_of_several_processes_are_one_histogram():
    both = parse(page(0.005) + page(0.07, 0.08))
    median = quantile(both, "fork_seconds", 0.5)
    assert median is not None
    assert 0.05 < median <= 0.1


def test_nothing_observed_has_no_quantile():
    assert quantile(parse(page()), "fork_seconds", 0.5) is None
    assert quantile([], "fork_seconds", 0.5) is None


def test_what_is_no_sample_passes_by():
    assert parse("# HELP a b\n\nnonsense\n<html>\n") == []
