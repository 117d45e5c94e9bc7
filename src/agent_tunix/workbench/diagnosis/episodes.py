"""Detection of episodes that do not work: tools that are not used or fail, calls that cannot be read, limits."""

from collections.abc import Iterator

from agent_tunix.overrides import assign
from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import Detection, Detector, Row, Window, count_completions, number
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.hacking import STEPS, Hacking
from agent_tunix.workbench.diagnosis.views import cut_off

UNUSED_STEPS = 5
"""Steps in a row without any call; a rare habit that can be learned shows in a few hundred episodes."""
FEWEST_CALLS = 16
"""Calls needed for a share of failures."""
FAILING_SHARE = 0.9
"""Share of calls that fail or cannot be read at which the tool is as good as absent."""
OTHER_FORM_SHARE = 0.5
"""Share of calls in a form that is not read at which most of what the policy tries has no effect."""
LIMIT_SHARE = 0.3
"""Share of episodes at a limit that is worth a warning: they lack their ends, where answers are."""
LIMIT_STEPS = 2

# Values of environment.call_format.
CALL_FORMATS = ("hermes", "qwen_xml", "llama3", "gemma", "olmo3")

_KEYS = {
    "max_turns": "environment.max_turns",
    "max_turn_tokens": "environment.max_turn_tokens",
    "max_episode_tokens": "environment.max_episode_tokens",
}


class ToolUse(Detector):
    """Detector of tools that are never called, always fail, or are called in a form that cannot be read."""

    names = ("calls_in_another_form", "tool_never_called", "calls_never_parse", "tool_always_fails")

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._unused = 0
        self._made = self._unread = 0.0
        self._other_forms: dict[str, float] = {}
        self._calls: dict[str, float] = {}
        self._errors: dict[str, float] = {}

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        mean = number(row, "tools/calls_mean")
        if mean is None or step == 0:
            return
        # An agent's tools are its own, and their calls are not known.
        self._unused = 0 if mean or "agent/calls_mean" in row else self._unused + 1
        self._made += mean * count_completions(row)
        self._unread += number(row, "tools/parse_errors") or 0.0
        unread = list(self._in_another_form(row))
        yield from unread
        # An environment that replies to texts has turns without tools.
        if not unread and self._unused >= UNUSED_STEPS and (number(row, "turns/mean") or 0.0) <= 1:
            yield Detection(
                "tool_never_called",
                Severity.WARNING,
                float(self._unused),
                f"no tool was called in the last {self._unused} steps, so that using one is never tried and cannot be"
                " learned; show the form of a call in the prompt, start from a policy that makes calls (`agent-tunix"
                " sft`), or sample more variedly",
                evidence={"tools/calls_mean": mean, "steps": float(self._unused)},
                edits=(
                    assign(
                        "generation.temperature", round(self.context.number("generation.temperature", 1.0) * 1.2, 3)
                    ),
                ),
            )
        if not unread and self._made >= FEWEST_CALLS and self._unread >= FAILING_SHARE * self._made:
            yield Detection(
                "calls_never_parse",
                Severity.WARNING,
                self._unread / self._made,
                f"{self._unread:.0f} of {self._made:.0f} tool calls so far could not be read; the policy writes them in"
                " another form than its chat template's; show the form in the prompt, or set prompt.chat_template",
                evidence={"tools/parse_errors so far": self._unread, "tool calls so far": self._made},
            )
        for key in row:
            first, _, rest = key.partition("/")
            name, _, leaf = rest.rpartition("/")
            if first == "tools" and leaf == "calls":
                yield from self._failing(name, row)

    def _in_another_form(self, row: Row) -> Iterator[Detection]:
        for key in row:
            first, _, form = key.partition("/")
            if first == "unread_calls":
                self._other_forms[form] = self._other_forms.get(form, 0.0) + (number(row, key) or 0.0)
        unread = sum(self._other_forms.values())
        num_read = self._made - self._unread
        if unread < FEWEST_CALLS or unread < OTHER_FORM_SHARE * (unread + num_read):
            return
        form = max(self._other_forms, key=self._other_forms.__getitem__)
        is_known = form in CALL_FORMATS
        yield Detection(
            "calls_in_another_form",
            Severity.ERROR,
            unread / (unread + num_read),
            f"{unread:.0f} turns so far look like tool calls that were not read, most often in the form {form}, and"
            f" {num_read:.0f} calls were read; "
            + (
                f"set environment.call_format={form}"
                if is_known
                else "show a form that is read in the prompt (environment.call_format), or set prompt.chat_template"
            ),
            evidence={
                "tools/unread_calls so far": unread,
                f"unread_calls/{form} so far": self._other_forms[form],
                "calls that were read so far": num_read,
            },
            edits=(assign("environment.call_format", form),) if is_known else (),
        )

    def _failing(self, name: str, row: Row) -> Iterator[Detection]:
        calls = self._calls[name] = self._calls.get(name, 0.0) + (number(row, f"tools/{name}/calls") or 0.0)
        errors = self._errors[name] = self._errors.get(name, 0.0) + (number(row, f"tools/{name}/errors") or 0.0)
        if calls >= FEWEST_CALLS and errors >= FAILING_SHARE * calls:
            yield Detection(
                "tool_always_fails",
                Severity.ERROR,
                errors / calls,
                f"{name} raised an error in {errors:.0f} of {calls:.0f} calls so far; correct the tool, and try it with"
                f" `agent-tunix environments try`",
                subject=name,
                evidence={f"tools/{name}/errors so far": errors, f"tools/{name}/calls so far": calls},
            )


class LimitedEpisodes(Detector):
    """Detector of episodes that end at a limit."""

    names = ("episode_limits",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._share = Window(LIMIT_STEPS)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        share = number(row, "turns/limit_share")
        if share is None or step == 0:
            return
        self._share.add(share)
        if not self._share.is_full or self._share.mean < LIMIT_SHARE:
            return
        shares = {reason: number(row, f"stop_reasons/{reason}") or 0.0 for reason in _KEYS}
        reason = max(shares, key=lambda one: shares[one])
        key = _KEYS[reason]
        limit = int(self.context.number(key, 0))
        yield Detection(
            "episode_limits",
            Severity.WARNING,
            self._share.mean,
            f"{self._share.mean:.0%} of the episodes end at a limit, most often {key}"
            f"{f'={limit}' if limit else ''}, before the policy gives its answer; allow more, or reward brief episodes",
            evidence={"turns/limit_share": self._share.mean, f"stop_reasons/{reason}": shares[reason]},
            edits=(assign(key, 2 * limit),) if limit else (),
            pick=cut_off,
        )


CALLS_CORRELATION = 0.9
"""Mean correlation of the total with the number of calls. Its square is the share that calls explain: four fifths."""
CALLS_GREW = 1.3
"""Factor by which calls have grown."""


class CallsRewarded(Hacking):
    """Detector of a total that pays for tool calls, whatever their results."""

    names = ("calls_rewarded",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._correlation = Window(STEPS)
        self._calls = Window(STEPS)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        self.take_in(row)
        self._correlation.add(number(row, "tools/reward_correlation"))
        self._calls.add(number(row, "tools/calls_mean"))
        if not (self.total_rose and self._correlation.is_full and self._calls.is_past_start):
            return
        correlation = max(self._correlation.mean, self._correlation.start)
        grew = self._calls.mean / max(self._calls.start, 0.1)
        changes = self.quality.changes()
        if correlation < CALLS_CORRELATION or grew < CALLS_GREW or not changes:
            return
        if not any(change.is_better for change in changes):
            yield Detection(
                "calls_rewarded",
                Severity.WARNING,
                grew,
                f"tool calls are {grew:.1f} times as frequent as at the start, and the total follows their number"
                f" (correlation {correlation:.2f}), but answers do not improve: the policy is rewarded for calling;"
                " reward the answer instead",
                evidence={
                    "tools/reward_correlation": correlation,
                    "tools/calls_mean": self._calls.mean,
                    **self.total_evidence(changes[0]),
                },
                edits=self.oracle_edit(),
            )
