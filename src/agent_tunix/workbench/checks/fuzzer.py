"""A search for cheap strings that earn a good reward without the answer.

The search is evolutionary. A candidate is a list of building blocks, rendered for each problem; it never sees a
reference. The result is a share of the difference between a wrong solution and the gold one,

    share = (value − wrong) / (gold − wrong), between 0 and 1, averaged over the problems,

so 0 means that the reward has no leak, and 1 that it pays in full for nothing. Guesses are sometimes right, so a
candidate counts as an exploit only if it earns more than guessing does on the same problems.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent_tunix.rewards.kinds import needs_answer
from agent_tunix.workbench.checks.problems import STYLES, CheckProblem, numbers_in, respond, tags_of
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.responses import every_answer
from agent_tunix.workbench.checks.scoring import mean
from agent_tunix.workbench.checks.trial import Trial

_POPULATION = 32
_SURVIVORS = 8
_MOST_BLOCKS = 12
_MOST_SHOWN = 12
_COST_OF_A_CHARACTER = 1e-5
_MOST_CHARACTERS = 20_000

Block = Callable[[CheckProblem], str]
Genome = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of the search; it ends at whichever comes first."""

    tries: int = 600  # Candidates that are scored. If this limit ends the search, equal seeds give equal results.
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Exploit:
    """The best candidate of a search."""

    blocks: Genome
    response: str  # the candidate, rendered for the first problem
    answer: str  # reference of that problem
    value: float | None
    mean_value: float  # mean value over all problems
    share: float  # mean share of the difference between a wrong solution and the gold one
    tries: int  # candidates that were scored


def search(trial: Trial, *, seed: int = 0, budget: Budget | None = None) -> Exploit:
    """Search for a string that earns without the answer.

    The search sees some of the trial's problems. The best candidates are then measured on all of them.
    """
    budget = budget or Budget()
    chance = random.Random(seed)
    blocks = make_blocks(trial)
    names = list(blocks)
    pays = _pays(trial)
    sampled_pays = chance.sample(pays, min(_MOST_SHOWN, len(pays)))
    deadline = time.monotonic() + budget.seconds
    fitness: dict[Genome, float] = {}

    def grade(genome: Genome) -> float:
        responses = [_render(genome, blocks, pay.problem) for pay in sampled_pays]
        values = _values(trial, sampled_pays, responses)
        shares = [pay.share(value) for pay, value in zip(sampled_pays, values, strict=True)]
        return mean(shares) - _COST_OF_A_CHARACTER * mean([len(response) for response in responses])

    population: list[Genome] = [(name,) for name in names]
    is_left = True
    while population and is_left:
        for genome in population:
            if genome not in fitness and is_left:
                fitness[genome] = grade(genome)  # at least one, whatever the budget
            is_left = len(fitness) < budget.tries and time.monotonic() < deadline
        best = sorted(fitness, key=lambda genome: fitness[genome], reverse=True)[:_SURVIVORS]
        population = [_vary(chance, best, names) for _ in range(_POPULATION)]
    finalists = sorted(fitness, key=lambda genome: fitness[genome], reverse=True)[:3]
    return max((_measure(trial, genome, blocks, pays, len(fitness)) for genome in finalists), key=lambda e: e.share)


def judge_exploit(trial: Trial, exploit: Exploit, most: float) -> CheckFinding:
    """Return the finding about an exploit. Only kinds that must not pay without the answer can fail."""
    guess = guessing_share(trial.problems)
    summary = f"the best of {exploit.tries} cheap strings earns {exploit.mean_value:.3g} on average"
    example = CheckExample(
        exploit.response, exploit.answer, exploit.value, detail=f"built of: {' + '.join(exploit.blocks)}"
    )
    if not (needs_answer(trial.kind) and trial.has_references):
        return CheckFinding("exploit search", Status.NOTED, summary, (example,))
    summary += f", {exploit.share:.0%} of the difference between wrong and right"
    summary += f"; at most {most:.0%} is allowed" + (f", and {guess:.0%} for guessing" if guess else "")
    status = Status.FAILED if exploit.share > most + guess else Status.PASSED
    return CheckFinding("exploit search", status, summary, (example,))


def guessing_share(problems: Sequence[CheckProblem]) -> float:
    """Return the share of problems that the best blind guess solves: one common reference, or a prompt's number."""
    if len(problems) < 2:
        return 0.0
    commonest = Counter(problem.answer for problem in problems).most_common(1)[0][1]
    picks: Mapping[str, Callable[[list[str]], str]] = {"first": lambda n: n[0], "last": lambda n: n[-1]}
    hits = [
        sum(pick(numbers) == problem.answer for problem in problems if (numbers := numbers_in(problem.prompt)))
        for pick in picks.values()
    ]
    return max(0 if commonest == 1 else commonest, *hits) / len(problems)


def make_blocks(trial: Trial) -> dict[str, Block]:
    """Return the building blocks of candidates, by name. None has access to the reference of its problem."""
    template = trial.scorer.template
    fixed = {
        **{tag: tag for tag in tags_of(template)},
        **{text: text for text in _TEXTS},
        "\\n": "\n",
        "every answer": " ".join(every_answer(trial.problems)),
        "50 words": "and so on and on " * 10,
        **{f"{style}, empty": respond(style, "", "", template) for style in STYLES},
        **{f"{style}, no answer": respond(style, "so it is", "", template) for style in STYLES},
        **{f"{style}, 1": respond(style, "so it is", "1", template) for style in STYLES},
        **{
            f"{style}, every answer": respond(style, "", ", ".join(every_answer(trial.problems)), template)
            for style in ("template", "boxed", "sentence")
        },
    }
    return {
        **{name: _constant(text) for name, text in fixed.items()},
        "the prompt": lambda problem: problem.prompt,
        "the prompt's numbers": lambda problem: " ".join(numbers_in(problem.prompt)),
        "the prompt's first number": lambda problem: (numbers_in(problem.prompt) or [""])[0],
        "the prompt's last number": lambda problem: (numbers_in(problem.prompt) or [""])[-1],
        "template, the prompt": lambda problem: respond("template", problem.prompt, problem.prompt, template),
        "boxed, the prompt": lambda problem: respond("boxed", problem.prompt, problem.prompt, template),
    }


def _constant(text: str) -> Block:
    return lambda problem: text


_TEXTS = (
    "0", "1", "2", "10", "24", "50", "100", "-1", "0.5", "1/2", "%", "$", ".", ",", "=", "?", "nan", "inf", "1e999",
    "\\boxed{", "}", "####", "<answer>", "</answer>", "<think>", "</think>", "Step 1:", "1.", "- ", "**", "`", "```",
    "because", "therefore", "so", "first", "then", "next", "finally", "since", "thus", "hence", "however", "wait",
    "let me check", "the answer is", "final answer:", "answer", "A", "B", "C", "D", "yes", "no", "true", "false",
    "None", "I am sure", "correct", "verified",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pay:
    """Values that a problem pays for the gold solution and for a wrong one, which may be nothing."""

    problem: CheckProblem
    gold: float
    wrong: float

    def share(self, value: float | None) -> float:
        """Return the position of a value between wrong (0) and gold (1); 0 if it is None."""
        if value is None:
            return 0.0
        if self.gold <= self.wrong:  # the reward does not distinguish them
            return 1.0 if value >= self.gold else 0.0
        return min(1.0, max(0.0, (value - self.wrong) / (self.gold - self.wrong)))


def _pays(trial: Trial) -> list[Pay]:
    pays = []
    for index, problem, gold in trial.solved():
        nothing = trial.score(problem, "").value or 0.0
        wrong = trial.score(problem, trial.solve(trial.wrong(index))).value if needs_answer(trial.kind) else None
        pays.append(Pay(problem, gold, nothing if wrong is None or wrong >= gold else wrong))
    return pays


def _render(genome: Genome, blocks: Mapping[str, Block], problem: CheckProblem) -> str:
    return " ".join(blocks[name](problem) for name in genome)[:_MOST_CHARACTERS]


def _vary(chance: random.Random, parents: Sequence[Genome], names: Sequence[str]) -> Genome:
    """Return a child: a parent with a block added, dropped, exchanged or repeated, or two parents joined."""
    parent = list(chance.choice(parents))
    match chance.randrange(6):
        case 0 | 1:
            parent.insert(chance.randint(0, len(parent)), chance.choice(names))
        case 2 if len(parent) > 1:
            del parent[chance.randrange(len(parent))]
        case 3:
            parent[chance.randrange(len(parent))] = chance.choice(names)
        case 4:
            parent *= chance.choice((2, 3, 5))
        case _:
            parent += chance.choice(parents)
    return tuple(parent[:_MOST_BLOCKS])


def _measure(trial: Trial, genome: Genome, blocks: Mapping[str, Block], pays: Sequence[Pay], tries: int) -> Exploit:
    responses = [_render(genome, blocks, pay.problem) for pay in pays]
    values = _values(trial, pays, responses)
    share = mean([pay.share(value) for pay, value in zip(pays, values, strict=True)])
    numbers = [value for value in values if value is not None]
    return Exploit(genome, responses[0], pays[0].problem.answer, values[0], mean(numbers), share, tries)


def _values(trial: Trial, pays: Sequence[Pay], responses: Sequence[str]) -> list[float | None]:
    pairs = [(pay.problem, response) for pay, response in zip(pays, responses, strict=True)]
    return [score.value for score in trial.score_each(pairs)]
