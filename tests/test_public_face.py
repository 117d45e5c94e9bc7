"""The files that GitHub, PyPI and Docker read agree with the README and the package."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
INSTALL = 'python3 -m venv .venv && . .venv/bin/activate && pip install -c constraints.txt -e ".[dev]"'


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def commands_of(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    jobs: dict[str, Any] = read(".github/workflows/ci.yml")["jobs"]
    return jobs


def test_the_workflow_runs_the_documented_commands(jobs: dict[str, Any]) -> None:
    test_command = re.search(r"<!-- install test -->\n```bash\n(.+)\n```", README)
    assert test_command
    assert commands_of(jobs["tests"]) == [test_command[1]]
    assert commands_of(jobs["check"]) == [INSTALL, "scripts/check"]
    assert commands_of(jobs["slow"]) == [INSTALL, ". .venv/bin/activate && python -m pytest -m slow"]
    contributing = (ROOT / "docs" / "how-it-works.md").read_text("utf-8")
    assert all(command in contributing for command in (INSTALL, "scripts/check", "`python -m pytest -m slow`"))


def test_every_version_of_python_that_the_readme_names_is_tested(jobs: dict[str, Any]) -> None:
    tested = jobs["tests"]["strategy"]["matrix"]["python"]
    assert f"You need Python {', '.join(tested[:-1])} or {tested[-1]} and pip." in README
    prefix = "Programming Language :: Python :: 3."
    assert [name[-4:] for name in PROJECT["classifiers"] if name.startswith(prefix)] == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_a_release_is_published_without_a_token() -> None:
    workflow = read(".github/workflows/release.yml")
    assert workflow[True]["push"] == {"tags": ["v*"]}  # YAML reads `on` as true
    publish = workflow["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text("utf-8")


def test_the_form_for_bugs_asks_for_the_environment() -> None:
    fields = {field["id"]: field for field in read(".github/ISSUE_TEMPLATE/bug.yml")["body"]}
    assert fields["environment"]["attributes"]["label"] == "environment.json"
    assert fields["environment"]["validations"]["required"]


def test_the_citation_is_of_this_version() -> None:
    citation = read("CITATION.cff")
    assert (citation["title"], citation["version"]) == (PROJECT["name"], PROJECT["version"])
    assert citation["authors"] == PROJECT["authors"]


@pytest.mark.parametrize(("name", "target"), [("Dockerfile", "/src"), ("Dockerfile.cuda", "/src[cuda]")])
def test_an_image_installs_the_package_and_runs_it_as_a_user(name: str, target: str) -> None:
    text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    sources = [source for step, words in steps if step == "COPY" for source in words.split()[:-1]]
    shipped = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()]
    assert all((ROOT / source).exists() and source in shipped for source in sources)
    install = next(shlex.split(words) for step, words in steps if step == "RUN" and words.startswith("pip install"))
    assert install[-3:] == ["--constraint", "/src/constraints.txt", target]
    assert [words for step, words in steps if step == "USER"] == ["1000"]
    assert [words for step, words in steps if step == "ENTRYPOINT"] == ['["agent-tunix"]']


def test_the_pages_of_the_repository_link_to_files() -> None:
    for name in ("CONTRIBUTING.md", "SECURITY.md"):
        links = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text("utf-8"))
        assert links
        assert all((ROOT / link).is_file() for link in links)
