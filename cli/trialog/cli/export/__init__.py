"""Writes what a run has made to the user's disk: folders of the Harbor format, and rows."""
