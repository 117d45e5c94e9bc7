"""Rows of an environment of verifiers, read by a process of its own.

The library takes seconds to import, starts threads and handles signals, all of which the trainer is spared. Run as a
program, this module reads a request of JSON from its standard input and writes the rows to a file.
"""

import datetime
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_tunix.errors import InvalidEnvironmentError, UnknownEnvironmentError

# Rows for training, and those for evaluation.
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def read_verifiers(name: str, args: Mapping[str, Any], directory: Path, limit: int) -> Rows:
    """Return the rows of an environment: for training, and for evaluation, which may be none.

    Args:
        name: Name of its package.
        args: Arguments of the environment.
        directory: Directory whose modules can be imported too.
        limit: Number of rows to take of an endless environment.

    Raises:
        UnknownEnvironmentError: No such package is installed.
        InvalidEnvironmentError: It cannot be loaded, or its rows are not plain data.
    """
    request = {"name": name, "args": dict(args), "directory": str(directory), "limit": limit}
    return _read(json.dumps(request, sort_keys=True))


@functools.lru_cache(maxsize=4)
def _read(request: str) -> Rows:
    with tempfile.TemporaryDirectory(prefix="agent_tunix_") as scratch:
        file = Path(scratch) / "rows.json"
        program = [sys.executable, "-m", "agent_tunix.environments.verifiers.rows", str(file)]
        done = subprocess.run(program, input=request, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if not file.is_file():
            name, tail = json.loads(request)["name"], done.stderr.strip()[-2000:]
            raise InvalidEnvironmentError(
                f"verifiers:{name}: reading its rows ended with status {done.returncode}: {tail}",
                code="environment_import_failed",
            )
        answer = json.loads(file.read_text(encoding="utf-8"))
    if "error" in answer:
        kind = UnknownEnvironmentError if answer["is_unknown"] else InvalidEnvironmentError
        raise kind(answer["error"], code=answer["code"])
    return answer["train"], answer["test"]


def _plain(value: object) -> object:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise TypeError(f"a row has a value of type {type(value).__name__}, which is not text, numbers, lists or mappings")


def _main() -> None:
    from agent_tunix.environments.verifiers.loading import load_environment

    request = json.loads(sys.stdin.read())
    try:
        environment = load_environment(request["name"], request["args"], Path(request["directory"]))
        train, test = environment.rows(request["limit"])
        answer = json.dumps({"train": train, "test": test}, default=_plain)
    except InvalidEnvironmentError as error:
        is_unknown = isinstance(error, UnknownEnvironmentError)
        answer = json.dumps({"error": str(error), "code": error.code, "is_unknown": is_unknown})
    except (TypeError, ValueError) as error:
        text = f"verifiers:{request['name']}: its rows cannot be read: {error}"
        answer = json.dumps({"error": text, "code": "invalid_rows", "is_unknown": False})
    Path(sys.argv[1]).write_text(answer, encoding="utf-8")


if __name__ == "__main__":
    _main()
