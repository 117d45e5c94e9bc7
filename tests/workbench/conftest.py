"""Rewards registered by a test are forgotten after it."""

from tests.rewards.conftest import no_registration_outlives_its_test

__all__ = ["no_registration_outlives_its_test"]
