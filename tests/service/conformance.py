"""Requests of all kinds, put to a running server from its own OpenAPI document by Schemathesis."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

# A request that follows the schema is not always accepted: a file may be no reward function, a cursor never given.
_LEFT_OUT = "positive_data_acceptance"
# Ids that exist, which a generator would never find.
_CONFIGURATION = """\
[dictionaries.ids]
values = {ids}

[parameters]
"path.id" = {{ dictionary = "ids", probability = 0.7 }}
"query.after" = {{ dictionary = "ids", probability = 0.3 }}
"""
_PROGRAM = "from schemathesis.cli import schemathesis; schemathesis()"


@dataclass(frozen=True)
class Conformance:
    """The result of Schemathesis: true if every answer is in the document and none is a failure of the server."""

    holds: bool
    cases: int
    text: str


def check_conformance(url: str, secret: str, directory: Path, max_examples: int, seed: int = 0) -> Conformance:
    """Put requests to a server with a key of every scope; files may be left in the directory."""
    headers = {"Authorization": f"Bearer {secret}"}
    lists = ("reward_functions", "runs")
    ids = [one["id"] for name in lists for one in httpx.get(f"{url}/v1/{name}", headers=headers).json()["data"]]
    return run_schemathesis(url, secret, directory, max_examples, seed, ids)


def run_schemathesis(
    url: str, secret: str, directory: Path, max_examples: int, seed: int = 0, ids: Sequence[str] = ("none",)
) -> Conformance:
    """Put requests to a server with a key; `ids` are values of ids in its paths."""
    configuration = directory / "schemathesis.toml"
    configuration.write_text(_CONFIGURATION.format(ids=list(ids)))
    command = [sys.executable, "-c", _PROGRAM, "--config-file", str(configuration), "run", f"{url}/openapi.json"]
    options = f"--max-examples {max_examples} --seed {seed} --exclude-checks {_LEFT_OUT} --request-timeout 600".split()
    done = subprocess.run(
        [*command, "-H", f"Authorization: Bearer {secret}", *options],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )
    found = re.search(r"([\d,]+) generated", done.stdout)
    cases = int(found[1].replace(",", "")) if found else 0
    return Conformance(done.returncode == 0, cases, done.stdout)
