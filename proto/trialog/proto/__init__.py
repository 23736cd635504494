"""Trialog's proto."""
