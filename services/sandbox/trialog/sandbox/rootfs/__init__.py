"""Whole root filesystems: images, their store, what a trial changed in one, and life inside."""
