"""Trialog's cli."""
