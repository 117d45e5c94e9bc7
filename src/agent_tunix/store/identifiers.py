"""Random identifiers and secrets, and the rule for names that users choose."""

import re
import secrets
import string

from agent_tunix.rewards.uploaded import FUNCTION_PREFIX

_ID_LENGTH = 24  # of base 32: 120 bits
_SECRET_LENGTH = 40  # of letters and digits: 238 bits
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_ALPHANUMERIC = string.ascii_letters + string.digits

KEY_PREFIX = "key_"
SECRET_PREFIX = "vk_"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SECRET = re.compile(rf"{SECRET_PREFIX}[A-Za-z0-9]{{{_SECRET_LENGTH}}}")


def new_function_id() -> str:
    """Return `rf_` and 24 random characters of lower-case base 32."""
    return FUNCTION_PREFIX + _draw(_BASE32, _ID_LENGTH)


def new_key_id() -> str:
    """Return `key_` and 24 random characters of lower-case base 32."""
    return KEY_PREFIX + _draw(_BASE32, _ID_LENGTH)


def new_secret() -> str:
    """Return `vk_` and 40 random letters and digits."""
    return SECRET_PREFIX + _draw(_ALPHANUMERIC, _SECRET_LENGTH)


def is_secret(text: object) -> bool:
    """Return True if a value has the form of a key's secret."""
    return isinstance(text, str) and _SECRET.fullmatch(text) is not None


def is_name(text: object) -> bool:
    """Return True if a value may name a reward function or a key; it must not start like a function's id."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and not text.startswith(FUNCTION_PREFIX)


NAME_RULE = "at most 64 letters, digits, `_`, `.` and `-`, starting with a letter or `_`, but not with `rf_`"


def _draw(alphabet: str, length: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(length))
