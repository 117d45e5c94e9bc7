"""Python client of the service.

    with Client("http://127.0.0.1:8400", "vk_…") as client:
        record = client.create("brevity", Path("brevity.py").read_bytes(), "trl")
        print(client.try_reward(record.id, [{"completions": ["4"]}])["data"][0]["value"])

Methods, values and errors are those of the store (`agent_tunix.store`), so code works with or without a server. The
client needs httpx, from the extra `service`.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx

from agent_tunix.closing import Closing
from agent_tunix.errors import (
    AccessDeniedError,
    NameTakenError,
    NotStoredError,
    StoreError,
    StoreRequestError,
    UploadError,
)
from agent_tunix.proxies import describe_proxy, is_loopback, problem_with_proxies
from agent_tunix.rewards.uploaded import is_function_id
from agent_tunix.store.home import shown_url
from agent_tunix.store.records import Format, Page, RewardFunctionRecord

TIMEOUT_S = 60.0

_PATH = "/v1/reward_functions"
_ATTEMPTS = 4
_LONGEST_WAIT_S = 10.0
_PAUSE_S = 1.0
# The connection broke before the answer arrived.
_LOST = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class Client(Closing):
    """Client for the reward functions of a server.

    If the server refuses a request with 429, the client repeats it a few times, after the delay that the server names.
    After 503 or a lost answer, the client repeats only reads and uploads with `if_changed`, which are safe to repeat.

    Args:
        url: Address of the server, without `/v1`.
        key: API key of the server: `vk_…`.
        timeout_s: Longest wait for the connection and for each part of an answer.

    Raises:
        StoreError: The URL or the key cannot be used.
    """

    def __init__(self, url: str, key: str, timeout_s: float = TIMEOUT_S) -> None:
        self._shown = shown_url(url)
        if not key.strip():
            raise StoreError(f"{self._shown} requires a key, but it is empty; give one from `agent-tunix keys create`")
        if problem := problem_with_proxies(url):
            raise StoreError(f"{self._shown} cannot be reached: {problem}", code="unreachable_server")
        try:
            self._http = httpx.Client(
                base_url=url.rstrip("/"),
                headers={"Authorization": f"Bearer {key}"},
                timeout=timeout_s,
                verify=httpx.create_ssl_context(),  # also without `trust_env`, SSL_CERT_FILE counts
                trust_env=not is_loopback(url),
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise StoreError(
                f"{self._shown!r} and the key cannot be used ({error}); give http://HOST:PORT and vk_…",
                code="unreachable_server",
            ) from error
        self._proxy = describe_proxy(url)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def create(
        self, name: str, source: bytes, format: Format, if_changed: bool = False, function: str = "reward"
    ) -> RewardFunctionRecord:
        """Upload a file. If the name is yours already, the file becomes its next version.

        Args:
            name: At most 64 letters, digits, `_`, `.` and `-`.
            source: The file's bytes.
            format: Convention by which the function is called.
            if_changed: Make no new version if the newest one has the same file, but return that one. This makes it safe
                to repeat the upload if its answer is lost.
            function: Name of the function in the file.

        Raises:
            UploadError: The file or the name cannot be used.
            NameTakenError: The name belongs to another key.
            AccessDeniedError: The key is not valid, or may not write.
            StoreError: The server cannot be reached, or failed.
        """
        fields = {"name": name, "format": format, "function": function}
        fields |= {"if_changed": "true"} if if_changed else {}
        files = {"file": ("reward.py", source, "text/x-python")}
        try:
            return _record(self._ask("POST", _PATH, may_repeat=if_changed, data=fields, files=files))
        except (AccessDeniedError, NameTakenError):
            raise
        except StoreRequestError as error:
            raise UploadError(error.code, str(error), error.param) from None

    def get(self, id: str) -> RewardFunctionRecord:
        """Return the reward function with an id; raise NotStoredError if there is none."""
        return _record(self._ask("GET", _path(id)))

    def latest(self, name: str) -> RewardFunctionRecord:
        """Return the newest version of a name; raise NotStoredError if there is none."""
        records = self.list(1, name=name).data
        if not records:
            raise NotStoredError("reward_function_not_found", f"there is no reward function named {name!r}", "name")
        return records[0]

    def versions(self, name: str, limit: int = 20, after: str | None = None) -> Page[RewardFunctionRecord]:
        """Return the versions of a name, newest first; an empty page for an unknown name."""
        return self.list(limit, after, name)

    def list(self, limit: int = 20, after: str | None = None, name: str | None = None) -> Page[RewardFunctionRecord]:
        """Return a page of reward functions, newest first.

        Args:
            limit: Maximum number, 1 to 100.
            after: Return only functions older than the one with this id.
            name: Return only functions with this name.

        Raises:
            StoreRequestError: `limit` is out of range, or `after` was never the id of a function.
        """
        filters = {"limit": limit, "after": after, "name": name}
        data = self._ask("GET", _PATH, params={key: value for key, value in filters.items() if value is not None})
        with _understood():
            return Page([RewardFunctionRecord.from_data(one) for one in data["data"]], bool(data["has_more"]))

    def source(self, id: str) -> bytes:
        """Return the bytes of the uploaded file; raise NotStoredError if there is none."""
        return self._send("GET", f"{_path(id)}/source").content

    def delete(self, id: str) -> None:
        """Delete one version; raise NotStoredError if there is none, or if it belongs to another key."""
        self._ask("DELETE", _path(id))

    def try_reward(self, id: str, rows: Iterable[Mapping[str, Any]], step: int = 0) -> dict[str, Any]:
        """Score completions with a function on the server.

        Args:
            id: Id of the function.
            rows: Mappings with `completions`, a list of texts, and optionally `prompt`, `answer` and `columns`.
            step: Training step passed to the function.

        Returns:
            The answer of the API, with a score for each completion under `data`.

        Raises:
            StoreRequestError: The rows cannot be used, or the function cannot be called with them.
        """
        return self._ask("POST", f"{_path(id)}/try", json={"rows": [dict(row) for row in rows], "step": step})

    def _ask(self, method: str, path: str, may_repeat: bool = False, **content: Any) -> dict[str, Any]:
        with _understood():
            return dict(self._send(method, path, may_repeat, **content).json())

    def _send(self, method: str, path: str, may_repeat: bool = False, **content: Any) -> httpx.Response:
        """Return the answer to a request. A request that changes something is repeated only with `may_repeat`.

        The server may have made a change even if it answered 503, or if no answer arrived.
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
                    f"{self._shown} cannot be reached{self._proxy}: {error or type(error).__name__}",
                    code="unreachable_server",
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
                f"{self._shown} must be the address of `agent-tunix serve`, but answered with status "
                f"{response.status_code} and an unknown body; check the address",
                code="unreachable_server",
            )
        kind = _KINDS.get(response.status_code)
        if kind is not None:
            return kind(code, message, param)
        return StoreError(f"{self._shown} refused ({response.status_code}, {code}): {message}")


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
    """Raise StoreError for an answer that does not have the form of a store's answer."""
    try:
        yield
    except StoreError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(
            f"the server must answer as a reward store, but sent an unexpected answer: {error!r}",
            code="unreachable_server",
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
        return min(max(0.0, float(response.headers["Retry-After"])), _LONGEST_WAIT_S)  # max makes NaN 0
    except (KeyError, ValueError):
        return _PAUSE_S
