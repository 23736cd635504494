"""Verifiers: what checks an end state against the pristine world."""
