"""What a release says of itself: one version, one address, and a README that needs no files."""

from __future__ import annotations

import re
import runpy
import tomllib

import pytest
import yaml

import cec_mpi
from helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
README = (ROOT / "README.md").read_text("utf-8")
LINK = re.compile(r"!?\[[^]]*\]\(([^)]*)\)")
describe = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["description"]


def test_the_readme_shows_a_picture_that_is_there_and_links_to_nothing_else_beside_it():
    beside = [each for each in LINK.findall(README) if not re.match("https?:|#", each)]
    assert beside == ["docs/images/assignment.svg"]
    assert (ROOT / beside[0]).is_file()


def test_without_an_address_of_the_project_a_release_shows_the_readme_without_the_picture():
    text = describe(README, "")
    assert not LINK.findall(text)
    before, after = README.split("![", 1)
    assert text == before + after.split(")\n\n", 1)[1]


@pytest.mark.parametrize("source", ["https://example.org/cec", "https://example.org/cec/"])
def test_with_an_address_of_the_project_all_links_are_whole(source):
    assert LINK.findall(describe(README, source)) == [
        "https://example.org/cec/raw/HEAD/docs/images/assignment.svg"
    ]
    kept = "[a](https://b.org) [c](#d)"
    assert describe(kept, source) == kept


def test_one_version_everywhere():
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
    named = re.findall(r"cec_mpi-(\d[\d.]*\d)", (ROOT / "docs/howto/install.md").read_text("utf-8"))
    assert set(named) == {cec_mpi.__version__}


def test_citations_have_what_programs_want_and_name_the_paper():
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
