import subprocess
import sys

HEAVY = "jax tensorflow transformers hydra omegaconf math_verify yaml pydantic httpx openai tenacity agent_tunix.config"


def test_neither_importing_rewards_nor_scoring_with_every_builtin_loads_anything_heavy() -> None:
    program = f"""
import sys
from agent_tunix.rewards import get_reward_function
print([name for name in {HEAVY!r}.split() if name in sys.modules])
from agent_tunix.rewards.builtin import BUILTINS
columns = {{"tests": ["assert True"], "schema": {{}}, "sources": ["a"]}}
for name in [name for name, builtin in BUILTINS.items() if not builtin.library]:
    get_reward_function(name)("4", answer="B" if name == "multiple_choice" else "4", step=1, **columns)
print([name for name in {HEAVY!r}.split() if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split("\n") == ["[]", "[]", ""]
