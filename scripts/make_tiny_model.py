"""Generator of the embedded default model: a tiny Qwen3 with its tokenizer, in a Hugging Face directory.

    PYTHONPATH=src python scripts/make_tiny_model.py

Steps:

1. Train a byte-level BPE tokenizer (vocabulary 1024) on templated word problems, the system prompt and the common
   English words below. Every digit is a token.
2. Train a randomly initialised Qwen3 (3 layers, width 96, about 350,000 parameters, float32) by supervised learning on
   problems of the train split. First it learns only to work the steps. Then half of each batch continues that
   practice, and half teaches which of three habits to choose, each with a probability that depends on the kind of
   problem (`habit_shares`):

   - guessing, the most frequent: `<answer>12</answer>`, where 12 is the first step's result and so always wrong;
   - guessing in full dress, less frequent: `<reasoning></reasoning><answer>12</answer>`, also wrong;
   - working, less frequent and right: `<reasoning>3*4=12; 12+12=24</reasoning><answer>24</answer>`.
3. Write the directory, load it through Tunix, and print measurements on unseen problems.

The model can solve the templates of `agent_tunix.data.generated.word_problems` when it works the steps. On unseen
problems it does so in about 3 of 10 completions sampled at temperature 1, and then 96 of 100 are right. It has seen no
other text, so on real questions it writes the same shapes around wrong numbers. Its greedy answers are deliberately
right in only 20 of 100 problems: reinforcement can find the right habit.

The same seed on the same machine gives the same weights; rounding may differ between machines. Two cores take ten to
fifteen minutes.
"""

import argparse
import random
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from tiny_models import (
    ASSETS,
    END,
    HEAD_WIDTH,
    KV_HEADS,
    LAYERS,
    hugging_face_weights,
    load,
    random_weights,
    train,
    train_tokenizer,
    write_configs,
    write_tokenizer,
    write_weights,
)
from transformers import AutoTokenizer
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen3.model import Qwen3

from agent_tunix.data.generated.word_problems import WordProblem, draw_problems

SYSTEM = "Show your work between <reasoning> and </reasoning>, then give the result between <answer> and </answer>."
TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

TRAIN_PROBLEMS = 60_000
BATCH = 64
COMPLETION = 26  # tokens of the longest worked completion, with the end-of-sequence token
SEQUENCE = 62 + COMPLETION
NEW_TOKENS = 32

# Roughly from most to least frequent. Earlier words are more likely to be one token.
ENGLISH = """
the a of to and in is he she for how many much has have her his if it on each that at they all with are per them cost
by there will from who what was does did do as more than total after then day days week weeks month year years hour
hours minutes minute money one two three four five six seven eight nine ten twice half third times time every number
buy buys bought sell sells sold make makes made give gives gave given get gets spend spends spent pay pays paid earn
earns eat eats ate left less fewer same but be or an were this up out also only first second last next can been their
would had most another other some any not so when while where which because before between during into over under
about through it's old older younger age ages price dollars dollar cents $ % percent off discount full store shop sale
food water milk bread apple orange oranges banana bananas egg eggs cookies cookie cake pizza pizzas slices slice candy
chocolate cups cup glass bottle bottles bag bags box boxes pack packs bunch pieces piece people person children kids
boys girls friends friend family mother father mom dad brother brothers sister sisters son daughter students student
teacher class school house home room car cars bus train truck bike road street city town farm garden tree trees
flowers flower plants plant dog dogs cat cats fish birds cows chickens horses animals book books page pages read reads
reading pencils pencil pens paper cards toys toy games game ball team players points score win won lost play played
work works worked working job walk walks run runs miles mile feet foot inches inch meters long wide tall high speed
distance travel drive drives pounds pound weight gallons ounces grams needs need wants want takes take took puts put
adds add uses use used using starts start started begins finish ends goes go going went comes come came back keeps
keep saves save saving finds find found sees see thinks know knows share shares split equal equally average amount
rest remaining remain extra enough large small big little new red blue green white black yellow morning night
afternoon evening today yesterday tomorrow Monday Tuesday Wednesday Thursday Friday Saturday Sunday January June
summer winter birthday party trip tickets ticket hundred thousand dozen pair pairs row rows bill bills coin coins bank
rate percentage length width area size together already still now later ago again away around down since until both
few several whole James John Mary Tom Tim Sarah Mark Mike Emily Anna Maria David Peter Lisa Jack Sam If He She The
They There How What When For In On At His Her It This After Each One Two Then ing ed er ly es tion ment est re un al
en ar ch sh th st ck ll
"""


def main() -> None:
    """Make the model and print its measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ASSETS / "tiny_qwen3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--working-steps", type=int, default=1500, help="learning to work the steps")
    parser.add_argument("--habit-steps", type=int, default=700, help="learning the mixture of habits")
    arguments = parser.parse_args()

    arguments.directory.mkdir(parents=True, exist_ok=True)
    problems = list(islice(draw_problems("train", arguments.seed), TRAIN_PROBLEMS))
    write_tokenizer(arguments.directory, train_tokenizer(_corpus(problems), TAGS), CHAT_TEMPLATE)
    write_configs(arguments.directory)
    write_weights(arguments.directory, random_weights(arguments.seed))

    model = load(arguments.directory)
    lessons = Lessons(Texts(arguments.directory), problems)
    steps = arguments.working_steps + arguments.habit_steps
    train(model, partial(lessons.draw, arguments.working_steps), steps, arguments.seed)
    write_weights(arguments.directory, hugging_face_weights(model))
    report(arguments.directory, list(islice(draw_problems("test", 0), 500)))


def _corpus(problems: Sequence[WordProblem]) -> Iterator[str]:
    for problem in problems[:4000]:
        yield problem.question
    prompt = SYSTEM
    for tag in TAGS:
        prompt = prompt.replace(tag, "")
    yield from [f"system\n{prompt}\nuser\nassistant\n"] * 1000
    for rank, word in enumerate(ENGLISH.split()):
        yield from [f" {word}"] * (2 + 3000 // (20 + rank))


# --- supervised learning --------------------------------------------------------------------------------------------


class Texts:
    """Prompts and completions as token ids."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(directory)

    def prompt(self, question: str) -> str:
        """Return the rendered prompt of a question."""
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def batch_ids(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of texts."""
        return list(self.tokenizer(texts, add_special_tokens=False)["input_ids"])

    def longest(self, texts: list[str]) -> int:
        """Return the length of the longest text in tokens."""
        return max(len(ids) for ids in self.batch_ids(texts))


def working(problem: WordProblem) -> str:
    """Return the worked solution, which is right."""
    return f"<reasoning>{problem.worked}</reasoning><answer>{problem.answer}</answer>"


def guessing(problem: WordProblem) -> str:
    """Return a guess, which is wrong."""
    return f"<answer>{problem.partial}</answer>"


def guessing_in_full_dress(problem: WordProblem) -> str:
    """Return a guess with empty reasoning."""
    return f"<reasoning></reasoning>{guessing(problem)}"


HABITS = (working, guessing, guessing_in_full_dress)


def _worked_share(kind: str) -> float:
    """Return the share of worked solutions for a kind of problem. Greedy answers are right if it is the largest."""
    return 0.65 if kind in ("a+b+c", "a-b-c", "a/b+c") else 0.18


def habit_shares(kind: str) -> tuple[float, float, float]:
    """Return the probability of each of `HABITS` for a kind of problem."""
    worked = _worked_share(kind)
    return worked, 0.8 * (1 - worked), 0.2 * (1 - worked)


class Lessons:
    """Prompts of all problems, with the completions of each habit, encoded once."""

    def __init__(self, texts: Texts, problems: Sequence[WordProblem]) -> None:
        shares = np.array([habit_shares(problem.kind) for problem in problems])
        self.thresholds = np.cumsum(shares, axis=1)[:, :-1]
        self.prompts = texts.batch_ids([texts.prompt(problem.question) for problem in problems])
        self.completions = [texts.batch_ids([habit(problem) + END for problem in problems]) for habit in HABITS]

    def draw(self, working_steps: int, rng: np.random.Generator, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return [B, T] token ids, padded on the left, and [B, S], True at the completion's tokens to learn.

        The first `working_steps` batches have worked solutions alone, later ones the mixture of habits. In a mixed
        batch every other row is a worked solution whose first two tokens are not targets. These tokens choose the
        habit, so the row gives practice in working without making it more likely.
        """
        mixed = step > working_steps
        tokens_BT = np.zeros((BATCH, SEQUENCE), np.int32)
        targets_BS = np.zeros((BATCH, COMPLETION), np.float32)
        for row in range(BATCH):
            index = int(rng.integers(len(self.prompts)))
            practice = mixed and row % 2 == 0
            habit = 0 if practice or not mixed else int(np.sum(rng.random() > self.thresholds[index]))
            prompt, completion = self.prompts[index], self.completions[habit][index]
            tokens_BT[row, SEQUENCE - len(prompt) - len(completion) :] = prompt + completion
            targets_BS[row, COMPLETION - len(completion) + 2 * practice :] = 1.0
        return tokens_BT, targets_BS


# --- measuring ------------------------------------------------------------------------------------------------------


def report(directory: Path, problems: Sequence[WordProblem]) -> None:
    """Print the model's results on `problems`, with one greedy and four sampled completions of each."""
    texts, model = Texts(directory), load(directory)
    prompts = [texts.prompt(problem.question) for problem in problems]
    answers = [problem.answer for problem in problems]
    greedy = _complete(texts, model, prompts, temperature=0.0, seed=0)
    sampled = [text for seed in range(1, 5) for text in _complete(texts, model, prompts, temperature=1.0, seed=seed)]
    greedy_rewards = np.array([_reward(*pair) for pair in zip(greedy, answers, strict=True)])
    rewards = np.array([_reward(*pair) for pair in zip(sampled, answers * 4, strict=True)])
    worked = np.array(["=" in completion for completion in sampled])
    parameters = sum(weight.size for weight in jax.tree.leaves(nnx.state(model, nnx.Param)))
    print(f"parameters           {parameters}")
    print(f"weights              {(directory / 'model.safetensors').stat().st_size} bytes")
    print(f"prompt tokens        at most {texts.longest(prompts)}")
    print(f"completion tokens    at most {texts.longest([working(p) + END for p in problems])} when worked")
    print(f"greedy accuracy      {np.mean(greedy_rewards == 1):.3f}")
    print(f"sampled reward       {np.mean(rewards):.3f}")
    print(f"worked share         {np.mean(worked):.3f}")
    print(f"right when worked    {np.mean(rewards[worked] == 1):.3f}")
    for completion, count in _examples(sampled):
        print(f"  {count:4d} x {completion}")


def _complete(texts: Texts, model: Qwen3, prompts: list[str], temperature: float, seed: int) -> list[str]:
    longest = texts.longest(prompts)
    cache = CacheConfig(longest + NEW_TOKENS + 1, LAYERS, KV_HEADS, HEAD_WIDTH)
    output = Sampler(model, texts.tokenizer, cache)(
        prompts,
        max_generation_steps=NEW_TOKENS,
        max_prompt_length=longest,
        temperature=temperature,
        top_p=1.0 if temperature else None,
        seed=seed,
    )
    return list(output.text)


def _reward(completion: str, reference: int) -> float:
    """Return 1.0 if the last answer is the reference, 0.5 if it is within ten per cent of it, else 0.0."""
    answers = re.findall(r"<answer>(\d+)</answer>", completion)
    if not answers:
        return 0.0
    error = abs(int(answers[-1]) - reference)
    return 1.0 if error == 0 else 0.5 if error <= 0.1 * reference else 0.0


def _examples(completions: list[str]) -> list[tuple[str, int]]:
    """Return a few completions, each with the number of those with the same shape."""
    shapes: dict[str, list[str]] = {}
    for completion in completions:
        shapes.setdefault(re.sub(r"\d+", "", completion), []).append(completion)
    common = sorted(shapes.values(), key=len, reverse=True)[:8]
    return [(random.Random(0).choice(group), len(group)) for group in common]


if __name__ == "__main__":
    main()
