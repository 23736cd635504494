"""Worlds: how they are made, packed and laid out on a host."""
