"""Text of bounded length: its head and its tail, and how much is missing between them."""

from __future__ import annotations


def clip(text: str, limit: int) -> str:
    """Return the text with at most about ``limit`` characters kept.

    An error stands at the end of an output and its cause at the beginning: both are kept.
    """
    if len(text) <= limit:
        return text
    tail = limit // 2
    head = limit - tail
    missing = len(text) - head - tail
    return f"{text[:head]}\n[... {missing} characters left out ...]\n{text[len(text) - tail :]}"


def decoded(data: bytes, limit: int) -> str:
    """Return bytes as clipped text; what is no UTF-8 becomes the replacement character."""
    return clip(data.decode("utf-8", "replace"), limit)
