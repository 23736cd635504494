"""Isolation by bubblewrap: namespaces, an overlay fork of the world, and a PID 1 of ours."""
