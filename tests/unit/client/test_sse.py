"""The parser of server-sent events."""

import pytest
from trialog.client.sse import ServerEvent, SseParser


def feed(*chunks: bytes) -> list[ServerEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_an_event_has_its_id_type_and_joined_data():
    assert feed(b"id: 7\nevent: Judged\ndata: a\ndata: b\n\n") == [
        ServerEvent("Judged", "a\nb", "7")
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_of_any_size_give_the_same_events(size: int):
    stream = "id: 1\r\ndata: ä\u2028x\r\n\r\n: ping\r\n\r\nid: 2\r\ndata: y\r\n\r\n".encode()
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert feed(*pieces) == [
        ServerEvent("message", "ä\u2028x", "1"),
        ServerEvent("message", "y", "2"),
    ]


def test_comments_unknown_fields_and_empty_events_give_nothing():
    assert feed(b": ping\n\nretry: 10\nfuture: 1\n\nevent: x\n\n") == []


def test_an_id_stays_until_the_next():
    assert [event.id for event in feed(b"id: 3\ndata: a\n\ndata: b\n\n")] == ["3", "3"]


def test_an_unfinished_event_is_not_given():
    assert feed(b"data: a\n") == []


def test_a_line_without_end_is_refused():
    with pytest.raises(ValueError, match="8 MB"):
        feed(b"data: " + b"x" * (8 * 2**20))
