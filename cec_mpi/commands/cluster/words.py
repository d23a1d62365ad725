"""Words of a command line that are another one, and pairs among them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cec_mpi.errors import InputError


def parsed(
    parser: argparse.ArgumentParser, words: Sequence[str], line: Sequence[str], where: str
) -> argparse.Namespace:
    """What ``cec-mpi run`` makes of these words, so that the job does not fail on them."""
    if without_out(line) != line:
        raise InputError(f"{where}--out: tasks of an array have DIR/1, DIR/2, ... of themselves")
    try:
        return parser.parse_args([*words, *line])
    except InputError as error:
        raise InputError(f"{where}{error}") from None


def without_out(words: Sequence[str]) -> list[str]:
    """All words of a run but its --out."""
    kept: list[str] = []
    after_out = False
    for word in words:
        if not (after_out or word == "--out" or word.startswith("--out=")):
            kept.append(word)
        after_out = word == "--out" and not after_out
    return kept


def pairs(flag: str, texts: Sequence[str]) -> dict[str, str | None]:
    """Options of another program that were given as KEY=VALUE, or as KEY alone."""
    found: dict[str, str | None] = {}
    for text in texts:
        key, equals, value = text.removeprefix("--").partition("=")
        if key in found:
            raise InputError(f"{flag} {key}: expected it once")
        found[key] = value if equals else None
    return found
