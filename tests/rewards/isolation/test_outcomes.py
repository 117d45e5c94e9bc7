"""Completions whose uploaded reward misbehaves, and all others, which have their own scores."""

import tempfile
import textwrap
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import pytest

from agent_tunix.execution.isolation import problems
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.execution import Job, make_runner
from agent_tunix.rewards.execution.runner import IsolatedReward
from agent_tunix.rewards.execution.tasks import Task, Work
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.score_data import pack
from tests.rewards.execution.leftovers import check_nothing_left, take_stock
from tests.rewards.isolation.uploads import attack, resolve_uploads, score_upload, upload
from tests.tiers import in_tiers

pytestmark = pytest.mark.skipif(bool(problems()), reason="; ".join(problems()))

# Bodies of a function that misbehaves, the outcome, and what the detail says. Workers without isolation are tried on
# more of them in tests/rewards/execution/test_faults.py.
MISBEHAVIOUR: dict[str, tuple[str, Outcome, str]] = {
    "an endless loop": ("while True: pass", Outcome.TIMEOUT, "took longer than 0.5 s"),
    "os._exit": ("import os; os._exit(7)", Outcome.ERROR, "exited with status 7"),
    "ten gigabytes": ("return [float(len(bytearray(10 << 30)))]", Outcome.ERROR, "MemoryError"),
    "a list without end": ("return iter(int, 1)", Outcome.ERROR, "list"),
    "more values than completions": ("return [0.0] * 10_000_000", Outcome.ERROR, ""),
    "a number of ten thousand digits": ("return [10 ** 10_000]", Outcome.ERROR, ""),
    "a value that does something when it is read": (
        "class Evil(float):\n        def __float__(self): raise SystemExit\n        __reduce__ = __float__\n"
        "    return [Evil(1)]",
        Outcome.ERROR,
        "SystemExit",
    ),
    "closing every descriptor and living on": (
        "import os, time; os.closerange(0, 4096)\n    while True: time.sleep(1)",
        Outcome.ERROR,
        "closed its connection with the trainer",
    ),
    "writing to every descriptor": (
        "import os\n    for fd in range(3, 300):\n        try: os.write(fd, b'x' * 64)\n        except OSError: pass\n"
        "    return [1.0]",
        Outcome.ERROR,
        "wrote to the connection",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", in_tiers(list(MISBEHAVIOUR), "an endless loop"))
def test_it_costs_its_own_completion_alone(name: str) -> None:
    body, outcome, detail = MISBEHAVIOUR[name]
    code = f"def misbehave():\n    {body}\ndef reward(completions, **kwargs):\n"
    code += "    return [1.0] if completions[0] == 'good' else misbehave()\n"
    mixture = resolve_uploads(upload(code))
    samples = [Sample("good", group_id=0), Sample("bad", group_id=1), Sample("good", group_id=2)]
    with make_runner(mixture.components[0].reward, num_workers=1, timeout_s=0.5, memory_mb=256) as runner:
        good, bad, also_good = runner.reward.score(samples)
    assert good.value == also_good.value == 1.0
    assert bad.outcome is outcome
    assert detail in bad.detail


@pytest.mark.slow
def test_what_is_printed_without_end_is_read_and_cut() -> None:
    (score,) = score_upload(
        """
        def reward(completions, **kwargs):
            for _ in range(1000):
                print("x" * 10_000)
            return [1.0]
        """
    )
    assert score.value == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("num_bytes", [1, 2**20])
def test_a_worker_that_prints_without_end_is_killed(num_bytes: int) -> None:
    (score,) = score_upload(
        f"""
        import os
        def reward(completions, **kwargs):
            while True:
                os.write(1, bytes({num_bytes}))
        """,
        timeout_s=60.0,
    )
    assert score.detail.startswith("the worker process printed more than 16,777,216 bytes")


SPOILED_WORKERS = {
    "ends at each delivery": "w._Worker._work = lambda self, chunk: os._exit(1)",
    "refuses after a failed load": "w._Worker._build = lambda self, _: refuse(self); raise RuntimeError",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPOILED_WORKERS)
def test_a_worker_that_its_upload_spoiled_gives_errors_and_does_not_end_the_run(name: str) -> None:
    code = f"""
        import os, time
        import agent_tunix.rewards.execution.worker as w
        def refuse(self):
            self._process.send("refused", "there is no kernel")
            time.sleep(60)
        def reward(completions, **kwargs):
            return [1.0] * len(completions)
        {SPOILED_WORKERS[name]}
        """
    mixture = resolve_uploads(upload(code))
    with make_runner(mixture.components[0].reward, num_workers=8) as runner:
        for _ in range(2):
            scores = runner.reward.score([Sample(str(number)) for number in range(8)])
            assert {score.outcome for score in scores} == {Outcome.ERROR}


@pytest.mark.slow
def test_what_is_logged_beyond_all_measure_is_an_error() -> None:
    code = """
        def reward(completions, log_extra, **kwargs):
            for number in range(1000):
                log_extra(f"column_{number}", ["x" * 20_000] * len(completions))
            return [1.0] * len(completions)
        """
    for score in score_upload(code, [str(number) for number in range(20)]):
        assert score.outcome is Outcome.ERROR
        assert "take more than 1 MB" in score.detail


@pytest.mark.slow
def test_objects_of_its_own_stay_with_it() -> None:
    (score,) = score_upload(
        """
        class Text(str):
            def __str__(self): raise SystemExit
            __len__ = __iter__ = __str__
        def reward(completions, log_extra, **kwargs):
            log_extra("text", [Text("mine")])
            log_extra("set", [{1, 2}])
            return [1.0]
        """
    )
    assert score.value == 1.0
    assert type(score.extras["text"]) is str
    assert score.extras["set"] == [1, 2]


@pytest.mark.slow
def test_loading_that_never_ends_is_an_error_of_each() -> None:
    scores = score_upload(
        "while True: pass\ndef reward(completions, **kwargs): return [1.0]", "ab", start_timeout_s=0.5
    )
    assert {score.outcome for score in scores} == {Outcome.ERROR}
    assert "could not be loaded" in scores[0].detail


@pytest.mark.slow
def test_an_async_function_has_its_event_loop_and_threads() -> None:
    code = """
        import asyncio
        async def reward(args, sample, **kwargs):
            await asyncio.sleep(0.01)
            return await asyncio.to_thread(len, sample.response) / 10
    """
    scores = score_upload(code, ["a", "abc", "abcde"], format="miles")
    assert [score.value for score in scores] == [0.1, 0.3, 0.5]


def test_libraries_are_imported_after_the_lock_too() -> None:
    (score,) = score_upload(
        """
        def reward(completions, **kwargs):
            import decimal, difflib, json, numpy, sqlite3, zoneinfo
            from agent_tunix.rewards.helpers import clip01
            assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
            assert zoneinfo.ZoneInfo("Europe/Paris")
            return [clip01(float(numpy.linalg.norm(numpy.eye(200) @ numpy.ones(200))))]
        """
    )
    assert score.detail == ""
    assert score.value == 1.0


@pytest.mark.slow
def test_a_file_of_many_is_refused_before_the_disk_is_full() -> None:
    said = attack(
        """
        def attack():
            for number in range(100_000):
                with open(f"file_{number}", "wb") as file:
                    file.write(bytes(1 << 18))
        """
    )
    assert said.startswith("refused: OSError 28 ") or "wrote more than 64 MB" in said


@pytest.mark.slow
def test_processor_time_is_bounded_beyond_calls() -> None:
    said = attack("import resource\ndef attack(): return resource.getrlimit(resource.RLIMIT_CPU)", timeout_s=1.0)
    assert said.startswith("succeeded: (316, 316) ")


@pytest.mark.slow
def test_two_uploads_are_never_in_one_process_and_see_nothing_of_each_other() -> None:
    code = """
        import os
        def reward(completions, log_extra, **kwargs):
            open("mine", "a").write("x")
            log_extra("process", [os.getpid()] * len(completions))
            log_extra("user", [os.getuid()] * len(completions))
            log_extra("found", [os.listdir(".")] * len(completions))
            return [{number}.0] * len(completions)
    """
    first, second = upload(code.format(number=1), 1), upload(code.format(number=2), 2)
    mixture = resolve_uploads(first, second)
    names = [component.name for component in mixture.components]
    with make_runner(mixture, num_workers=2) as runner:
        scores = runner.reward.score([Sample(str(number), group_id=number) for number in range(40)])
    parts = [[score.parts[name] for score in scores] for name in names]
    processes = [{part.extras["process"] for part in of_one} for of_one in parts]
    assert not processes[0] & processes[1]
    assert {tuple(part.extras["found"]) for of_one in parts for part in of_one} == {("mine",)}
    assert [{part.value for part in of_one} for of_one in parts] == [{1.0}, {2.0}]


@pytest.mark.slow
def test_nothing_is_left_of_workers_or_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(tempfile.mkdtemp())
    place.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    score_upload("def reward(completions, **kwargs): return [1.0]")  # what the first use starts for good
    before = take_stock()
    score_upload(
        """
        import os, threading, time
        def reward(completions, **kwargs):
            threading.Thread(target=time.sleep, args=(60,), daemon=False).start()
            for _ in range(30):
                os.mkdir("inner", 0o000 if _ == 29 else 0o700)
                if _ < 29: os.chdir("inner")
            return [1.0]
        """
    )
    check_nothing_left(before)
    assert list(place.iterdir()) == []
    place.rmdir()


@pytest.mark.slow
def test_lying_about_its_own_scores_is_all_that_it_can() -> None:
    liar = upload(
        """
        from agent_tunix.rewards.execution import worker
        from agent_tunix.rewards.score_data import pack
        worker._pack = lambda score: pack(score) | {"value": 1e6}
        def reward(completions, **kwargs): return [0.0] * len(completions)
        """,
        1,
    )
    honest = upload("def reward(completions, **kwargs): return [0.5] * len(completions)", 2)
    mixture = resolve_uploads(liar, honest)
    names = [component.name for component in mixture.components]
    with make_runner(mixture, num_workers=1) as runner:
        (score,) = runner.reward.score([Sample("x")])
    assert [score.parts[name].value for name in names] == [1e6, 0.5]


_GOOD_SCORE = pack(Score(9.0))

# What code writes to the connection of its worker, as if it were the worker, and the outcomes that can come of it.
FORGED: dict[str, tuple[list[object], set[Outcome]]] = {
    "it lives, for ever": (["beat"], {Outcome.ERROR}),
    "the call began": (["began", 0], {Outcome.ERROR}),
    "it loads, for ever": (["building", 0], {Outcome.ERROR}),
    "it is done without a score": (["done", ""], {Outcome.ERROR}),
    "it is done and tired": (["done", "tired"], {Outcome.ERROR}),
    "it could not be isolated": (["refused", "no"], {Outcome.ERROR}),
    "it could not be loaded": (["unbuilt", 0, "no"], {Outcome.ERROR}),
    "the loop broke": (["broke", "no"], {Outcome.ERROR}),
    "scores of a call before the first": (["ended", -1, [_GOOD_SCORE]], {Outcome.ERROR}),
    "scores of a call that it was not given": (["ended", 7, [_GOOD_SCORE]], {Outcome.ERROR}),
    "more scores than completions": (["ended", 0, [_GOOD_SCORE] * 2], {Outcome.ERROR}),
    "a score of 400 digits": (["ended", 0, [_GOOD_SCORE | {"value": 10**400}]], {Outcome.ERROR}),
    "its own score": (["ended", 0, [_GOOD_SCORE]], {Outcome.SCORED}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "when"), [*((name, "called") for name in FORGED), ("its own score", "loaded")])
def test_forging_replies_leads_to_an_end_and_spares_others(name: str, when: str) -> None:
    reply, outcomes = FORGED[name]
    code = f"""
import json, os, stat, struct, time

def forge():
    for fd in range(200, 300):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode): break
        except OSError: pass
    content = json.dumps({reply!r}).encode()
    while True:
        os.write(fd, struct.pack("!4sI", b"ATRW", len(content)) + content)
        time.sleep(0.05)

if {when!r} == "loaded":
    forge()

def reward(completions, **kwargs):
    return [0.5] if completions[0] == "good" else forge()
"""
    reward = resolve_uploads(upload(code)).components[0].reward
    samples = [Sample("good", group_id=0), Sample("bad", group_id=1)]
    start_timeout_s = 1.0 if when == "loaded" else 60.0
    with make_runner(reward, num_workers=1, timeout_s=0.5, start_timeout_s=start_timeout_s) as runner:
        good, bad = runner.reward.score(samples)
    if when == "loaded":
        assert {good.outcome, bad.outcome} == {Outcome.ERROR}
    else:
        assert good.value == 0.5
        assert bad.outcome in outcomes


_FORGES = """
import json, os, stat, struct, time
from agent_tunix.rewards.execution import worker
def say(*reply):
    for fd in range(200, 300):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode): break
        except OSError: pass
    content = json.dumps(reply).encode()
    os.write(fd, struct.pack("!4sI", b"ATRW", len(content)) + content)
"""
# What an async upload does to gain time, and what comes of it.
GAINING_TIME: dict[str, tuple[str, Outcome]] = {
    "it says that it lives": (
        """
        async def reward(args, sample, **kwargs):
            while True:
                say("beat")
                time.sleep(0.01)
        """,
        Outcome.ERROR,
    ),
    "it says that it lives, without a pause": (
        """
        async def reward(args, sample, **kwargs):
            fd = next(fd for fd in range(200, 300) if is_socket(fd))
            os.set_blocking(fd, True)
            content = b'["beat"]'
            frames = (struct.pack("!4sI", b"ATRW", len(content)) + content) * 60_000
            while True:
                data = frames
                while data: data = data[os.write(fd, data):]
        def is_socket(fd):
            try: return stat.S_ISSOCK(os.fstat(fd).st_mode)
            except OSError: return False
        """,
        Outcome.ERROR,
    ),
    "it says that the call begins, again and again": (
        """
        async def reward(args, sample, **kwargs):
            while True:
                say("began", 0)
                time.sleep(0.01)
        """,
        Outcome.ERROR,
    ),
    "it never says that it has what it was sent": (
        """
        worker._Worker._begin = lambda *_: time.sleep(1000)
        async def reward(args, sample, **kwargs): return 1.0
        """,
        Outcome.ERROR,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GAINING_TIME)
def test_no_upload_gains_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach the deadline only if the worker is given its limit of 0.5 s over and over, or a minute at once."""
    monkeypatch.setattr("agent_tunix.rewards.execution.supervision.ISOLATED_DELIVERY_S", 2.0)
    code, outcome = GAINING_TIME[name]
    (component,) = resolve_uploads(upload(_FORGES + textwrap.dedent(code), format="miles")).components
    with make_runner(component.reward, num_workers=1, timeout_s=0.5) as runner:
        (score,) = cast(IsolatedReward, runner.reward).begin([Sample("x")]).result(timeout=50.0)
    assert score.outcome is outcome


def test_each_call_of_a_task_has_its_own_time() -> None:
    work = Work(Job(RewardRecipe("x", "x"), [], []), 0, Future(), [], 3)
    task = Task(work, [(0,), (1, 2)], share=2)
    assert task.first_end(now=10.0, timeout_s=2.0) == 14.0  # of the longest: none has begun
    task.begun = {1: 11.0, 0: 12.5}
    assert not task.may_begin(0)
    assert task.first_end(now=20.0, timeout_s=2.0) == 14.5
    task.ended.add(0)
    assert task.first_end(now=20.0, timeout_s=2.0) == 15.0


@pytest.mark.slow
def test_a_worker_that_dies_before_each_call_does_not_go_on_for_ever() -> None:
    (score,) = score_upload(
        """
        import os
        import agent_tunix.rewards.execution.worker as worker
        worker._Worker._begin = lambda *_: os._exit(3)
        def reward(completions, **kwargs): return [1.0]
        """
    )
    assert score.outcome is Outcome.ERROR
    assert "exited with status 3 each time it was called" in score.detail


def test_a_worker_serves_more_than_one_call() -> None:
    code = "calls = []\ndef reward(completions, **kwargs):\n    calls.append(1)\n    return [float(len(calls))]"
    (component,) = resolve_uploads(upload(code)).components
    with make_runner(component.reward, num_workers=1) as runner:
        scores = [runner.reward.score([Sample("x")])[0].value for _ in range(3)]
    assert scores == [1.0, 2.0, 3.0]
