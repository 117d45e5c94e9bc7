"""Settings of TRL, verl and Tunix are answered by the key that does the same here."""

import pytest

from agent_tunix.config.checks import suggest_key
from agent_tunix.config.other_names import OTHER_NAMES, key_of_other_name
from agent_tunix.config.schema import Config

KEYS = {name: found if isinstance(found, str) else found[0] for name, found in OTHER_NAMES.items()}


@pytest.mark.parametrize("key", sorted({*KEYS.values()} - {"hydra.run.dir"}))
def test_each_leads_to_a_key_that_there_is(key: str) -> None:
    value = Config()
    for part in key.split("."):
        value = getattr(value, part)


@pytest.mark.parametrize("name", KEYS)
def test_the_key_is_named_first_in_whatever_group_the_name_is_written(name: str) -> None:
    for written in (name,) if "." in name else (name, f"training.{name}", f"grpo.{name}"):
        hint = suggest_key(written, Config)
        # A name that is a key here, in the group that it was written in, is no mistake.
        assert hint.startswith(f"; did you mean {KEYS[name]}?") or not hint, written


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("per_device_train_batch_size", "divide by grpo.num_generations"),
        ("trainer.total_training_steps", "total_training_steps: counts updates"),
        ("reward_funcs", "training.reward_function"),
        ("steps_per_generation", "no counterpart here: every update takes a whole batch"),
    ],
)
def test_a_difference_of_meaning_is_told(written: str, hint: str) -> None:
    assert hint in suggest_key(written, Config)


def test_another_name_is_left_to_the_spelling() -> None:
    assert key_of_other_name("training.batchsize") is None
