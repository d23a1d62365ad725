"""The built documentation as people read it: from disk, without a network, light and dark.

`scripts/docs` builds it, and the stage `docs` of `scripts/test` does that before these tests.
"""

from __future__ import annotations

import functools
import importlib
import re
import zlib
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

import cec_mpi
from cec_mpi.cli import build_parser
from helpers import ROOT
from helpers.browser import Browser, start_driver

SITE = ROOT / "docs" / "_build" / "html"
PAGES = sorted(
    str(path.relative_to(SITE))
    for path in SITE.rglob("*.html")
    if SITE / "_static" not in path.parents
)
LOADS = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
LINKS = {"canonical", "next", "prev", "author", "index", "search"}  # which load nothing


@functools.cache
def page_of(name):
    return BeautifulSoup((SITE / name).read_text(encoding="utf-8"), "html.parser")


def ids_of(name):
    return {element["id"] for element in page_of(name).find_all(id=True)}


def test_pages_load_files_beside_them_alone():
    assert len(PAGES) > 30
    for name in PAGES:
        for element in page_of(name).find_all(LOADS):
            address = element.get(LOADS[element.name])
            if address and not LINKS & {*element.get("rel", ())}:
                assert not re.match(r"(?!data:)[a-z]+:|//", address), address
                assert ((SITE / name).parent / address.partition("?")[0]).exists(), address


def test_styles_load_files_beside_them_alone():
    styles = list(SITE.rglob("*.css"))
    assert styles
    for path in styles:
        text = path.read_text(encoding="utf-8")
        for address in re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')\s]+)""", text):
            assert not re.match(r"(?!data:)[a-z]+:|//", address), f"{path.name}: {address}"


def test_links_within_the_site_lead_somewhere():
    site = SITE.resolve()
    ids = {site / name: {"", *ids_of(name)} for name in PAGES}
    wrong = []
    for name in PAGES:
        for link in page_of(name).find_all("a", href=True):
            file, _, anchor = link["href"].partition("#")
            if not re.match(r"[a-z]+:", link["href"]):
                target = ((site / name).parent / file if file else site / name).resolve()
                is_present = target.is_file() and target.is_relative_to(site)
                if not is_present or anchor not in ids.get(target, [anchor]):
                    wrong.append(f"{name}: {link['href']}")
    assert not wrong


def names_in_the_reference():
    """The names of Python in the inventory that Sphinx writes for other projects."""
    content = (SITE / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(content).decode().splitlines()
    return {line.split()[0] for line in lines if line.split()[1].startswith("py:")}


def test_every_public_name_has_an_entry():
    names = {"cec_mpi": cec_mpi.__all__}
    for module in (
        "availability",
        "errors",
        "engines.dask",
        "engines.ray",
        "records",
        "sklearn",
        "tasks",
    ):
        names[f"cec_mpi.{module}"] = importlib.import_module(f"cec_mpi.{module}").__all__
    wanted = {f"{module}.{name}" for module, listed in names.items() for name in listed}
    assert wanted <= names_in_the_reference()


def test_every_option_of_every_command_has_an_entry():
    described = ids_of("reference/commands.html")
    for title, each in build_parser().walk():
        for action in each._actions:
            for_all = title and {"-h", "-q", "-v"} & set(action.option_strings)
            if action.option_strings and not for_all:
                name = f"cec-mpi {title} {action.option_strings[-1]}"
                assert re.sub(r"[ -]+", "-", name) in described, name


# --- in a browser -------------------------------------------------------------------------


IS_CUT = """return document.documentElement.scrollWidth > 360 || [...document.querySelectorAll(
    '.bd-article pre, .bd-article table, .bd-article div.math')].some(
    element => element.scrollWidth > element.clientWidth + 1
        || element.getBoundingClientRect().right > 361)"""


@pytest.fixture(scope="module")
def browser():
    with start_driver() as driver:
        browser = Browser(driver)
        driver.get("about:blank")
        browser.requested()  # what the browser's own first page has loaded
        yield browser


def open_page(browser, name, *, dark=False):
    browser.load(f"{SITE.as_uri()}/{name}", dark=dark)
    browser.until(lambda: browser.run("return document.readyState == 'complete'"))


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_open_from_disk_and_fit_on_a_phone(browser, dark):
    """They need no network, and the console has no warnings."""
    backgrounds, cut = set(), []
    for name in PAGES[::5] if dark else PAGES:
        open_page(browser, name, dark=dark)
        backgrounds.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
        browser.set_width(360)
        if browser.run(IS_CUT):
            cut.append(name)
    assert not cut
    assert not browser.logged("INFO")
    assert {address.partition(":")[0] for address in browser.requested()} <= {"file", "data"}
    (background,) = backgrounds
    assert (max(map(int, re.findall(r"\d+", background)[:3])) < 128) is dark


@pytest.mark.needs("chromium")
def test_search_finds_pages_options_and_names(browser):
    for words, page in (
        ("checksum manifest", "reference/store.html"),
        ("start-timeout", "reference/commands.html"),
        ("open_operator", "reference/python/operator.html"),
        ("InfeasibleError", "reference/python/errors.html"),
    ):
        open_page(browser, f"search.html?q={words.replace(' ', '+')}")
        found = f"return document.querySelector('#search-results li a[href*=\"{page}\"]')"
        browser.until(lambda found=found: browser.run(found))  # results appear one after the other
    assert not browser.logged("INFO")


def test_the_built_site_names_nothing_of_the_computer():
    for path in (*SITE.rglob("*.html"), SITE / "searchindex.js"):
        assert str(ROOT) not in Path(path).read_text(encoding="utf-8"), path
