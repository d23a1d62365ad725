"""Numbers in the prose of the pages about ideas agree with their examples and drawings."""

import re
from fractions import Fraction

import pytest

from helpers import ROOT

IDEAS = ROOT / "docs" / "ideas"
PAGES = sorted(IDEAS.glob("*.md"))
BLOCK = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRACTION = re.compile(r"(?<![\w./])\d+ ?/ ?\d+(?![\w/]|\.\d)")
NUMBERS = r"[\d(][\d/+() -]*"
EQUATION = re.compile(rf"(?<![\w./^*{{-])({NUMBERS}) = (\d+(?: ?/ ?\d+)?)(?![\w./])")


def evaluate(text):
    """Return the exact value of fractions, their sums and differences."""
    assert re.fullmatch(r"[\d/+() -]+", text)
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})


def split_page(page):
    """Return the prose of a page, and the text of its blocks and drawings."""
    text = page.read_text("utf-8")
    shown = "\n".join(BLOCK.findall(text))
    for name in re.findall(r"\.\./images/([\w-]+\.svg)", text):
        shown += (ROOT / "docs" / "images" / name).read_text("utf-8")
    return " ".join(BLOCK.sub("", text).split()), shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_equations_in_prose_hold(page):
    prose, _ = split_page(page)
    for left, right in EQUATION.findall(prose):
        assert evaluate(left) == evaluate(right), f"{left} = {right}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_fractions_in_prose_are_computed(page):
    prose, shown = split_page(page)
    computed = {evaluate(fraction) for fraction in FRACTION.findall(shown)}
    computed |= {evaluate(right) for _, right in EQUATION.findall(prose)}
    fractions = set(FRACTION.findall(EQUATION.sub("", prose)))
    assert {fraction for fraction in fractions if evaluate(fraction) not in computed} == set()


def test_the_prose_has_many_numbers():
    prose = "".join(split_page(page)[0] for page in PAGES)
    assert len(EQUATION.findall(prose)) >= 4
    assert len(FRACTION.findall(prose)) >= 20
