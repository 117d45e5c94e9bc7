"""Functions that swallow the error of the wrong form of completions: none is trained in it."""

from pathlib import Path

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Sample, resolve_reward, settle_completions
from agent_tunix.rewards.conventions.formed import FormedConvention
from agent_tunix.rewards.conventions.plain import PlainReward
from agent_tunix.rewards.conventions.trl import TrlReward
from tests.raising import raises

# The body of `try: found = … except Exception: return -1`, for a completion `c`.
READS_MESSAGES = [
    "c[0]['content']",
    "c[-1]['content']",
    "c[0].get('content')",
    "c[0].get('content', '')",
    "c['content'] if isinstance(c, dict) else c[0]['content']",
    "dict(c[0])['content']",
    "{**c[0]}['content']",
    "''.join(m['content'] for m in c)",
    "next(m['content'] for m in c if m['role'] == 'assistant')",
    "[m for m in c if m.get('role') == 'assistant'][-1]['content']",
    "list(c[0].values())[1]",
    "dict(c[0].items())['content']",
    "c.copy()[0]['content']",
    "c.pop()['content']",
    "copy.deepcopy(c)[0]['content']",
    "list(map(operator.itemgetter('content'), c))[0]",
    "json.loads(json.dumps(c))[0]['content']",
    "pickle.loads(pickle.dumps(c))[0]['content']",  # as a pool of processes does
    "c[0]['content'] if isinstance(c, list) else fail()",
    "c[0]['content'] if not isinstance(c, str) else fail()",
    "c[0]['content'] if type(c) is list else fail()",
    "c[0]['content'] if isinstance(c[0], dict) else fail()",
    "c[0]['content'] if len(c) == 1 else fail()",
    "c[0]['content'] if 'content' in c[0] else fail()",
    "c[0]['content'] if hasattr(c, 'append') else fail()",
    "c[0]['content'] if hasattr(c[0], 'get') else fail()",
    "(lambda content, role: content)(**c[0])",
    "'{content}'.format(**c[0])",
    "'{content}'.format_map(c[0])",
    "'%(content)s' % c[0]",
    "matched(c)",
]
READS_TEXT = [
    "re.search('.*', c, re.S)[0]",
    "c.strip()",
    "pickle.loads(pickle.dumps(c)).strip()",
    "c.lower()",
    "c.split('</think>')[-1]",
    "c.partition('<answer>')[2] or c",
    "c.replace('x', 'y')",
    "c.splitlines()[-1]",
    "c + ''",
    "'' + c",
    "c[0] + c[1:]",
    "c.encode().decode()",
    "''.join(ch for ch in c)",
    "''.join(reversed(c))[::-1]",
    "str.upper(c).lower()",
    "textwrap.dedent(c)",
    "c if c.startswith(('<', 'I', 'T')) else c.rstrip()",
    "c.removeprefix('x')",
    "c.translate({})",
    "copy.copy(c).strip()",
    "json.loads(json.dumps(c)).strip()",
    "c if isinstance(c, str) else fail()",
    "c.casefold()",
    "re.sub('<[^>]*>', '', c)",
    "shlex.quote(c)",
    "c.zfill(3)",
    "unicodedata.normalize('NFC', c)",
    "html.unescape(c)",
    "c % ()",
    "c.title()",
    "c.format()",
]
HEAD = """\
import contextlib, copy, html, json, operator, pickle, re, shlex, textwrap, unicodedata

def fail():
    raise ValueError

def matched(c):
    match c:
        case [{{"content": content}}]:
            return content
    fail()

"""
BODY = """\
    value = {failed}
    {swallow}:
        value = float(reference in {reading})
    {rescue}
    return value

"""
# How each convention calls the body.
SHAPES = {
    "trl": "def score(c, reference):\n{body}"
    "def reward(completions, answer, **kwargs):\n    return list(map(score, completions, answer))\n",
    "plain": "def reward(completion, answer):\n    c, reference = completion, answer\n{body}",
    "verifiers": "async def reward(completion, answer, state):\n    c, reference = completion, answer\n{body}",
    "benchmax": "def reward(completion, ground_truth, **kwargs):\n    c, reference = completion, ground_truth\n{body}",
    "environment": "def score(c, reference):\n{body}"
    "class reward:\n"
    "    def compute_reward(self, rollout_id, completion, ground_truth, **kwargs):\n"
    "        return {{'value': score(completion, ground_truth)}}\n",
}
SWALLOWED = {
    "-1.0": ("try", "except Exception: pass"),
    "0.0": ("with contextlib.suppress(Exception)", "pass"),
    "None": ("try", "except (TypeError, AttributeError, KeyError, IndexError, ValueError, StopIteration): pass"),
}
SAMPLE = Sample(
    "The answer is 42.",
    prompt="6 * 7",
    messages=({"role": "user", "content": "6 * 7"}, {"role": "assistant", "content": "The answer is 42."}),
    columns={"answer": "42"},
)


def write(directory: Path, reading: str, failed: str, shape: str = "trl") -> FormedConvention:
    swallow, rescue = SWALLOWED[failed]
    body = BODY.format(reading=reading, failed=failed, swallow=swallow, rescue=rescue)
    file = directory / "mine.py"
    file.write_text(HEAD.replace("{{", "{").replace("}}", "}") + SHAPES[shape].format(body=body))
    reward = resolve_reward(f"{file}:reward").components[0].reward
    assert isinstance(reward, FormedConvention)
    assert reward.convention == shape
    return reward


# Both forms in turns.
READINGS = [
    pair
    for both in zip(READS_MESSAGES, READS_TEXT, strict=True)
    for pair in zip(both, ("messages", "text"), strict=True)
]


@pytest.mark.parametrize(
    ("reading", "form", "failed"),
    [(*both, "-1.0") for both in READINGS] + [(*both, failed) for failed in ("0.0", "None") for both in READINGS[::7]],
)
def test_what_swallows_the_error_of_the_wrong_form_gets_the_right_one(
    reading: str, form: str, failed: str, tmp_path: Path
) -> None:
    choice = write(tmp_path, reading, failed).probe(SAMPLE)
    assert (choice.completions, choice.is_guess) == (form, False), choice.reason


@pytest.mark.parametrize("shape", ["plain", "environment", "verifiers", "benchmax"])
@pytest.mark.parametrize(("reading", "form"), READINGS[::7])
def test_every_convention_with_completions_gets_the_right_form(
    reading: str, form: str, shape: str, tmp_path: Path
) -> None:
    reward = write(tmp_path, reading, "-1.0", shape)
    choice = reward.probe(SAMPLE)
    assert (choice.completions, choice.is_guess) == (form, False), choice.reason


@pytest.mark.parametrize(("reading", "form"), [(READS_MESSAGES[0], "messages"), (READS_TEXT[0], "text")])
def test_a_trial_in_a_worker_decides_by_the_same_evidence(reading: str, form: str, tmp_path: Path) -> None:
    reward = write(tmp_path, reading, "-1.0")
    settle_completions([reward], SAMPLE)
    assert reward.completions == form
    assert reward.score([SAMPLE])[0].value == 1.0


def test_what_takes_both_gets_text(tmp_path: Path) -> None:
    reward = write(tmp_path, "(c if isinstance(c, str) else c[0]['content'])", "-1.0")
    choice = reward.probe(SAMPLE)
    assert (choice.completions, choice.is_guess) == ("text", False)


def test_what_scores_both_forms_differently_asks_for_the_key() -> None:
    def reward(completions: list[object]) -> list[float]:
        return [float(len(c)) if isinstance(c, str) else float("42" in c[0]["content"]) for c in completions]  # type: ignore[index]

    with raises(RewardError, "ambiguous_completions"):
        TrlReward(reward, "mine").probe(SAMPLE)


def test_a_trial_leaves_no_metric_behind(tmp_path: Path) -> None:
    reward = write(tmp_path, READS_MESSAGES[0], "-1.0")
    assert reward.score([SAMPLE])[0].metrics == {}


@pytest.mark.parametrize("shape", ["plain", "environment", "verifiers", "benchmax"])
def test_the_form_is_determined_before_the_first_score(shape: str, tmp_path: Path) -> None:
    reward = write(tmp_path, READS_MESSAGES[0], "-1.0", shape)
    assert reward.completions == "auto"
    assert reward.score([SAMPLE])[0].value == 1.0
    assert reward.completions == "messages"


@pytest.mark.parametrize(("shape", "form"), [("plain", "text"), ("verifiers", "messages"), ("benchmax", "text")])
def test_what_takes_both_gets_what_its_library_passes(shape: str, form: str, tmp_path: Path) -> None:
    reward = write(tmp_path, "(c if isinstance(c, str) else c[0]['content'])", "-1.0", shape)
    choice = reward.probe(SAMPLE)
    assert (choice.completions, choice.is_guess) == (form, False)


def test_what_reads_no_message_is_taken_for_text() -> None:
    reward = resolve_reward(lambda completion, ground_truth: float(completion == ground_truth)).components[0].reward
    assert isinstance(reward, FormedConvention)
    assert reward.probe(SAMPLE).completions == "text"


def test_a_response_is_always_text() -> None:
    assert not PlainReward(lambda response: len(response), "mine").is_open
