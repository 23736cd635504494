"""Trialog's trainer."""
