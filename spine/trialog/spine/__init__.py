"""Trialog's spine."""
