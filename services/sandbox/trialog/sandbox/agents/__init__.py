"""Agents: what acts in a sandbox."""
