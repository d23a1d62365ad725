"""The numbers that the pages about ideas tell in words are those of their examples and drawings."""

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


def exactly(text):
    """The value of fractions, their sums and differences."""
    assert re.fullmatch(r"[\d/+() -]+", text)
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})


def told(page):
    """The words of a page, and what its blocks and drawings show."""
    text = page.read_text("utf-8")
    shown = "\n".join(BLOCK.findall(text))
    for name in re.findall(r"\.\./images/([\w-]+\.svg)", text):
        shown += (ROOT / "docs" / "images" / name).read_text("utf-8")
    return " ".join(BLOCK.sub("", text).split()), shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_equations_in_words_hold(page):
    words, _ = told(page)
    for left, right in EQUATION.findall(words):
        assert exactly(left) == exactly(right), f"{left} = {right}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_fractions_in_words_are_computed(page):
    words, shown = told(page)
    computed = {exactly(each) for each in FRACTION.findall(shown)}
    computed |= {exactly(right) for _, right in EQUATION.findall(words)}
    plain = EQUATION.sub("", words)
    assert {each for each in FRACTION.findall(plain) if exactly(each) not in computed} == set()


def test_words_tell_many_numbers():
    words = "".join(told(page)[0] for page in PAGES)
    assert len(EQUATION.findall(words)) >= 4
    assert len(FRACTION.findall(words)) >= 20
