"""Trialog's driver."""
