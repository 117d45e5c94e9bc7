"""Upload of a directory to the Hugging Face hub as one commit, which is complete or absent."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from agent_tunix.errors import ModelError
from agent_tunix.hubs.huggingface import NEW_TOKEN, has_token, words_of
from agent_tunix.hubs.request import describe_size
from agent_tunix.proxies import describe_proxy, problem_with_proxies

_LOGGER = logging.getLogger("agent_tunix.hubs")


def push_directory(directory: Path, repo_id: str, *, private: bool = True, token: str | None = None) -> str:
    """Upload every file of a directory to a model repository of the hub, which is created if it does not exist.

    Files that only the repository has stay unchanged, and an existing repository keeps its visibility.

    Args:
        directory: Directory to upload, with its subdirectories; hidden files are left out.
        repo_id: `owner/name`.
        private: True to make a new repository private.
        token: A token with write access; None for HF_TOKEN, or the token of `hf auth login`.

    Returns:
        URL of the repository's page.

    Raises:
        ModelError: The hub refuses the upload or cannot be reached; the message names the remedy.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    files = {path.relative_to(directory).as_posix(): path for path in sorted(directory.rglob("*")) if path.is_file()}
    files = {name: path for name, path in files.items() if not name.startswith(".") and "/." not in name}
    if not files:
        raise ModelError(
            f"{directory} must contain files of a model, but there is nothing to push to {repo_id}; give a model "
            "directory"
        )
    check_push(repo_id, token)
    size = sum(path.stat().st_size for path in files.values())
    api = HfApi(token=token)
    with _explaining(repo_id):
        page = api.create_repo(repo_id, private=private, exist_ok=True)
        _LOGGER.info("pushing %d files (%s) to %s", len(files), describe_size(size), page)
        operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in files.items()]
        api.create_commit(repo_id, operations, commit_message="Add a model trained with agent_tunix")
    return str(page)


def check_push(repo_id: str, token: str | None = None) -> None:
    """Refuse a malformed name or a missing token before the hub is asked.

    The arguments are those of `push_directory`.

    Raises:
        ModelError: The name is malformed, or no token is set.
    """
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise ModelError(f"pushing to {repo_id}: a repository should be named owner/name", code="invalid_address")
    if token is None and not has_token():
        raise ModelError(
            f"pushing to {repo_id} requires a token with write permission, but none is set; {NEW_TOKEN}",
            code="access_denied",
        )


@contextlib.contextmanager
def _explaining(repo_id: str) -> Iterator[None]:
    """Turn the exceptions of `huggingface_hub` into errors that name the remedy."""
    import httpx
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    begin = f"pushing to {repo_id}"
    if problem := problem_with_proxies(constants.ENDPOINT):
        raise ModelError(f"{begin} failed: {problem}", code="hub_unreachable")
    try:
        yield
    except HFValidationError as error:
        raise ModelError(
            f"{begin}: the repository must be named owner/name: {error}", code="invalid_address"
        ) from error
    except OfflineModeIsEnabled as error:
        raise ModelError(
            f"{begin} requires network access, but HF_HUB_OFFLINE is set; unset it", code="hub_unreachable"
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status == 401:
            raise ModelError(
                f"{begin} was refused, because the token is not valid (any more); {NEW_TOKEN}", code="access_denied"
            ) from error
        if status in (403, 404):
            raise ModelError(
                f"{begin} was refused ({words_of(error)}); the token must have write permission, and the owner must "
                f"be you or an organisation that you belong to; {NEW_TOKEN}",
                code="access_denied",
            ) from error
        if status == 429 or status >= 500:
            raise ModelError(
                f"{begin} failed with status {status} of {constants.ENDPOINT}; try again later", code="hub_failed"
            ) from error
        raise ModelError(
            f"{begin} was refused by {constants.ENDPOINT}: {words_of(error)}", code="hub_failed"
        ) from error
    except (httpx.TransportError, ConnectionError) as error:
        raise ModelError(
            f"{begin} failed: {constants.ENDPOINT} cannot be reached{describe_proxy(constants.ENDPOINT)}"
            f" ({type(error).__name__}: {error}); nothing was committed, try again",
            code="hub_unreachable",
        ) from error
    except RuntimeError as error:  # the library wraps an error about one of several files in this
        if isinstance(error.__cause__, HfHubHTTPError | httpx.TransportError):
            with _explaining(repo_id):
                raise error.__cause__ from error
        raise
    except ValueError as error:  # raised for invalid metadata at the top of a model card
        raise ModelError(f"{begin} was refused: {error}; correct README.md", code="hub_failed") from error
