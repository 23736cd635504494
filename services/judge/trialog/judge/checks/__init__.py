"""Deterministic checks, one file each: what is scored without asking a model."""
