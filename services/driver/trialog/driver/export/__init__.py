"""What a run has made, in the formats of the field: Harbor's trial folders and rows for training.

Pure builders over facts and the bytes that they name, and readers of bytes that an agent wrote:
nothing in those is believed. docs/exports.md says what comes out.
"""
