"""Trialog's sandbox."""
