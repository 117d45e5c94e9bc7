import html
import re
from collections.abc import Iterator

import httpx
import pytest

from agent_tunix.store.uploads import MAX_BYTES
from tests.service.inspector.support import Visitor, showing, visiting
from tests.service.support import Server, new_name

pytestmark = pytest.mark.slow

POLITENESS = b"""\
def reward(completions, **kwargs):
    return [completion.count("please") / 4 for completion in completions]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("service")
    with showing(directory, directory / "runs") as server:
        yield server


@pytest.fixture(scope="module")
def alice(server: Server) -> Iterator[Visitor]:
    with visiting(server) as visitor:
        yield visitor


def upload(visitor: Visitor, source: bytes | str = POLITENESS, name: str | None = None, format: str = "trl") -> str:
    """Upload a function; return the path of its page."""
    answer = send(visitor, source, new_name() if name is None else name, format)
    assert answer.status_code == 303, told(answer)
    return answer.headers["location"].removesuffix("?new=1")


def send(visitor: Visitor, source: bytes | str, name: str, format: str = "trl") -> httpx.Response:
    return visitor.post("/functions", {"name": name, "format": format}, files={"file": ("reward.py", source)})


def told(answer: httpx.Response) -> str:
    found = re.search(r'role="alert"[^>]*>(.*?)</p>', answer.text, re.DOTALL)
    return html.unescape(found[1]) if found else answer.text


def text(answer: httpx.Response) -> str:
    """Return the text of a page without its markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def test_versions_are_listed_shown_and_deleted(alice: Visitor) -> None:
    name = new_name()
    first, second = upload(alice, POLITENESS, name), upload(alice, POLITENESS.replace(b"/ 4", b"/ 2"), name)
    assert name in text(alice.get("/functions"))
    listed = alice.get(f"/functions?name={name}").text
    assert re.findall(r'data-label="Version" class="number">(\d+)', listed) == ["2", "1"]
    page = alice.get(f"{second}?new=1").text
    assert f'href="{first}"' in page
    assert 'completion.count("please") / 2' in html.unescape(page)
    assert f"training.reward_function={second.removeprefix('/functions/')}" in page
    assert alice.post(f"{second}/delete").headers["location"] == "/functions"
    assert alice.get(second).status_code == 404


@pytest.mark.parametrize(
    ("source", "name", "format", "status", "said"),
    [
        (b"def reward(completions:\n", "a", "trl", 400, "line 1"),
        (b"x = 1\n", "a", "trl", 400, "def reward("),
        (POLITENESS, "no name!", "trl", 400, "cannot name a reward function"),
        (POLITENESS, "a", "exe", 400, "format must be trl or miles"),
        (b"#" * (MAX_BYTES + 1), "a", "trl", 413, "at most 262,144"),
    ],
)
def test_a_refused_upload_says_why_and_keeps_the_form(
    alice: Visitor, source: bytes, name: str, format: str, status: int, said: str
) -> None:
    answer = send(alice, source, name, format)
    assert (answer.status_code, said in told(answer)) == (status, True), told(answer)
    assert f'name="name" value="{name}"' in answer.text
    assert "choose a Python file" in told(alice.post("/functions", {"name": "a", "format": "trl"}))


@pytest.mark.parametrize("may_write", [False, True])
def test_a_key_without_a_scope_is_neither_offered_nor_allowed_its_calls(
    server: Server, alice: Visitor, may_write: bool
) -> None:
    path = upload(alice)
    with visiting(server, server.new_key("read", *(["write"] if may_write else []))) as bob:
        assert "completion.count" in bob.get(path).text
        assert ('aria-label="Upload"' in bob.get("/functions").text) is may_write
        assert (bob.post(f"{path}/delete").status_code == 403) is not may_write
        assert (send(bob, POLITENESS, new_name()).status_code == 403) is not may_write


def test_changes_need_a_session_and_its_token(server: Server, alice: Visitor) -> None:
    path = upload(alice)
    assert alice.client.post(f"{path}/delete").status_code == 403
    assert alice.client.post("/functions", data={"name": "a"}).status_code == 403
    with visiting(server, None) as nobody:
        for place in ("/functions", path):
            assert nobody.get(place).headers["location"].startswith("/login")
        assert nobody.post(f"{path}/delete").status_code == 401
