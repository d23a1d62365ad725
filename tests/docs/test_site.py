"""The built documentation can be read from disk, without a network, in light and dark mode.

`scripts/docs` builds it. The stage `docs` of `scripts/test` does so before these tests.
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
NAVIGATION = {"canonical", "next", "prev", "author", "index", "search"}  # links that load nothing


@functools.cache
def parse_page(name):
    return BeautifulSoup((SITE / name).read_text(encoding="utf-8"), "html.parser")


def find_ids(name):
    return {element["id"] for element in parse_page(name).find_all(id=True)}


def test_pages_load_only_local_files():
    assert len(PAGES) > 30
    for name in PAGES:
        for element in parse_page(name).find_all(LOADS):
            address = element.get(LOADS[element.name])
            if address and not NAVIGATION & {*element.get("rel", ())}:
                assert not re.match(r"(?!data:)[a-z]+:|//", address), address
                assert ((SITE / name).parent / address.partition("?")[0]).exists(), address


def test_styles_load_only_local_files():
    styles = list(SITE.rglob("*.css"))
    assert styles
    for path in styles:
        text = path.read_text(encoding="utf-8")
        for address in re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')\s]+)""", text):
            assert not re.match(r"(?!data:)[a-z]+:|//", address), f"{path.name}: {address}"


def test_links_within_the_site_have_targets():
    site = SITE.resolve()
    ids = {site / name: {"", *find_ids(name)} for name in PAGES}
    broken = []
    for name in PAGES:
        for link in parse_page(name).find_all("a", href=True):
            file, _, anchor = link["href"].partition("#")
            if not re.match(r"[a-z]+:", link["href"]):
                target = ((site / name).parent / file if file else site / name).resolve()
                is_present = target.is_file() and target.is_relative_to(site)
                if not is_present or anchor not in ids.get(target, [anchor]):
                    broken.append(f"{name}: {link['href']}")
    assert not broken


def read_inventory():
    """Return the Python names in the inventory that Sphinx writes for other projects."""
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
    expected = {f"{module}.{name}" for module, listed in names.items() for name in listed}
    assert expected <= read_inventory()


def test_every_option_of_every_command_has_an_entry():
    described = find_ids("reference/commands.html")
    for title, parser in build_parser().walk():
        for action in parser._actions:
            is_global = title and {"-h", "-q", "-v"} & set(action.option_strings)
            if action.option_strings and not is_global:
                name = f"cec-mpi {title} {action.option_strings[-1]}"
                assert re.sub(r"[ -]+", "-", name) in described, name


# --- in a browser -------------------------------------------------------------------------


IS_TOO_WIDE = """return document.documentElement.scrollWidth > 360 || [...document.querySelectorAll(
    '.bd-article pre, .bd-article table, .bd-article div.math')].some(
    element => element.scrollWidth > element.clientWidth + 1
        || element.getBoundingClientRect().right > 361)"""


@pytest.fixture(scope="module")
def browser():
    with start_driver() as driver:
        browser = Browser(driver)
        driver.get("about:blank")
        browser.read_requests()  # discard those of the first page
        yield browser


def open_page(browser, name, *, dark=False):
    browser.load(f"{SITE.as_uri()}/{name}", dark=dark)
    browser.until(lambda: browser.run("return document.readyState == 'complete'"))


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_open_from_disk_and_fit_on_a_phone(browser, dark):
    """They need no network, and the console has no warnings."""
    backgrounds, too_wide = set(), []
    for name in PAGES[::5] if dark else PAGES:
        open_page(browser, name, dark=dark)
        backgrounds.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
        browser.set_width(360)
        if browser.run(IS_TOO_WIDE):
            too_wide.append(name)
    assert not too_wide
    assert not browser.read_console("INFO")
    assert {address.partition(":")[0] for address in browser.read_requests()} <= {"file", "data"}
    (background,) = backgrounds
    assert (max(map(int, re.findall(r"\d+", background)[:3])) < 128) is dark


@pytest.mark.needs("chromium")
def test_search_finds_pages_options_and_names(browser):
    for query, page in (
        ("checksum manifest", "reference/store.html"),
        ("start-timeout", "reference/commands.html"),
        ("open_operator", "reference/python/operator.html"),
        ("InfeasibleError", "reference/python/errors.html"),
    ):
        open_page(browser, f"search.html?q={query.replace(' ', '+')}")
        script = f"return document.querySelector('#search-results li a[href*=\"{page}\"]')"
        browser.until(lambda script=script: browser.run(script))  # results appear one by one
    assert not browser.read_console("INFO")


def test_the_built_site_has_no_path_of_this_computer():
    for path in (*SITE.rglob("*.html"), SITE / "searchindex.js"):
        assert str(ROOT) not in Path(path).read_text(encoding="utf-8"), path
