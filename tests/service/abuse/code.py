"""Attacks by uploaded code that is tried: each outcome as the page has it, `error: PermissionError` for instance."""

import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.service.abuse.cases import answers, case
from tests.service.abuse.victim import LIST, Victim
from tests.service.support import new_name, upload

# How the names of cases begin that need isolation to be had.
UPLOADS = "an upload that "


_ERROR = re.compile(r"\w*[Ee]rror\b")


def attempt(victim: Victim, body: str) -> str:
    """Return the outcome of a completion whose reward is this code, with the class of an error of its own."""
    code = f"def reward(completions, **kwargs):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n    return [1.0]\n"
    with victim.client() as client:
        id = upload(client, new_name(), code.encode()).json()["id"]
        response = client.post(f"{LIST}/{id}/try", json={"rows": [{"completions": ["a"]}]})
    assert response.status_code == 200, response.text
    answers(b"HTTP/1.1 200 x\r\n\r\n" + response.content)  # nothing is in it that may not be
    score = response.json()["data"][0]
    named = _ERROR.match(score["detail"]) if score["outcome"] == "error" else None
    return f"{score['outcome']}: {named[0]}" if named else str(score["outcome"])


def uploads_that(what: str, *bodies: str, slow: bool = False) -> Callable[[Victim], Iterator[str]]:
    def act(victim: Victim) -> Iterator[str]:
        for body in bodies:
            yield attempt(victim, body)

    case(f"{UPLOADS}{what}", slow)(act)
    return act


uploads_that(
    "reads the server's environment as a file",
    "raise RuntimeError(open('/proc/self/environ').read())",
    "import os; raise RuntimeError(open(f'/proc/{os.getppid()}/environ').read())",
    "raise RuntimeError(open('/proc/1/environ').read())",
)
uploads_that("loops without end", "while True: pass", slow=True)
uploads_that(
    "kills its parent or all processes",
    "import os; os.kill(os.getppid(), 9)",
    "import os; os.kill(-1, 9)",
    "import os; os.killpg(os.getpgid(os.getppid()), 9)",
    "import os; os.pidfd_open(os.getppid())",
)


@case("an upload that reads the store")
def _(victim: Victim) -> Iterator[str]:
    database: Path = victim.home / "store.db"
    victim.home.mkdir(exist_ok=True)
    secret = victim.home / "secret"
    secret.write_text("root:x: is not to be read")
    secret.chmod(0o644)
    yield attempt(victim, f"raise RuntimeError(open({str(secret)!r}).read())")
    yield attempt(victim, f"open({str(database)!r}, 'rb')")
    url = victim.store.engine.url.render_as_string(hide_password=False)
    opened = (
        f"from agent_tunix.store import open_store\nif not open_store({url!r}).keys.list(): raise FileNotFoundError"
    )
    yield attempt(victim, opened)  # in a /tmp of its own, code may make another store of that name


@case("an upload that calls the server")
def _(victim: Victim) -> Iterator[str]:
    host, port = victim.address
    yield attempt(victim, f"import socket; socket.create_connection(({host!r}, {port}))")
    yield attempt(victim, f"import urllib.request; urllib.request.urlopen({victim.url!r})")
