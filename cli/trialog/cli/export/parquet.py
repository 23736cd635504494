"""Rows as Parquet: nested columns of one schema, in groups of rows that bound the memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from trialog.client.export_models import Row

GROUP_ROWS: Final = 1000
GROUP_BYTES: Final = 32_000_000

_IDS = pa.list_(pa.int32())
_TOKENS = [
    ("prompt_token_ids", _IDS),
    ("completion_token_ids", _IDS),
    ("loss_mask", pa.list_(pa.int8())),
    ("logprobs", pa.list_(pa.float64())),
]
_TURN = pa.struct(
    [
        ("source", pa.string()),
        ("task_step", pa.string()),
        ("text", pa.string()),
        ("reasoning", pa.string()),
        (
            "tool_calls",
            pa.list_(
                pa.struct([("id", pa.string()), ("name", pa.string()), ("arguments", pa.string())])
            ),
        ),
        (
            "observations",
            pa.list_(pa.struct([("call_id", pa.string()), ("text", pa.string())])),
        ),
        ("weights_version", pa.int64()),
    ]
)
_NUMBERS = pa.map_(pa.string(), pa.float64())
SCHEMA: Final = pa.schema(
    [
        ("run_id", pa.string()),
        ("step", pa.int32()),
        ("task", pa.string()),
        ("trial_id", pa.string()),
        ("group_id", pa.string()),
        ("sample", pa.int32()),
        ("state", pa.string()),
        ("instruction", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("turns", pa.list_(_TURN)),
        *_TOKENS,
        ("segments", pa.list_(pa.struct(_TOKENS))),
        ("reward", pa.float64()),
        ("reward_valid", pa.bool_()),
        ("rewards", _NUMBERS),
        ("scores", _NUMBERS),
        ("error", pa.string()),
        ("mode", pa.string()),
        ("weights_version", pa.int64()),
    ]
)


class ParquetRows:
    """Writes rows to a file; a group is written once it has many rows or bytes."""

    def __init__(self, path: Path) -> None:
        self._writer: Any = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def write(self, rows: list[Row]) -> None:
        """Write a page of rows."""
        for row in rows:
            self._rows.append(dict(row))
            self._bytes += len(json.dumps(row))
            if len(self._rows) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._flush()

    def close(self) -> None:
        """Write what is left, and the file's end."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, SCHEMA))
            self._rows, self._bytes = [], 0
