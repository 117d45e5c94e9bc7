"""Agents whose rows say what they do."""

import asyncio
import functools
import os
import subprocess
import sys
import threading
import time
from typing import Any

Row = dict[str, Any]


def ask(client: Any, row: Row) -> Any:
    messages = [{"role": "user", "content": row["question"]}]
    return client.chat.completions.create(model="policy", messages=messages).choices[0].message.content


def alone(row: Row) -> Any:
    """Make its own client, from the variables of its process."""
    import openai

    match row.get("fault"):
        case None:
            return {"right": float(ask(openai.OpenAI(), row) == "5"), "polite": 0.5}
        case "raises":
            raise ValueError("no such number")
        case "hangs":
            time.sleep(1000)
        case "exits":
            os._exit(3)
        case "leaves":
            sys.exit(3)
        case "is killed":
            os.kill(os.getpid(), 9)
        case "floods":
            while True:
                print("x" * 1000)
        case "returns nonsense":
            return "very good"
        case "returns nothing":
            return None
        case "leaves children":
            subprocess.Popen(["sleep", "987654"], start_new_session=True)
            return True
        case "leaves threads":
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
            return 1
    return 0.0


def with_client(row: Row, client: Any) -> bool:
    return ask(client, row) == "5" and "OPENAI_BASE_URL" not in os.environ


async def together(row: Row, client: Any) -> bool:
    if row.get("fault") == "raises":
        raise ValueError("no such number")
    await asyncio.sleep(row.get("sleep", 0))
    messages = [{"role": "user", "content": row["question"]}]
    reply = await client.chat.completions.create(model="policy", messages=messages)
    return bool(reply.choices[0].message.content == "5")


async def changes_its_row(row: Row, client: Any) -> int:
    row["log"].append("changed")
    await asyncio.sleep(0.01)
    return len(row["log"])


async def with_style(row: Row, client: Any, *, style: str) -> bool:
    return await together({**row, "style": style}, client)


partial_of_async = functools.partial(with_style, style="brief")


class Constructed:
    def __init__(self, level: float = 1.0) -> None:
        self.level = level

    async def __call__(self, row: Row, client: Any, hints: tuple[str, ...] = ()) -> dict[str, float]:
        return {"reward": self.level, "tracked": 7}


def too_many(row: Row, client: Any, grade: float) -> float:
    return grade
