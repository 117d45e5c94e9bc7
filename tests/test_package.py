import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.small_run import SMALL_RUN

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    (built,) = directory.glob("agent_tunix-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the wheel, installed in a directory of its own, stands before the checkout."""
    target = tmp_path_factory.mktemp("installed")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)
    search_path = os.pathsep.join([str(target / "bin"), os.environ["PATH"]])
    return os.environ | {"PYTHONPATH": str(target), "PATH": search_path}


def test_the_wheel_carries_every_file_of_conf_and_of_the_package_and_nothing_beside_it(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    shipped = {file.removeprefix("agent_tunix/conf/") for file in files if file.startswith("agent_tunix/conf/")}
    assert shipped == {file.relative_to(ROOT / "conf").as_posix() for file in (ROOT / "conf").rglob("*.yaml")}
    assert {file.partition("/")[0].partition("-")[0] for file in files} == {"agent_tunix"}
    paths = [path for path in (ROOT / "src" / "agent_tunix").rglob("*") if "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "src").as_posix() for path in paths if path.is_file()} <= files


def test_the_installed_package_finds_its_own_conf(installed: dict[str, str], tmp_path: Path) -> None:
    program = "from agent_tunix.config.compose import find_conf_directory as f; print(f() / 'config.yaml')"
    printed = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=installed, check=True, capture_output=True, text=True
    )
    assert Path(printed.stdout.strip()).is_relative_to(installed["PYTHONPATH"])
    assert Path(printed.stdout.strip()).is_file()


def test_the_checkout_finds_the_conf_at_its_top() -> None:
    from agent_tunix.config.compose import find_conf_directory

    assert find_conf_directory() == ROOT / "conf"


def test_the_installed_command_trains(installed: dict[str, str], tmp_path: Path) -> None:
    command = [
        "agent-tunix",
        "train",
        "+experiment=quick_test",
        *SMALL_RUN,
        "training.num_batches=1",
        "hydra.run.dir=run",
    ]
    result = subprocess.run(command, cwd=tmp_path, env=installed, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
