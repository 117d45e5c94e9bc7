"""The forms of `model.path`: a directory, or a model on a hub."""

import re
from dataclasses import dataclass, field, replace
from typing import Self

from agent_tunix.errors import ModelError

_FORMS = {
    "hf": "hf://owner/name or hf://owner/name@revision",
    "kaggle": "kaggle://owner/model/framework/variation or the same with /version",
    "gs": "gs://bucket/directory",
}
_NAMES = {
    "hf": re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^@\s]+))?"),
    "kaggle": re.compile(r"(?P<name>[\w.-]+/[\w.-]+/[\w.-]+/[\w.-]+)(?:/(?P<revision>\d+))?"),
    "gs": re.compile(r"(?P<name>[a-z0-9][\w.-]+/\S+?)/?(?:@(?P<revision>[0-9a-f]{16}))?"),
}
_EXACT = {"hf": re.compile(r"[0-9a-f]{40}"), "kaggle": re.compile(r"\d+"), "gs": re.compile(r"[0-9a-f]{16}")}
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Location:
    """A model on a hub.

    Attributes:
        scheme: hf, kaggle or gs.
        name: Name on the hub.
        revision: Revision of the model; None for the latest.
        setting: Key of the configuration, for messages.
    """

    scheme: str
    name: str
    revision: str | None
    setting: str = field(default="model.path", compare=False)

    @property
    def is_exact(self) -> bool:
        """True if the location always means the same bytes: a commit, a version or a digest."""
        return self.revision is not None and _EXACT[self.scheme].fullmatch(self.revision) is not None

    def at(self, revision: str) -> Self:
        """Return the same model at a revision."""
        return replace(self, revision=revision)

    def may_become(self, other: "Location") -> bool:
        """Return True if this location, which is not exact, may have meant `other` at some time."""
        return (self.scheme, self.name) == (other.scheme, other.name) and not self.is_exact and other.is_exact

    def __str__(self) -> str:
        """Return the location as it is written in `model.path`."""
        mark = "/" if self.scheme == "kaggle" else "@"
        return f"{self.scheme}://{self.name}" + (f"{mark}{self.revision}" if self.revision else "")


def parse_location(path: str | None, setting: str = "model.path") -> Location | None:
    """Return the model on a hub that a path names, or None if it names a directory or is not set.

    Args:
        path: The path.
        setting: Key of the path, for messages.

    Raises:
        ModelError: The path looks like an address but is invalid.
    """
    match = _SCHEME.fullmatch(path or "")
    if match is None:
        return None
    scheme, rest = match[1].lower(), match[2]
    if scheme not in _NAMES:
        page = re.fullmatch(r"(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)/?.*", rest)
        advice = f"write hf://{page[1]}" if page else f"give a directory, {', '.join(_FORMS.values())}"
        raise ModelError(f"{setting}={path} is not the address of a model; {advice}", code="invalid_address")
    named = _NAMES[scheme].fullmatch(rest)
    # With such parts, the path in the cache would lead out of the cache.
    if named is None or not {".", ".."}.isdisjoint(rest.replace("@", "/").split("/")):
        raise ModelError(f"{setting} must be {_FORMS[scheme]}, not {path}", code="invalid_address")
    return Location(scheme, named["name"], named["revision"], setting)
