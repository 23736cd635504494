"""Trialog's client."""
