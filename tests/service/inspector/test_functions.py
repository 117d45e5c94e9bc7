import hashlib
import html
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from agent_tunix.service import ServiceSettings, TryLimits
from agent_tunix.service.settings import ReplayLimits
from agent_tunix.store.uploads import MAX_BYTES
from tests.service.inspector.support import EVIL, Visitor, visiting
from tests.service.replay_support import DOUBLED, POLITENESS, PROMPT, G, saved, write_run
from tests.service.support import Server, new_name, serving

pytestmark = pytest.mark.slow

HOSTILE = f'"""{EVIL}"""\n\n\ndef reward(completions, **kwargs):\n    raise ValueError({EVIL!r})\n'
TRIES, REPLAYS = TryLimits(timeout_s=60, total_timeout_s=300), ReplayLimits(timeout_s=60, total_timeout_s=300)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("service")
    runs = directory / "runs"
    # Trained with a file of other bytes under the name `politeness`, and with the very bytes that are uploaded here.
    write_run(runs / "polite", num_steps=2, source=saved(POLITENESS))
    write_run(runs / "<b>hostile", "math", num_steps=1)
    with serving(directory, ServiceSettings(runs=(runs,), tries=TRIES, replays=REPLAYS)) as server:
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


def run_id(visitor: Visitor, function: str, name: str) -> str:
    option = rf'<option value="(run_[a-z2-7]+)"[^>]*>{re.escape(html.escape(name))} '
    found = re.search(option, visitor.get(function).text)
    assert found is not None
    return found[1]


def sha256(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def test_versions_are_listed_shown_and_deleted(alice: Visitor) -> None:
    name = new_name()
    first, second = upload(alice, POLITENESS, name), upload(alice, DOUBLED, name)
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


def test_completions_are_scored_with_the_edited_source(alice: Visitor) -> None:
    path = upload(alice)
    source = DOUBLED.decode().replace("\n", "\r\n")
    form: dict[str, Any] = {"source": source, "completion": ["please", "", "please please"]}
    page = alice.post(f"{path}/try", form)
    assert re.findall(r'<td class="number">([^<]+)</td>\s+<td class="said">', page.text) == ["0.5", "1"]
    assert ">please please</textarea>" in page.text.replace("\n", "")
    assert "/ 2" in html.unescape(page.text)
    value = "len(prompts[0]) + float(answer[0]) + level[0]"
    source = f"def reward(completions, prompts, answer, level, **kwargs):\n    return [{value}]\n"
    form = {"source": source, "completion": "x", "prompt": "abc", "answer": "40", "columns": '{"level": 0.5}'}
    assert ">43.5<" in alice.post(f"{path}/try", form).text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"completion": ["", ""]}, "at least one completion"),
        ({"completion": "x", "columns": "{"}, "must be JSON"),
        ({"completion": "x", "columns": "[1]"}, "must be a JSON object"),
        ({"completion": ["x"] * 33}, "at most 32 completions"),
        ({"completion": "x", "source": "def reward(:"}, "line 1"),
        ({"completion": "x", "source": "def reward(completions, rubric): return [1]"}, "rubric"),
    ],
)
def test_a_failed_try_says_why_and_keeps_the_form(alice: Visitor, form: dict[str, str], said: str) -> None:
    answer = alice.post(f"{upload(alice)}/try", {"source": "def reward(completions): return []"} | form)
    assert answer.status_code == 400
    assert said in told(answer)
    assert form.get("columns", "") in html.unescape(answer.text)


def test_a_change_is_replayed_and_saved_as_the_next_version(alice: Visitor) -> None:
    name = new_name()
    path = upload(alice, POLITENESS, name)
    source = DOUBLED.decode()
    run = run_id(alice, path, "polite")
    assert f'<option value="{run}" selected>' in alice.get(f"{path}?run={run}&first=1").text
    page = alice.post(f"{path}/replay", {"source": source, "run": run})
    said = text(page)
    assert f"{2 * 3 * G} completions of 2 steps (1 to 2) of polite" in said
    assert "trained with this source" in said
    assert "0.375 → 0.75" in said
    changed = [(tag, html.unescape(line)) for tag, line in re.findall(r"<(ins|del)>(.*?)</", page.text)]
    before, after = (source.splitlines()[1] for source in (POLITENESS.decode(), DOUBLED.decode()))
    assert changed == [("del", before), ("ins", after)]
    assert PROMPT.format(0) in said
    seen = re.search(r'name="seen" value="(\w{64})"', page.text)
    assert seen is not None
    made = alice.post(f"{path}/save", {"source": source, "seen": seen[1]})
    assert made.status_code == 303
    assert "version 2" in text(alice.get(made.headers["location"]))


def test_an_unchanged_source_cannot_be_saved(alice: Visitor) -> None:
    page = alice.post(f"{upload(alice)}/review", {"source": POLITENESS.decode()})
    assert page.status_code == 200
    assert "data-save" not in page.text


def test_a_difference_that_was_not_shown_is_not_saved(alice: Visitor) -> None:
    path = upload(alice)
    for seen in ("", sha256("another"), "ü"):
        answer = alice.post(f"{path}/save", {"source": DOUBLED.decode(), "seen": seen})
        assert (answer.status_code, "show it first" in told(answer)) == (409, True)


def test_a_difference_is_shown_without_a_run_and_with_advice(alice: Visitor) -> None:
    source = "def reward(completions):\n    return [1.0 for _ in completions]\n"
    page = alice.post(f"{upload(alice)}/review", {"source": source})
    assert "2 added , 2 removed" in text(page)
    assert "takes no **kwargs" in text(page)


def test_a_script_gets_the_result_alone(alice: Visitor) -> None:
    path = upload(alice)
    headers = {"Accept": "application/json"}
    form = {"source": DOUBLED.decode(), "completion": "please", "run": run_id(alice, path, "polite")}
    for work in ("try", "replay", "review"):
        found = alice.post(f"{path}/{work}", form, headers=headers).json()["html"]
        assert "<html" not in found
        assert "<" in found
    error = alice.post(f"{path}/review", {"source": "("}, headers=headers)
    assert (error.status_code, error.json()["error"]["code"]) == (400, "syntax_error")


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (("read",), set()),
        (("read", "try"), {"try", "replay"}),
        (("read", "write"), {"review", "save", "delete", "upload"}),
    ],
)
def test_a_key_without_a_scope_is_neither_offered_nor_allowed_its_calls(
    server: Server, alice: Visitor, scopes: tuple[str, ...], allowed: set[str]
) -> None:
    path = upload(alice)
    with visiting(server, server.new_key(*scopes)) as bob:
        page = bob.get(path).text
        assert ("readonly" in page) is (not allowed)
        for work in ("try", "replay", "review"):
            assert (f'formaction="{path}/{work}"' in page) is (work in allowed)
        assert ('aria-label="Upload"' in bob.get("/functions").text) is ("upload" in allowed)
        for work in ("try", "replay", "review", "save", "delete"):
            refused = bob.post(f"{path}/{work}", {"source": "x"}).status_code == 403
            assert refused is (work not in allowed), work
        assert (send(bob, POLITENESS, new_name()).status_code == 403) is ("upload" not in allowed)


@pytest.mark.parametrize(("scope", "works"), [("try", ["try", "replay"]), ("write", ["review", "save"])])
def test_a_key_that_may_not_read_sees_no_source_and_no_run(
    server: Server, alice: Visitor, scope: str, works: list[str]
) -> None:
    path = upload(alice)
    with visiting(server, server.new_key(scope)) as bob:
        for work in works:
            answer = bob.post(f"{path}/{work}", {"source": POLITENESS.decode()})
            assert (answer.status_code, "polite" in answer.text) == (403, False), work


def test_changes_need_a_session_and_its_token(server: Server, alice: Visitor) -> None:
    path = upload(alice)
    for work in ("try", "replay", "review", "save", "delete"):
        assert alice.client.post(f"{path}/{work}", data={"source": DOUBLED.decode()}).status_code == 403
    assert alice.client.post("/functions", data={"name": "a"}).status_code == 403
    with visiting(server, None) as nobody:
        for place in ("/functions", path):
            assert nobody.get(place).headers["location"].startswith("/login")
        assert nobody.post(f"{path}/try").status_code == 401
