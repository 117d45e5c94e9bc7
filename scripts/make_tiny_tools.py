"""Generator of the embedded model that calls tools: a tiny Qwen3 with its tokenizer, in a Hugging Face directory.

    PYTHONPATH=src python scripts/make_tiny_tools.py

Steps:

1. Train a byte-level BPE tokenizer on prompts and tool calls; it has about 420 tokens. Every digit is a token, and the
   JSON around the arguments of a call is a few tokens.
2. Train a randomly initialised Qwen3 (3 layers, width 96, about 290,000 parameters, float32) by supervised learning on
   episodes with the tools `calculator` and `guess`. First it learns to make calls and to use their results. Then half
   of each batch continues that practice, and half teaches which habit to choose:

   - arithmetic: guessing, the most frequent: `<answer>133</answer>`, the sum of the numbers and so always wrong;
     or calling the calculator, less frequent, and copying its result, which is right.
   - finding a number: guessing any number without regard to the hints, the most frequent; giving up with any answer;
     or writing down the remaining range and guessing the middle, less frequent and better: `Between 6 and 10`, then 8.
3. Write the directory, load it through Tunix, and print measurements on episodes with unseen problems.

The same seed on the same machine gives the same weights; rounding may differ between machines. Two cores take about
ten minutes.
"""

import argparse
import functools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tiny_models import (
    ASSETS,
    END,
    PATTERN,
    START,
    hugging_face_weights,
    load,
    random_weights,
    train,
    train_tokenizer,
    write_configs,
    write_tokenizer,
    write_weights,
)
from tunix.models.qwen3.model import Qwen3

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.generated.arithmetic import ArithmeticProblem, draw_arithmetic
from agent_tunix.data.generated.numbers import HIGH, LOW, make_numbers
from agent_tunix.environments import EnvironmentAdapter, EpisodeResult, Message, resolve_environment, run_episode
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.rewards import get_reward_function

SYSTEM = "Give the result between <answer> and </answer>."
TAGS = ("<answer>", "</answer>", "<tool_call>", "</tool_call>")
CHAT_TEMPLATE = r"""
{%- macro declare(tools) -%}
    {{- 'Tools:' }}
    {%- for tool in tools %}
        {%- set function = tool.function or tool %}
        {{- '\n' + function.name + '(' }}
        {%- for name, schema in ((function.parameters or {}).properties or {}) | items %}
            {{- '' if loop.first else ', ' }}
            {{- name + ': ' + (schema.type if schema.type is string else 'any') }}
        {%- endfor %}
        {{- ')' }}
    {%- endfor %}
{%- endmacro %}
{%- if tools and messages[0].role != 'system' %}
    {{- '<|im_start|>system\n' + declare(tools) + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + (message.content or '') }}
    {%- if tools and loop.first and message.role == 'system' %}
        {{- ('\n' if message.content else '') + declare(tools) }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
        {%- set function = call.function or call %}
        {{- '' if loop.first and not message.content else '\n' }}
        {{- '<tool_call>\n{"name": "' + function.name + '", "arguments": ' }}
        {{- function.arguments if function.arguments is string else function.arguments | tojson }}
        {{- '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
""".strip()
# Pieces of the JSON of a call, and operators between spaces, before those of the first embedded model.
TOOL_PATTERN = r'\{"name": "|", "arguments": \{"|": "?|"?\}\}[\r\n]*| [-+*/] |' + PATTERN

CALLING = 0.2  # share of arithmetic problems for which the calculator is called
GIVING_UP, WORKING = 0.2, 0.3  # share of turns that give up; share of the other turns that use the hints
WITHOUT_TOOLS = 0.1  # share of arithmetic problems without a declared tool, which are guessed
MOST_TURNS = 6
MOST_TURN = 32  # maximum tokens of a measured turn

TRAIN_PROBLEMS = 20_000
ARITHMETIC_BATCH, NUMBERS_BATCH = 16, 8
DIVISOR = 250.0  # about the tokens to learn in a batch
# Tokens of the longest episode, and of its part after the shortest prompt.
ARITHMETIC_LENGTHS, NUMBERS_LENGTHS = (92, 48), (240, 182)


def main() -> None:
    """Make the model and print its measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ASSETS / "tiny_tools")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skill-steps", type=int, default=1600, help="learning to call tools and to use their results")
    parser.add_argument("--habit-steps", type=int, default=800, help="learning the mixture of habits")
    parser.add_argument("--report", action="store_true", help="only measure the model in the directory")
    arguments = parser.parse_args()

    if not arguments.report:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        problems = list(islice(draw_arithmetic("train", arguments.seed), TRAIN_PROBLEMS))
        tokenizer = train_tokenizer(_corpus(problems), TAGS, pattern=TOOL_PATTERN)
        write_tokenizer(arguments.directory, tokenizer, CHAT_TEMPLATE)
        write_configs(arguments.directory, tokenizer.get_vocab_size())
        write_weights(arguments.directory, random_weights(arguments.seed, tokenizer.get_vocab_size()))

        model = load(arguments.directory)
        lessons = Lessons(arguments.directory, problems, arguments.skill_steps)
        train(model, lessons.draw, arguments.skill_steps + arguments.habit_steps, arguments.seed, DIVISOR)
        write_weights(arguments.directory, hugging_face_weights(model))
    report(arguments.directory)


# --- texts ----------------------------------------------------------------------------------------------------------


def calculator() -> EnvironmentAdapter:
    """Return the environment of arithmetic."""
    return resolve_environment("calculator")


def guess_number() -> EnvironmentAdapter:
    """Return the environment of the game of finding a number."""
    return resolve_environment("guess_number", args={"low": LOW, "high": HIGH})


def _corpus(problems: Sequence[ArithmeticProblem]) -> list[str]:
    """Return the texts of the tokenizer: all words of prompts, calls and results, without tags."""
    system = SYSTEM
    for tag in TAGS:
        system = system.replace(tag, "")
    called = [
        '\n{"name": "calculator", "arguments": {"expression": "47 * 86"}}\n',
        '\n{"name": "guess", "arguments": {"number": 7}}\n',
    ]
    opening = (
        f"system\n{system}\nTools:\ncalculator(expression: string)\nguess(number: integer)\nuser\nassistant\ntool\n"
    )
    hint = "I have chosen a whole number between 1 and 10. Find it with few guesses."
    questions = [row["question"] for split in ("train", "test") for row in make_numbers(split, 200, 0)]
    questions += [problem.question for problem in problems[:2000]]
    return [*questions, *[opening, *called, f"\n\n{hint}", "higher", "lower", "right", "Between 6 and 10\n"] * 1000]


class Texts:
    """Token ids of prompts and of pieces of episodes."""

    def __init__(self, directory: Path) -> None:
        self._tokenizers = {
            name: Tokenizer(directory, PromptConfig(template_args={"tools": tools}))
            for name, tools in {
                "calculator": declarations(calculator(), {}),
                "guess": declarations(guess_number(), {"target": LOW}),
                "": None,
            }.items()
        }

    def prompt(self, tool: str, question: str) -> list[int]:
        """Return the prompt of a question with a tool declared; "" for none."""
        return self.turns(tool, [{"role": "user", "content": question}])

    def turns(self, tool: str, messages: Sequence[Message]) -> list[int]:
        """Return a conversation without its system message, up to the start of the model's turn."""
        tokenizer = self._tokenizers[tool]
        return tokenizer.encode(tokenizer.render_chat([{"role": "system", "content": SYSTEM}, *messages]))

    @functools.cache  # noqa: B019  # one object in a process
    def piece(self, text: str) -> list[int]:
        """Return the ids of a piece of an episode. It must begin and end between two tokens."""
        return self._tokenizers[""].encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a turn."""
        return self._tokenizers[""].decode(ids)


def declarations(adapter: EnvironmentAdapter, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tools of an environment, as chat templates take them."""
    environment = adapter.open()
    environment.reset(row, 0)
    tools = [tool.declaration() for tool in environment.tools]
    environment.close()
    return tools


# --- supervised learning --------------------------------------------------------------------------------------------


@dataclass
class Transcript:
    """Token ids of an episode, and which of them are to be learned."""

    texts: Texts
    ids: list[int]
    learned: list[bool]

    def add(self, text: str, learned: bool = True) -> None:
        """Append a piece."""
        ids = self.texts.piece(text)
        self.ids += ids
        self.learned += [learned] * len(ids)

    def add_call(self, name: str, key: str, value: str, quote: str, chosen: bool, learned: bool) -> None:
        """Append a call. With `chosen` its first token is to be learned, with `learned` its value."""
        self.add("<tool_call>", chosen)
        self.add(f'\n{{"name": "{name}", "arguments": {{"{key}": {quote}')
        self.add(value, learned)
        self.add(f"{quote}}}}}\n</tool_call>{END}")

    def add_result(self, text: str) -> None:
        """Append the result of a call, up to the start of the model's turn."""
        self.add(f"\n{START}tool\n", False)
        self.add(text, False)
        self.add(f"{END}\n{START}assistant\n", False)

    def add_answer(self, answer: int, chosen: bool = True) -> None:
        """Append an answer. With `chosen` its first token is to be learned."""
        self.add("<answer>", chosen)
        self.add(str(answer))
        self.add(f"</answer>{END}")


class Lessons:
    """Batches of episodes."""

    def __init__(self, directory: Path, problems: Sequence[ArithmeticProblem], skill_steps: int) -> None:
        self._texts = texts = Texts(directory)
        self._problems = problems
        self._skill_steps = skill_steps
        self._prompts = {
            tool: [texts.prompt(tool, problem.question) for problem in problems] for tool in ("calculator", "")
        }
        environment = guess_number().open()
        hint = environment.reset({"target": LOW}, 0)
        questions = {row["question"] for row in make_numbers("train", 100, 0)}
        self._games = [texts.prompt("guess", f"{question}\n\n{hint}") for question in sorted(questions)]
        environment.close()

    def draw(self, rng: np.random.Generator, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch of arithmetic or, every other time, of games, as `train` takes it.

        The first `skill_steps` batches have good habits alone. Afterwards every other row is practice, in which the
        tokens that choose a habit are not targets, so it makes no habit more likely.
        """
        mixed = step > self._skill_steps
        if step % 2 == 0:
            rows = [self._arithmetic(rng, mixed and row % 2 == 0) for row in range(ARITHMETIC_BATCH)]
            return _padded(rows, *ARITHMETIC_LENGTHS)
        rows = [self._game(rng, mixed, mixed and row % 2 == 0) for row in range(NUMBERS_BATCH)]
        return _padded(rows, *NUMBERS_LENGTHS)

    def _arithmetic(self, rng: np.random.Generator, choosing: bool) -> Transcript:
        index = int(rng.integers(len(self._problems)))
        problem = self._problems[index]
        tool = "" if choosing and rng.random() < WITHOUT_TOOLS else "calculator"
        prompt = self._prompts[tool][index]
        transcript = Transcript(self._texts, list(prompt), [False] * len(prompt))
        if choosing and (not tool or rng.random() > CALLING):
            transcript.add_answer(sum(problem.numbers))
            return transcript
        transcript.add_call("calculator", "expression", problem.expression, '"', choosing, True)
        # In practice the result is any number, so that only copying can be right.
        result = problem.answer if choosing else int(10 ** rng.uniform(2, 5))
        transcript.add_result(str(result))
        transcript.add_answer(result)
        return transcript

    def _game(self, rng: np.random.Generator, mixed: bool, choosing: bool) -> Transcript:
        prompt = self._games[int(rng.integers(len(self._games)))]
        transcript = Transcript(self._texts, list(prompt), [False] * len(prompt))
        target, low, high = int(rng.integers(LOW, HIGH + 1)), LOW, HIGH
        for _ in range(MOST_TURNS):
            if choosing and rng.random() < GIVING_UP:
                transcript.add_answer(int(rng.integers(LOW, HIGH + 1)))
                return transcript
            working = rng.random() < (WORKING if choosing else 0.5)
            if working:
                transcript.add("Between", choosing)
                transcript.add(f" {low} and {high}\n")
            number = (low + high) // 2 if working else int(rng.integers(LOW, HIGH + 1))
            transcript.add_call("guess", "number", str(number), "", working or choosing, mixed or working)
            if number == target:
                transcript.add_result("right")
                transcript.add_answer(number)
                return transcript
            transcript.add_result("higher" if number < target else "lower")
            low, high = (max(low, number + 1), high) if number < target else (low, min(high, number - 1))
        return transcript


def _padded(rows: Sequence[Transcript], length: int, scored: int) -> tuple[np.ndarray, np.ndarray]:
    tokens_BT = np.zeros((len(rows), length), np.int32)
    learned_BT = np.zeros((len(rows), length), np.float32)
    for number, row in enumerate(rows):
        tokens_BT[number, length - len(row.ids) :] = row.ids
        learned_BT[number, length - len(row.ids) :] = row.learned
    return tokens_BT, learned_BT[:, -scored:]


# --- measuring ------------------------------------------------------------------------------------------------------


class Player:
    """The model as a policy of `run_episode`.

    Attributes:
        longest: Tokens of the longest prompt, turn and episode.
    """

    def __init__(self, texts: Texts, model: Qwen3, tool: str, temperature: float, length: int) -> None:
        self.longest = {"prompt": 0, "turn": 0, "episode": 0}
        self._texts = texts
        self._tool = tool
        self._length = length
        self._key = jax.random.key(0)
        self._write, self._weights = _writer(model, texts.piece(END)[0], temperature, length)

    def __call__(self, messages: list[Message]) -> str:
        """Return the text of the next turn; "", which ends the episode, if there is no room for it."""
        ids = self._texts.turns(self._tool, messages)
        if len(ids) + MOST_TURN > self._length:
            return ""
        padded = np.zeros(self._length, np.int32)
        padded[: len(ids)] = ids
        self._key, key = jax.random.split(self._key)
        tokens_T, end = self._write(self._weights, padded, len(ids), key)
        turn = np.asarray(tokens_T)[len(ids) : int(end)].tolist()
        prompt = len(ids) if len(messages) == 1 else 0
        for name, tokens in {"prompt": prompt, "turn": len(turn), "episode": int(end)}.items():
            self.longest[name] = max(self.longest[name], tokens)
        return self._texts.decode(turn)


def _writer(model: Qwen3, end_id: int, temperature: float, length: int) -> tuple[Callable[..., Any], Any]:
    """Return a function that writes a turn into padded ids, and the weights it takes. It keeps no cache."""
    graph, weights = nnx.split(model)
    mask_TT = jnp.tril(jnp.ones((length, length), bool))[None]

    def next_id(weights: Any, tokens_T: jax.Array, place: jax.Array, key: jax.Array) -> jax.Array:
        network = nnx.merge(graph, weights)
        x = network.embedder.encode(tokens_T[None])
        for layer in network.layers:
            _, x = layer(x, jnp.arange(length)[None], None, mask_TT)
        last = jax.lax.dynamic_slice_in_dim(network.final_norm(x), place - 1, 1, axis=1)
        logits = network.embedder.decode(last)[0, 0]
        if temperature == 0.0:
            return jnp.argmax(logits)
        return jax.random.categorical(jax.random.fold_in(key, place), logits / temperature)

    @jax.jit
    def write(weights: Any, tokens_T: jax.Array, start: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def goes_on(state: tuple[jax.Array, jax.Array]) -> jax.Array:
            tokens_T, place = state
            return (place == start) | ((tokens_T[place - 1] != end_id) & (place < start + MOST_TURN))

        def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            tokens_T, place = state
            return tokens_T.at[place].set(next_id(weights, tokens_T, place, key)), place + 1

        written: tuple[jax.Array, jax.Array] = jax.lax.while_loop(goes_on, step, (tokens_T, start))
        return written

    return write, weights


def report(directory: Path) -> None:
    """Print the model's results in episodes with unseen problems."""
    texts, model = Texts(directory), load(directory)
    parameters = sum(weight.size for weight in jax.tree.leaves(nnx.state(model, nnx.Param)))
    print(f"parameters           {parameters}")
    print(f"bytes                {sum(file.stat().st_size for file in directory.iterdir())}")
    problems = list(islice(draw_arithmetic("test", 0), 400))
    rows = [problem.as_row() for problem in problems]
    for name, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        player = Player(texts, model, "calculator", temperature, 160)
        _report_arithmetic(name, play(calculator(), player, rows, 4), rows)
        print(f"  longest            {player.longest}")
    player = Player(texts, model, "", 1.0, 128)
    results = play(calculator(), player, rows[:100], 1)
    print(f"without a tool       {np.mean([not result.calls for result in results]):.3f} guess")

    rows = make_numbers("test", 400, 0)
    player = Player(texts, model, "guess", 1.0, 272)
    results = play(guess_number(), player, rows, MOST_TURNS)
    scores = [result.score.value or 0.0 for result in results if result.score is not None]
    print(f"guess_number score   {np.mean(scores):.3f}, found {np.mean(np.array(scores) > 0):.3f}")
    print(f"  stop reasons       {dict(Counter(result.stop_reason.value for result in results))}")
    print(f"  longest            {player.longest}")
    turns = [message["content"] for result in results for message in result.messages[1:] if message["role"] != "tool"]
    print(f"  turns              {np.mean(['Between' in turn for turn in turns]):.3f} use the hints, of {len(turns)}")
    _report_guesses(results)


def play(
    adapter: EnvironmentAdapter, policy: Callable[[list[Message]], str], rows: Sequence[dict[str, Any]], most_turns: int
) -> list[EpisodeResult]:
    """Return an episode for each row."""
    return [run_episode(adapter.open(), policy, row, seed=0, max_turns=most_turns) for row in rows]


def _report_arithmetic(name: str, results: Sequence[EpisodeResult], rows: Sequence[dict[str, str]]) -> None:
    reward = get_reward_function("math")
    pairs = zip(results, rows, strict=True)
    rewards = np.array([reward(result.messages[-1]["content"], answer=row["answer"]) or 0.0 for result, row in pairs])
    called = np.array([bool(result.calls) for result in results])
    print(f"arithmetic {name:9s} {np.mean(rewards):.3f} reward, {np.mean(rewards == 1):.3f} right")
    print(f"  called             {np.mean(called):.3f}, right then {np.mean([*(rewards[called] == 1)] or [0]):.3f}")
    print(f"  guessed, reward    {np.mean([*rewards[~called]] or [0]):.3f}")
    for result in random.Random(0).sample(list(results), 3):
        print("   ", " | ".join(_shown(message) for message in result.messages))


def _report_guesses(results: Sequence[EpisodeResult]) -> None:
    """Print the share of guesses that are the middle of the remaining range, by the number of the guess."""
    middles: dict[int, list[bool]] = {}
    for result in results:
        low, high = LOW, HIGH
        for call in result.calls:
            number = call.arguments.get("number", 0)
            middles.setdefault(call.turn, []).append(number == (low + high) // 2)
            if call.result.text == "higher":
                low = max(low, number + 1)
            elif call.result.text == "lower":
                high = min(high, number - 1)
    print("  guess the middle  ", ", ".join(f"{turn}: {np.mean(hits):.2f}" for turn, hits in sorted(middles.items())))
    for result in results[:4]:
        print("   ", " | ".join(_shown(message) for message in result.messages[1:]))


def _shown(message: Message) -> str:
    calls = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
    return " ".join([message["content"], *calls]).replace("\n", " ").strip()


if __name__ == "__main__":
    main()
