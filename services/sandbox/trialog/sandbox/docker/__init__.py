"""Sandboxes by a Docker daemon of this host."""
