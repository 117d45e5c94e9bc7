"""Environments as users write them, five of each form: each runs unedited, in this process and in a worker."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.environments import (
    CallOutcome,
    EnvironmentRecipe,
    EpisodeResult,
    StopReason,
    adapt_environment,
    resolve_environment,
    run_episode,
)
from agent_tunix.environments.checks import check_environment
from agent_tunix.environments.environment import EpisodeSource
from agent_tunix.environments.hosting import HostedEnvironment
from tests.environments.support import GALLERY, call, from_gallery, script, texts
from tests.served import served_modules


@dataclass(frozen=True)
class Shown:
    """A file of the gallery, an episode in it, and what comes of it."""

    place: str
    convention: str
    turns: tuple[str, ...]
    first: str
    results: tuple[str, ...]
    value: float | None
    row: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    components: dict[str, float] = field(default_factory=dict)
    stop_reason: StopReason = StopReason.FINISHED
    fails_check: tuple[str, ...] = ()


CASES = [
    Shown(
        "classes/catch.py:CatchEnv",
        "class",
        (
            call("move", direction="right"),
            call("move", direction="stay"),
            call("move", direction="up"),
            call("move", direction="stay"),
            "caught",
        ),
        "The ball is above column 2, you are at 1.",
        (
            "You are at 2; 2 rows are left.",
            "You are at 2; 1 rows are left.",
            "Error: move failed: KeyError: 'up'",
            "You are at 2; 0 rows are left.",
        ),
        1.0,
        row={"start": 1, "prompt": "Catch."},
        args={"width": 3},
    ),
    Shown(
        "classes/bank.py:Bank",
        "class",
        (call("transfer", order={"to": "Ada", "amount": "25"}), "done"),
        "",
        ('{"to": "Ada", "balance": 75.0, "currency": "EUR"}',),
        1.0,
    ),
    Shown(
        "classes/notes.py:Notes",
        "class",
        (call("write", lines=["a", "b"]) + call("read"), "done"),
        "Your jottings are empty. Ticket 5.",
        ("2 lines", "a\nb\n"),
        None,
        row={"title": "jottings"},
    ),
    Shown(
        "classes/inherited.py:House",
        "class",
        (
            call("look"),
            call("help"),
            call("describe_door", number="1"),
            call("open_door", number=1, quietly=True),
            "done",
        ),
        "",
        ("a room", "There are two doors.", "door 1 is green", "door 1 is open (quietly)"),
        0.5,
    ),
    Shown(
        "classes/stateless.py:Units",
        "class",
        (call("to_centimetres", inches=2), "done"),
        "",
        ("4.0",),
        None,
        args={"factor": 2.0},
    ),
    Shown(
        "benchmax/older.py:OlderMath",
        "benchmax",
        (call("add", a=2, b=2), "It is 4."),
        "What is 2 + 2?",
        ("4",),
        2.0,
        row={"question": "What is 2 + 2?", "answer": "4"},
        components={"correct": 1.0, "used": 1.0},
    ),
    Shown(
        "benchmax/newer.py:Lookup",
        "benchmax",
        (call("look_up", topic="Capital of France"), "Paris."),
        "Where?",
        ("Paris",),
        1.5,
        row={"question": "Where?", "answer": "Paris"},
        components={"correct": 1.0, "looked": 0.5},
    ),
    Shown(
        "benchmax/grouped.py:Grouped",
        "benchmax",
        (call("now"), "done"),
        "Wait.",
        ("noon",),
        1.25,
        row={"prompt": "Wait."},
        components={"length": 0.25, "noon": 1.0},
    ),
    Shown(
        "benchmax/newest.py:Abacus",
        "benchmax",
        (call("push", beads=2), call("push", beads="2"), call("push", beads=3), "There are 5."),
        "How many?",
        (
            '{"beads": 3}',
            "Error: bad arguments for push: `beads` must be of type integer",
            '{"beads": 6}',
        ),
        7.0,
        row={"prompt_messages": [{"role": "user", "content": "How many?"}], "start": 1, "answer": "5"},
        args={"most": 3},
        components={"correct": 1.0, "counted": 6.0},
    ),
    Shown(
        "benchmax/plain.py:Plain",
        "benchmax",
        (call("flip"), "done"),
        "Flip.",
        ("heads",),
        1.0,
        row={"prompt": "Flip."},
        components={"ended": 1.0},
    ),
    Shown(
        "benchmax/stateful.py:Cart",
        "benchmax",
        (call("put", item="tea", count=2), call("put", thing="tea"), call("pay"), "done"),
        "Buy tea.",
        (
            '["tea", "tea"]',
            "Error: bad arguments for put: `item` is required, but missing; there is no argument `thing`. "
            "It takes: item (string, required), count (integer).",
            "Error: pay failed: RuntimeError: the card was refused",
        ),
        2.0,
        row={"prompt": "Buy tea."},
        components={"items": 2.0},
    ),
    Shown(
        "text/gymnasium.py:Doors",
        "text",
        ("0", "which?", "1"),
        "There are doors 0, 1 and 2.",
        ("Locked.", "Error: the action must be int", "It opens."),
        1.0,
        row={"right": 1},
        stop_reason=StopReason.ENVIRONMENT_DONE,
    ),
    Shown(
        "text/gym.py:Echo",
        "text",
        ("duck", "goose"),
        "Repeat: duck",
        ("again", "again"),
        0.5,
        row={"word": "duck"},
        stop_reason=StopReason.ENVIRONMENT_DONE,
    ),
    Shown(
        "text/tunix.py:TaskEnv",
        "text",
        ("5", "4"),
        '{"question": "2 + 2?"}',
        ('{"hint": "no"}',),
        1.0,
        row={"question": "2 + 2?", "answer": "4"},
        stop_reason=StopReason.ENVIRONMENT_DONE,
    ),
    Shown(
        "text/openenv.py:EchoClient",
        "text",
        ("hello", '{"message": "stop", "loud": true}'),
        '{"echoed": "ready"}',
        ('{"echoed": "hello"}', '{"echoed": "STOP"}'),
        0.9,
        stop_reason=StopReason.ENVIRONMENT_DONE,
    ),
    Shown(
        "text/server.py:Countdown",
        "text",
        ("tick", "tick"),
        "2 left",
        ("1 left", "0 left"),
        1.0,
        row={"start": 2},
        stop_reason=StopReason.ENVIRONMENT_DONE,
    ),
]
IDS = [case.place for case in CASES]


@pytest.fixture(autouse=True)
def no_served_package_is_left() -> Iterator[None]:
    yield
    assert served_modules() == set()


def host(case: Shown) -> HostedEnvironment:
    adapter = from_gallery(case.place, **case.args)
    return HostedEnvironment(EnvironmentRecipe(case.place, case.args, working_directory=GALLERY), adapter.traits)


def run(source: EpisodeSource, case: Shown) -> EpisodeResult:
    return run_episode(source.open(), script(*case.turns), case.row, seed=5)


def check_result(result: EpisodeResult, case: Shown) -> None:
    assert result.error == ""
    assert result.stop_reason is case.stop_reason
    users = texts(result.messages, "user")
    assert "".join(users[:1]).endswith(case.first)
    replies = users[1:] if case.convention == "text" else texts(result.messages, "tool")
    assert len(replies) == len(case.results)
    assert [one for one, start in zip(replies, case.results, strict=True) if not one.startswith(start)] == []
    assert (None if result.score is None else result.score.value) == case.value
    if case.components:
        assert result.score is not None
        assert result.score.components == case.components


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_runs_unedited(case: Shown) -> None:
    adapter = from_gallery(case.place, **case.args)
    assert adapter.convention == case.convention
    with adapter:
        check_result(run(adapter, case), case)
        check_result(run(adapter, case), case)


@pytest.mark.parametrize("case", CASES[::3], ids=IDS[::3])
def test_it_runs_in_a_worker_alike(case: Shown) -> None:
    with host(case) as hosted:
        check_result(run(hosted, case), case)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_passes_the_checks(case: Shown) -> None:
    with from_gallery(case.place, **case.args) as adapter:
        report = check_environment(adapter, case.row)
    assert [one for one in report.findings if one.status == "failed"] == []


OPENAI = """
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.tracking import log_env


class Newest(BaseEnv):
    async def list_tools(self):
        function = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {"a": {}}}}
        return [{"type": "function", "function": function}]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return tool_args["a"] + 1

    async def compute_reward(self, rollout_id, messages, example_args, **kwargs):
        log_env(rollout_id, "scored")
        return {"right": float(example_args["wanted"] in messages[-1]["content"])}

    def dataset_preprocess(self, row):
        return {"prompt": "Add.", "example_args": {"wanted": row["wanted"]}}
"""


def test_tools_in_openai_s_form_and_example_args_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "newest.py").write_text(OPENAI)
    adapter = resolve_environment("newest.py:Newest", working_directory=tmp_path)
    result = run_episode(adapter.open(), script(call("add", a=3), "It is 4."), {"wanted": "4"})
    assert texts(result.messages, "tool") == ["4"]
    assert result.score is not None
    assert (result.score.value, result.score.components) == (1.0, {"right": 1.0})
    assert any("scored" in str(extra) for extra in result.score.extras.values())


def test_the_turns_that_an_environment_recommends_are_the_limit() -> None:
    adapter = from_gallery("benchmax/newer.py:Lookup")
    result = run_episode(adapter.open(), lambda _: call("look_up"), {"question": "?", "answer": "x"})
    assert (result.stop_reason, result.num_turns) == (StopReason.MAX_TURNS, 3)
    assert result.messages[0] == {"role": "system", "content": "Look things up."}


@pytest.mark.parametrize("hosted", [False, True])
def test_limits_that_a_constructor_sets_hold(hosted: bool) -> None:
    place = "benchmax/newest.py:Abacus"
    adapter = from_gallery(place)
    source = (
        HostedEnvironment(EnvironmentRecipe(place, working_directory=GALLERY), adapter.traits) if hosted else adapter
    )
    row = {"prompt": "How many?", "start": 0, "answer": "5"}
    with source:
        result = run_episode(source.open(), lambda _: call("push", beads=1), row)
    assert (result.stop_reason, result.num_turns) == (StopReason.MAX_TURNS, 3)
    assert texts(result.messages, "tool") == [
        '{"beads": 1}',
        '{"beads": 2}',
        "the limit of 2 tool calls is reached; answer without a call",
    ]
    assert result.score is not None
    assert result.score.components == {"correct": 0.0, "counted": 0.0}


def test_the_context_of_a_rollout_is_left_and_the_environment_closed() -> None:
    adapter = from_gallery("benchmax/newest.py:Abacus")
    with adapter:
        for _ in range(2):
            run_episode(adapter.open(), script("5"), {"prompt": "?", "start": 0, "answer": "5"})
        assert (adapter.definition.left, adapter.definition.closed) == (2, 0)
    assert adapter.definition.closed == 1


def test_a_rollout_is_released_and_its_state_is_its_own() -> None:
    adapter = from_gallery("benchmax/stateful.py:Cart")
    one, other = adapter.open(), adapter.open()
    for episode in (one, other):
        episode.reset({}, 0)
    assert one.call("put", {"item": "tea"}).text == '["tea"]'
    assert other.call("put", {"item": "salt"}).text == '["salt"]'
    for episode in (one, other):
        episode.close()
        assert episode.call("put", {"item": "tea"}).outcome is CallOutcome.TOOL_ERROR  # it has no cart any more


def test_what_an_instance_holds_is_released() -> None:
    adapter = from_gallery("classes/notes.py:Notes")
    for _ in range(3):
        run_episode(adapter.open(), script("done"))
    assert adapter.definition.opened == 0


def test_a_system_prompt_precedes_the_prompt_of_the_run() -> None:
    class Env:
        system_prompt = "Be brief."

        def compute_reward(self, rollout: Any) -> dict[str, float]:
            return {"said": float(rollout.messages[-1]["content"] == "4")}

    def begin(prompt: Any) -> list[dict[str, Any]]:
        result = run_episode(adapt_environment(Env, "env").open(), script("4"), {"answer": "4"}, prompt=prompt)
        assert result.score is not None
        assert result.score.value == 1.0
        return result.messages[:-1]

    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}
    assert begin("2 + 2?") == begin([user]) == [system, user]
    own = {"role": "system", "content": "Be exact."}
    assert begin([own, user]) == [own, user]
