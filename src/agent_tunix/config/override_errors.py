"""Hydra's errors about overrides, in the words of this package."""

import re
import shlex

from agent_tunix.config.other_names import suggest_key
from agent_tunix.config.schema import Config
from agent_tunix.overrides import assign


def explain_override(error: Exception, text: str, schema: type) -> str | None:
    """Return a short message for Hydra's error about an override; None if the error is not a known one.

    Args:
        error: Hydra's error.
        text: Its message, and that of its cause.
        schema: Schema with the known keys.
    """
    if isinstance(override := getattr(error, "override", None), str):  # not in the grammar of overrides
        key, _, value = override.partition("=")
        quoted = shlex.quote(assign(key, value or "VALUE"))
        told = text.partition("\nSee ")[0]
        return f"{told}\nText with other characters than letters, digits and _ . / - needs its own quotes: {quoted}"
    if unknown := re.search(
        r"(?:Could not override|Could not delete from config\.|Error merging override) '?\+*([\w.]+)", text
    ):
        # Hydra suggests appending the key with `+`, but the check of the configuration refuses that.
        if nearest := suggest_key(unknown[1], schema):
            return f"there is no key {unknown[1]}{nearest}"
        if "To append to your config" in text:
            command = "train" if schema is Config else "evaluate"
            return f"there is no key {unknown[1]}; list all keys with `agent-tunix {command} --cfg job`"
    if no_choice := re.search(
        r"Could not find '(\w+)/(\S+)'\s+Available options in '\w+':((?:\s+\S+)+?)\s+Config search", text
    ):
        group, given, choices = no_choice.groups()
        return f"{group} must be one of {', '.join(choices.split())}, not {given!r}"
    if wrong := re.search(
        r"Error merging override '?\+*([\w.]+)=.*\nValue ('.*') of type '\w+' could not be converted to (\w+)", text
    ):
        key, value, kind = wrong.groups()
        return f"{key} must be of the type {kind.lower()}, not {value}"
    return None
