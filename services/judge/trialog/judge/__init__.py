"""Trialog's judge."""
