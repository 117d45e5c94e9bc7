"""A server that speaks the Hugging Face hub's API, and misbehaves on demand.

It answers what `huggingface_hub` and `datasets` ask: what a repository is and which files it has, files by revision
(ranges too), new repositories, and commits, whose large files come by Git LFS. Left out is what a library never sends
to a hub of its own: Xet storage, pull requests, discussions, spaces; and trees with directories.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hubs.loopback import Files, LoopbackServer, send

LARGE = re.compile(r"\.(safetensors|bin|pt|parquet|arrow|gguf)$|^tokenizer\.json$")
TOKEN = "hf_loopback"


@dataclass
class Repository:
    """A repository and its history.

    Attributes:
        commits: Commit hash → files; the last one is `main`.
        private: True if it is seen only with a token.
        gated: True if its files are had only with a token in `accepted`.
        accepted: Tokens whose owners accepted the conditions.
        sizes: File → the size it is said to have, where that is not true.
        cuts: File → numbers of bytes after which the connection is closed, one for each time it is asked for.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    accepted: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[self.head]

    def commit(self, files: Files) -> str:
        """Make a commit in which these files are added or replaced, and return its hash."""
        whole = {**(self.files if self.commits else {}), **files}
        digest = hashlib.sha1(str(len(self.commits)).encode())
        for name in sorted(whole):
            digest.update(name.encode() + whole[name])
        self.commits[digest.hexdigest()] = whole
        return digest.hexdigest()

    def find(self, revision: str) -> str:
        """Return the commit that a branch or a hash means."""
        commit = self.head if revision in ("main", "HEAD") else revision
        if commit not in self.commits:
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit


class Asked(NamedTuple):
    """A request that came: `GET /api/models/owner/name`, and the token with it."""

    method: str
    path: str
    token: str | None


class Refusal(Exception):
    """An answer other than success, with the header by which the client knows the reason."""

    def __init__(self, status: int, code: str | None, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": message, **more}
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})


class LoopbackHub(LoopbackServer):
    """Models and datasets.

    Attributes:
        models: `owner/name` → repository.
        datasets: As `models`.
        tokens: Those that are valid.
        readers: Valid tokens that may not write.
        status: The status of every answer, if not 200.
        is_full: True if large files are refused.
        card_problems: What is wrong with the metadata of any model card.
        asked: What was asked for, in order.
        large: What came by LFS, by its hash.
    """

    def __init__(self) -> None:
        self.models: dict[str, Repository] = {}
        self.datasets: dict[str, Repository] = {}
        self.tokens = {TOKEN}
        self.readers: set[str] = set()
        self.status = 200
        self.is_full = False
        self.card_problems: list[str] = []
        self.asked: list[Asked] = []
        self.large: dict[str, bytes] = {}
        super().__init__()

    def add_model(self, repo_id: str, files: Files, **settings: Any) -> Repository:
        repository = self.models[repo_id] = Repository(**settings)
        repository.commit(files)
        return repository

    def add_dataset(self, repo_id: str, files: Files, **settings: Any) -> Repository:
        repository = self.datasets[repo_id] = Repository(**settings)
        repository.commit(files)
        return repository

    def downloads(self) -> list[str]:
        """Return the files whose content was asked for, in order."""
        gets = [asked.path for asked in self.asked if asked.method == "GET" and "/resolve/" in asked.path]
        return [path.partition("/resolve/")[2].partition("/")[2] for path in gets]

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        token = (handler.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        path = unquote(urlsplit(handler.path).path)
        self.asked.append(Asked(handler.command, path, token))
        try:
            if self.status != 200:
                raise Refusal(self.status, None, "The hub is ill")
            if token is not None and token not in self.tokens | self.readers:
                raise Refusal(401, None, "Invalid credentials in Authorization header")
            if match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                kind, repo_id, revision, name = match.groups()
                self._send_file(handler, "datasets" if kind else "models", repo_id, revision, name, token)
                return
            send(handler, 200, self._answer(path, body, token))
        except Refusal as refusal:
            send(handler, refusal.status, refusal.body, refusal.headers)

    def _answer(self, path: str, body: bytes, token: str | None) -> Any:
        if path == "/api/validate-yaml":
            if self.card_problems:
                raise Refusal(400, None, "Invalid metadata", errors=[{"message": text} for text in self.card_problems])
            return {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            return self._create(json.loads(body), token)
        if path.endswith(".git/info/lfs/objects/batch"):
            self._require_writer(token)
            objects = json.loads(body)["objects"]
            actions = [{"upload": {"href": f"{self.url}/lfs/{wanted['oid']}"}} for wanted in objects]
            return {
                "transfer": "basic",
                "objects": [{**o, "actions": a} for o, a in zip(objects, actions, strict=True)],
            }
        if match := re.fullmatch(r"/lfs/(\w+)", path):
            if self.is_full:
                raise Refusal(403, None, "Private repository storage limit reached")
            self.large[match[1]] = body
            return {}
        if match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(\w[\w-]*)(?:/([^/]+)(?:/(.*))?)?)?", path):
            kind, repo_id, what, revision, below = match.groups()
            repository = self._find(kind, repo_id, token)
            if what in ("preupload", "commit"):
                self._require_writer(token)
                return preupload(json.loads(body)) if what == "preupload" else self._commit(repository, repo_id, body)
            commit = repository.find(revision or "main")
            if what == "tree":
                if below:
                    raise Refusal(404, "EntryNotFound", f"{below} does not exist")
                return [entry(repository, *file) for file in repository.commits[commit].items()]
            if what == "paths-info":
                wanted = parse_qs(body.decode()).get("paths", []) if body[:1] != b"{" else json.loads(body)["paths"]
                return [entry(repository, *file) for file in repository.commits[commit].items() if file[0] in wanted]
            if what in (None, "revision"):
                return describe(repository, repo_id, commit)
        raise Refusal(404, None, f"{path} is not of this hub")

    def _find(self, kind: str, repo_id: str, token: str | None) -> Repository:
        repository = (self.datasets if kind == "datasets" else self.models).get(repo_id)
        if repository is None or (repository.private and token is None):
            if token is None:  # The hub does not tell the one from the other to a stranger. Where it speaks HTTPS, the
                raise Refusal(401, "RepoNotFound", "Invalid username or password.")  # client needs no such code.
            raise Refusal(404, "RepoNotFound", "Repository not found")
        return repository

    def _require_writer(self, token: str | None) -> None:
        if token is None:
            raise Refusal(401, None, "Invalid username or password.")
        if token in self.readers:
            raise Refusal(403, None, "Forbidden: you must use a write token to upload to a repository.")

    def _create(self, wanted: dict[str, Any], token: str | None) -> dict[str, str]:
        self._require_writer(token)
        repo_id = f"{wanted.get('organization') or 'owner'}/{wanted['name']}"
        url = f"{self.url}/{repo_id}"
        if repo_id in self.models:
            raise Refusal(409, None, "You already created this model repo", url=url)
        private = wanted.get("visibility") == "private" or bool(wanted.get("private"))
        self.add_model(repo_id, {".gitattributes": b""}, private=private)
        return {"url": url, "name": repo_id}

    def _commit(self, repository: Repository, repo_id: str, body: bytes) -> dict[str, Any]:
        files = {}
        for line in body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                content = self.large.get(value["oid"], b"")
                if hashlib.sha256(content).hexdigest() != value["oid"]:
                    raise Refusal(400, None, f"{value['path']} arrived incomplete")
                files[value["path"]] = content
        commit = repository.commit(files)
        return {"success": True, "commitOid": commit, "commitUrl": f"{self.url}/{repo_id}/commit/{commit}"}

    def _send_file(
        self, handler: BaseHTTPRequestHandler, kind: str, repo_id: str, revision: str, name: str, token: str | None
    ) -> None:
        repository = self._find(kind, repo_id, token)
        commit = repository.find(revision)
        if repository.gated and token not in repository.accepted:
            status = 401 if token is None else 403
            raise Refusal(status, "GatedRepo", f"Access to model {repo_id} is restricted.")
        content = repository.commits[commit].get(name)
        if content is None:
            raise Refusal(404, "EntryNotFound", "Entry not found")
        headers = {
            "X-Repo-Commit": commit,
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "Accept-Ranges": "bytes",
            "X-Linked-Size": str(repository.sizes.get(name, len(content))),
        }
        status = 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range") or ""):
            first, last = int(match[1]), int(match[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}"
            content, status = content[first : last + 1], 206
        cuts = repository.cuts.get(name)
        send(handler, status, content, headers, cuts.pop(0) if cuts and handler.command == "GET" else None)


def describe(repository: Repository, repo_id: str, commit: str) -> dict[str, Any]:
    files = repository.commits[commit]
    return {
        "id": repo_id,
        "sha": commit,
        "private": repository.private,
        "gated": "manual" if repository.gated else False,
        "siblings": [{"rfilename": name, "size": repository.sizes.get(name, len(files[name]))} for name in files],
    }


def preupload(wanted: Mapping[str, Any]) -> dict[str, Any]:
    paths = [file["path"] for file in wanted["files"]]
    modes = {path: "lfs" if LARGE.search(path) else "regular" for path in paths}
    return {
        "files": [{"path": path, "uploadMode": modes[path], "shouldIgnore": False, "oid": None} for path in paths],
    }


def entry(repository: Repository, name: str, content: bytes) -> dict[str, Any]:
    size = repository.sizes.get(name, len(content))
    described: dict[str, Any] = {
        "type": "file",
        "path": name,
        "size": size,
        "oid": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
    }
    if LARGE.search(name):
        described["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": size, "pointerSize": 130}
    return described
