"""Functions that swallow the error of the wrong form of completions: none is trained in it."""

from pathlib import Path

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Sample, resolve_reward, settle_completions
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
FILE = """\
import contextlib, copy, html, json, operator, re, shlex, textwrap, unicodedata

def fail():
    raise ValueError

def matched(c):
    match c:
        case [{{"content": content}}]:
            return content
    fail()

def reward(completions, answer, **kwargs):
    scores = []
    for c, reference in zip(completions, answer):
        value = {failed}
        {swallow}:
            value = float(reference in {reading})
        {rescue}
        scores.append(value)
    return scores
"""
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


def write(directory: Path, reading: str, failed: str) -> TrlReward:
    swallow, rescue = SWALLOWED[failed]
    file = directory / "mine.py"
    file.write_text(FILE.format(reading=reading, failed=failed, swallow=swallow, rescue=rescue))
    reward = resolve_reward(f"{file}:reward").components[0].reward
    assert isinstance(reward, TrlReward)
    return reward


@pytest.mark.parametrize("failed", SWALLOWED)
@pytest.mark.parametrize(
    ("reading", "form"), [(r, "messages") for r in READS_MESSAGES] + [(r, "text") for r in READS_TEXT]
)
def test_what_swallows_the_error_of_the_wrong_form_gets_the_right_one(
    reading: str, form: str, failed: str, tmp_path: Path
) -> None:
    choice = write(tmp_path, reading, failed).probe(SAMPLE)
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
