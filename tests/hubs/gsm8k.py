"""A few rows in the form of GSM8K, and the forms in which hubs keep them."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = Sequence[Mapping[str, Any]]

TRAIN = [
    {"question": "Tom has 3 apples, buys 4. How many?", "answer": "3 + 4 = <<3+4=7>>7\n#### 7"},
    {"question": "A pen costs 1,200 ¥; what do 2 cost?", "answer": "2 × 1,200 = 2,400\n#### 2,400"},
    {"question": 'What is "5 - 8"?', "answer": "5 - 8 = -3\n#### -3"},
]
TEST = [{"question": "What is 2 times 5?", "answer": "2 * 5 = <<2*5=10>>10\n#### 10"}]


def as_in_tfds(rows: Rows) -> list[dict[str, str]]:
    """With the columns that TensorFlow Datasets adds: what stands before the mark, and after it."""
    parts = ["annotation", "short_answer"]
    return [{**row, **dict(zip(parts, row["answer"].split("#### "), strict=True))} for row in rows]


def as_parquet(rows: Rows) -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), content)
    return content.getvalue()


def as_jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_csv(rows: Rows) -> bytes:
    """With the names of the columns in the first line."""
    content = io.StringIO()
    writer = csv.DictWriter(content, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return content.getvalue().encode()
