"""Sampling of episodes whose tools are slow, with each schedule.

    python benchmarks/tool_latency.py [--episodes 32] [--turns 4] [--repeats 3]

A tool takes 0.2 s in the median and 3 s at the 99th percentile (a lognormal distribution). The time of a batch is
compared with two lower bounds. One is the slowest episode by itself: the sum of its tools' times and the time of
sampling one episode. The other is the whole batch with tools that answer at once.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.episodes import TURN_TOKENS, make_scenario

from agent_tunix.config.schema import Config, DistributedConfig, PromptConfig
from agent_tunix.startup import devices

WARM_UP = 4
WAITING = '''
import math, random, time

class Waiting:
    """Answers after a while; its score is the time that it has taken."""

    def __init__(self, scale: float) -> None:
        self.scale, self.seconds = scale, 0.0

    def reset(self, **row) -> str:
        return ""

    def step(self, action: str):
        seconds = self.scale * random.lognormvariate(math.log(0.2), math.log(15) / 2.326)
        time.sleep(seconds)
        self.seconds += seconds
        return "7", seconds, False, {}
'''


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    devices.prepare(DistributedConfig())
    import jax

    from agent_tunix.data.episode_prompts import EpisodeEncoder
    from agent_tunix.data.prompt_batch import PromptBatch
    from agent_tunix.environments import EnvironmentRecipe
    from agent_tunix.environments.running import EnvironmentSet, HostingLimits, make_recipes
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.policy.mesh import make_mesh
    from agent_tunix.policy.model import load_policy
    from agent_tunix.sampling.episodes import EpisodeLimits, EpisodeSampler
    from agent_tunix.sampling.sampler import Sampler
    from agent_tunix.sampling.token_choice import SamplingParams

    generations = 4
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        scenario = make_scenario("short", directory, 1)
        (directory / "waiting.py").write_text(WAITING)
        tokenizer, mesh = Tokenizer(Path(scenario.model)), make_mesh([1, 1])
        sampler = Sampler(load_policy(Path(scenario.model), Config().model, mesh), tokenizer, mesh)
        encoder = EpisodeEncoder(tokenizer, PromptConfig())

        def sample(schedule: str, scale: float, count: int) -> list[tuple[float, float]]:
            """Return the times of sampling `count` episodes, and the longest time that the tools of one took."""
            recipe = EnvironmentRecipe(None, {"scale": scale}, working_directory=directory)
            recipes = make_recipes(f"{directory}/waiting.py:Waiting", [], recipe)
            limits = EpisodeLimits(
                arguments.turns, arguments.turns * (TURN_TOKENS + 16), 16, waits_for_all=schedule == "lockstep"
            )
            size = min(generations, count)
            texts = ["What is 1 plus 2?"] * (count // size)
            batch = PromptBatch(
                prompts=texts,
                messages=[[{"role": "user", "content": text}] for text in texts],
                token_ids=[[]] * len(texts),
                columns=[{}] * len(texts),
            )
            hosting = HostingLimits(execution="process", timeout_s=600.0, num_workers=count)
            with EnvironmentSet(recipes, hosting) as environments:
                episodes = EpisodeSampler(sampler, environments, encoder, limits)
                measured = []
                for number in range(WARM_UP + arguments.repeats):  # the first times start the workers and compile
                    started = time.perf_counter()
                    found = episodes.sample_batch(
                        batch,
                        jax.random.key(number),
                        SamplingParams(TURN_TOKENS),
                        num_generations=size,
                        max_prompt_length=96,
                    )
                    seconds = time.perf_counter() - started
                    scores = [one.score.value or 0.0 for one in found.episodes or () if one.score is not None]
                    measured.append((seconds, max(scores)))
            return measured[WARM_UP:]

        alone = statistics.median(seconds for seconds, _ in sample("lockstep", 0.0, 1))
        instant = statistics.median(seconds for seconds, _ in sample("lockstep", 0.0, arguments.episodes))
        print(f"instant tools: one episode {alone:.2f} s, {arguments.episodes} episodes {instant:.2f} s")
        for schedule in ("lockstep", "arrival"):
            ratios = [
                seconds / max(alone + slow, instant) for seconds, slow in sample(schedule, 1.0, arguments.episodes)
            ]
            print(
                f"  {schedule:9} median {statistics.median(ratios):.2f} ×, {' '.join(f'{one:.2f}' for one in ratios)}"
            )


if __name__ == "__main__":
    main()
