"""A stranger's run and one of the user's own; tests/cli/test_foreign_runs.py has every attack."""

from tests.cli.test_foreign_runs import EVIL, World, invoke, refused, world, written
from tests.raising import raises

from agent_tunix.config.compose import from_yaml
from agent_tunix.errors import ConfigError

__all__ = ["world", "written"]  # fixtures


def test_the_reward_file_of_a_strangers_run_is_told_and_not_used(world: World) -> None:
    (world.run / "evil.py").write_text(EVIL)
    world.configure({"training.reward_function": "run/evil.py:reward"})
    ran = invoke("rewards", "replay", "run")
    assert refused(ran), ran.output
    assert not world.canary.exists()


def test_the_reward_file_of_ones_own_run_is_used(world: World) -> None:
    (world.run / "evil.py").write_text(EVIL)
    world.configure({"training.reward_function": "run/evil.py:reward"})
    world.sign()
    invoke("rewards", "replay", "run")
    assert world.canary.exists()


def test_an_interpolation_in_a_strangers_run_is_an_error(world: World) -> None:
    world.configure({"project_name": "${oc.env:SECRET_OF_MINE}"})
    with raises(ConfigError, "stored_interpolation"):
        from_yaml(world.run / "config.yaml")
