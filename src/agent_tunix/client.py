"""The service, from Python.

    with Client("http://127.0.0.1:8400", "vk_…") as client:
        made = client.create("brevity", Path("brevity.py").read_bytes(), "trl")
        print(client.try_reward(made.id, [{"completions": ["4"]}])["data"][0]["value"])

Methods, values and errors are those of the store (`agent_tunix.store`), so that it is used in the same way with a
server and without. It needs httpx, of the extra `service`.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from agent_tunix.errors import (
    AccessDeniedError,
    NameTakenError,
    NotStoredError,
    StoreError,
    StoreRequestError,
    UploadError,
)
from agent_tunix.store.identifiers import is_function_id
from agent_tunix.store.records import Format, Page, RewardFunctionRecord

TIMEOUT_S = 60.0

_PATH = "/v1/reward_functions"
_ATTEMPTS = 4
_LONGEST_WAIT_S = 10.0
_PAUSE_S = 1.0
# The connection broke before the answer had come.
_LOST = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class Client:
    """The reward functions of a server.

    What is refused because the server has too much to do is asked for again after as long as it says, a few times. So
    is what changes nothing, or nothing twice, where its answer is lost on the way.

    Args:
        url: Where it is, without `/v1`.
        key: A key of it: `vk_…`.
        timeout_s: How long an answer may take.

    Raises:
        StoreError: The URL cannot be used.
    """

    def __init__(self, url: str, key: str, timeout_s: float = TIMEOUT_S) -> None:
        self._url = url.rstrip("/")
        try:
            self._http = httpx.Client(base_url=self._url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout_s)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise StoreError(
                f"{url!r} and the key cannot be used ({error}); give http://HOST:PORT and vk_…", code="invalid_address"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self, name: str, source: bytes, format: Format, if_changed: bool = False) -> RewardFunctionRecord:
        """Upload a file; one's own name again gets the next version.

        Args:
            name: At most 64 letters, digits, `_`, `.` and `-`.
            source: The file's bytes.
            format: How its `reward` is called.
            if_changed: Where the name's newest version is the same file, give that one and make none; so the upload is
                made again where its answer was lost.

        Raises:
            UploadError: The file or the name cannot be used.
            NameTakenError: The name belongs to another key.
            AccessDeniedError: The key is not valid, or may not write.
            StoreError: The server cannot be reached, or failed.
        """
        fields = {"name": name, "format": format} | ({"if_changed": "true"} if if_changed else {})
        files = {"file": ("reward.py", source, "text/x-python")}
        try:
            return _record(self._ask("POST", _PATH, may_repeat=if_changed, data=fields, files=files))
        except (AccessDeniedError, NameTakenError):
            raise
        except StoreRequestError as error:
            raise UploadError(error.code, str(error), error.param) from None

    def get(self, id: str) -> RewardFunctionRecord:
        """The one of an id; NotStoredError if there is none."""
        return _record(self._ask("GET", _path(id)))

    def latest(self, name: str) -> RewardFunctionRecord:
        """The newest version of a name; NotStoredError if there is none."""
        found = self.list(1, name=name).data
        if not found:
            raise NotStoredError("reward_function_not_found", f"there is no reward function named {name!r}", "name")
        return found[0]

    def versions(self, name: str, limit: int = 20, after: str | None = None) -> Page[RewardFunctionRecord]:
        """The versions of a name, newest first; an unknown name has none."""
        return self.list(limit, after, name)

    def list(self, limit: int = 20, after: str | None = None, name: str | None = None) -> Page[RewardFunctionRecord]:
        """Some reward functions, newest first.

        Args:
            limit: At most so many, 1 to 100.
            after: Only those older than the one of this id.
            name: Only those of this name.

        Raises:
            StoreRequestError: `limit` is out of range, or `after` is no id that was ever given.
        """
        given = {"limit": limit, "after": after, "name": name}
        data = self._ask("GET", _PATH, params={key: value for key, value in given.items() if value is not None})
        with _understood():
            return Page([RewardFunctionRecord.from_data(one) for one in data["data"]], bool(data["has_more"]))

    def source(self, id: str) -> bytes:
        """The bytes of the file, as they were uploaded; NotStoredError if there is none."""
        return self._send("GET", f"{_path(id)}/source").content

    def delete(self, id: str) -> None:
        """Delete one version; NotStoredError if there is none, or it belongs to another key."""
        self._ask("DELETE", _path(id))

    def try_reward(self, id: str, rows: Iterable[Mapping[str, Any]], step: int = 0) -> dict[str, Any]:
        """Have a function score completions on the server.

        Args:
            id: Which.
            rows: Each with `completions`, a list of texts, and, if wanted, `prompt`, `answer` and `columns`.
            step: The training step that it is told.

        Returns:
            What the API answers: under `data` a score for each completion.

        Raises:
            StoreRequestError: The rows cannot be used, or the function cannot be called with them.
        """
        return self._ask("POST", f"{_path(id)}/try", json={"rows": [dict(row) for row in rows], "step": step})

    def _ask(self, method: str, path: str, may_repeat: bool = False, **content: Any) -> dict[str, Any]:
        with _understood():
            return dict(self._send(method, path, may_repeat, **content).json())

    def _send(self, method: str, path: str, may_repeat: bool = False, **content: Any) -> httpx.Response:
        """The answer to a request; one that changes something is made again only if it may be.

        A change that was answered with 503, or not at all, may still have been made.
        """
        may_repeat = may_repeat or method == "GET"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = self._http.request(method, path, **content)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if may_repeat and attempt < _ATTEMPTS and isinstance(error, _LOST):
                    time.sleep(_PAUSE_S)
                    continue
                raise StoreError(
                    f"{self._url} cannot be reached: {error or type(error).__name__}", code="unreachable_server"
                ) from error
            if response.status_code < 400 and not response.is_redirect:
                return response
            is_transient = response.status_code == 429 or (response.status_code == 503 and may_repeat)
            if not is_transient or attempt == _ATTEMPTS:
                break
            time.sleep(_wait_s(response))
        raise self._error(response)

    def _error(self, response: httpx.Response) -> StoreError:
        try:
            error = response.json()["error"]
            code, message, param = str(error["code"]), str(error["message"]), error["param"]
        except (ValueError, KeyError, TypeError):
            return StoreError(
                f"{self._url} answered with status {response.status_code}, and not as a store does; look whether it is"
                " the address of `agent-tunix serve`",
                code="unexpected_answer",
            )
        kind = _KINDS.get(response.status_code)
        if kind is not None:
            return kind(code, message, param)
        return StoreError(f"{self._url} refused ({response.status_code}, {code}): {message}", code="refused_request")


_KINDS: dict[int, type[StoreRequestError]] = {
    400: StoreRequestError,
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotStoredError,
    409: NameTakenError,
    413: StoreRequestError,
}


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """Tell of an answer that is not a store's."""
    try:
        yield
    except StoreError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"what the server answered is not what a store does: {error!r}", code="unexpected_answer"
        ) from error


def _record(data: Mapping[str, Any]) -> RewardFunctionRecord:
    with _understood():
        return RewardFunctionRecord.from_data(data)


def _path(id: str) -> str:
    if not is_function_id(id):
        raise NotStoredError("reward_function_not_found", f"there is no reward function {id!r}", "id")
    return f"{_PATH}/{id}"


def _wait_s(response: httpx.Response) -> float:
    try:
        return min(float(response.headers["Retry-After"]), _LONGEST_WAIT_S)
    except (KeyError, ValueError):
        return _PAUSE_S
