"""A release has one version, one project address, and a README that needs no other files."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import tomllib

import pytest
import yaml

import cec_mpi
from helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
README = (ROOT / "README.md").read_text("utf-8")
LINK = re.compile(r"!?\[[^]]*\]\(([^)]*)\)")
describe = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["description"]


def test_the_only_file_that_the_readme_links_to_is_a_picture():
    files = [target for target in LINK.findall(README) if not re.match("https?:|#", target)]
    assert files == ["docs/images/assignment.svg"]
    assert (ROOT / files[0]).is_file()


def test_without_a_project_address_a_release_shows_the_readme_without_the_picture():
    text = describe(README, "")
    assert not LINK.findall(text)
    before, after = README.split("![", 1)
    assert text == before + after.split(")\n\n", 1)[1]


@pytest.mark.parametrize("source", ["https://example.org/cec", "https://example.org/cec/"])
def test_with_a_project_address_all_links_are_absolute(source):
    assert LINK.findall(describe(README, source)) == [
        "https://example.org/cec/raw/HEAD/docs/images/assignment.svg"
    ]
    unchanged = "[a](https://b.org) [c](#d)"
    assert describe(unchanged, source) == unchanged


def test_all_files_have_the_same_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", cec_mpi.__version__)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == cec_mpi.__version__
    assert f"Version {cec_mpi.__version__}" in (ROOT / "docs/reference/citing.md").read_text(
        "utf-8"
    )
    headings = re.findall(
        r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert headings[:2] == ["Unreleased", cec_mpi.__version__]
    assert f"## [{cec_mpi.__version__}] - {cited['date-released']}\n" in (
        ROOT / "CHANGELOG.md"
    ).read_text("utf-8")
    named = re.findall(r"cec_mpi-(\d[\d.]*\d)", (ROOT / "docs/howto/install.md").read_text("utf-8"))
    assert set(named) == {cec_mpi.__version__}


def test_citations_have_the_required_fields_and_name_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["license"] == PROJECT["license"]
    assert cited["title"] == PROJECT["name"]
    assert cited["abstract"].rstrip(".") == PROJECT["description"]
    (paper,) = cited["references"]
    assert re.fullmatch(r"10\.\d{4,}/\S+", paper["doi"])
    page = (ROOT / "docs/reference/citing.md").read_text("utf-8")
    assert page.count(paper["doi"]) == 2
    assert paper["title"] in page
    for author in paper["authors"]:
        assert f"{author['family-names']}, {author['given-names']}" in page


@pytest.fixture
def clone(tmp_path):
    """A repository with one commit of the files that scripts/release reads."""
    for name in ("scripts/release", "cec_mpi/_version.py", "CHANGELOG.md", "CITATION.cff"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "All")
    return tmp_path


def git(directory, *args):
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    subprocess.run(["git", *identity, *args], cwd=directory, check=True)


@pytest.mark.parametrize(
    ("tag", "changed", "message"),
    [
        ("v9.9.9", {}, r"v9\.9\.9 has version .*, expected the tag v"),
        ("", {}, "v0.0.0: no such tag"),
        ("current", {"CHANGELOG.md": "## [Unreleased]\n"}, "CHANGELOG.md of .* has no line"),
        ("current", {"CITATION.cff": "date-released: 1999-01-01\n"}, "CITATION.cff of .*expected"),
    ],
)
def test_the_tag_of_a_release_must_agree_with_its_files(clone, tag, changed, message):
    for name, text in changed.items():
        (clone / name).write_text(text)
        git(clone, "commit", "-qam", "Change it")
    if tag:
        tag = f"v{cec_mpi.__version__}" if tag == "current" else tag
        git(clone, "tag", tag)
    result = subprocess.run(
        [clone / "scripts" / "release", tag or "v0.0.0"], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert re.match(rf"scripts/release: {message}", result.stderr), result.stderr
    assert not (clone / "release").exists()
