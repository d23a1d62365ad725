"""Formatting of lists, counts, values and untrusted text for messages."""

from __future__ import annotations

import reprlib
import sys
import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral

_SKIPPED_PACKAGES = ("cec_mpi", "scipy", "contextlib")  # their frames are not the caller's

_SI_PREFIXES = "kMGTPE"
_ES_ENDINGS = ("s", "x", "ch", "sh")  # nouns with these endings have the plural -es

# Spaces and joiners are harmless, although str.isprintable is False for them.
_HARMLESS = (
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f"
    "\u205f\u3000\u200c\u200d"
)

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 80
_repr.maxlist = _repr.maxtuple = _repr.maxdict = 8


def join_names(names: Iterable[object], limit: int = 3) -> str:
    """Return the first few distinct names as an enumeration for a sentence.

    Examples
    --------
    >>> join_names(["n1", "n1", "n2"])
    'n1 and n2'
    >>> join_names(f"n{i}" for i in range(1, 21))
    'n1, n2, n3 and 17 more'
    """
    parts = [str(name) for name in dict.fromkeys(names)]
    if len(parts) > limit + 1:
        parts = [*parts[:limit], f"{len(parts) - limit} more"]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def as_text(value: object) -> str:
    """Return a value as text; bytes are decoded as Latin-1.

    Examples
    --------
    >>> as_text(b"csr"), as_text("csr"), as_text(3)
    ('csr', 'csr', '3')
    """
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def truncate(names: Sequence[object], limit: int) -> str:
    """Return the first few names, and the total number if names are omitted.

    If there are no names, the text is 'none'.

    Examples
    --------
    >>> truncate(range(9), 9), truncate(range(10), 3)
    ('0, 1, 2, 3, 4, 5, 6, 7, 8', '0, 1, 2, ... (10)')
    """
    total = f", ... ({len(names)})" if len(names) > limit else ""
    return ", ".join(map(str, names[:limit])) + total or "none"


def plural(count: float, word: str, *verb: str) -> str:
    """Return a number with its noun, and optionally a verb, in the singular or plural.

    Examples
    --------
    >>> plural(1, "core"), plural(2, "core"), plural(0, "process"), plural(0.5, "second")
    ('1 core', '2 cores', '0 processes', '0.5 seconds')
    >>> plural(1, "copy"), plural(2, "copy"), plural(2, "day")
    ('1 copy', '2 copies', '2 days')
    >>> plural(1, "machine", "is", "are"), plural(2, "machine", "is", "are")
    ('1 machine is', '2 machines are')
    """
    if count == 1:
        noun = word
    elif word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        noun = f"{word[:-1]}ies"
    else:
        noun = word + ("es" if word.endswith(_ES_ENDINGS) else "s")
    number = count if isinstance(count, Integral) else f"{count:g}"
    return " ".join([f"{number} {noun}", *([verb[count != 1]] if verb else [])])


def format_bytes(count: float) -> str:
    """Return a number of bytes with three significant digits.

    Examples
    --------
    >>> format_bytes(0), format_bytes(999), format_bytes(1_043_776), format_bytes(1.2e11)
    ('0 bytes', '999 bytes', '1.04 MB', '120 GB')
    """
    if count < 1000:
        return plural(int(count), "byte")
    digits, _, power = f"{count:.2e}".partition("e")
    thousands, remainder = divmod(int(power), 3)
    return f"{float(digits) * 10**remainder:.{2 - remainder}f} {_SI_PREFIXES[thousands - 1]}B"


def format_count(count: int, word: str) -> str:
    """Return an integer with thousands separators, and its noun in the singular or plural.

    Examples
    --------
    >>> format_count(1, "step"), format_count(2000, "step")
    ('1 step', '2,000 steps')
    """
    return f"{count:,} {plural(count, word).partition(' ')[2]}"


def format_duration(seconds: float) -> str:
    """Return a time with three significant digits; negative and tiny times are 0.

    Examples
    --------
    >>> [format_duration(seconds) for seconds in (0.00123, 0.026, 12.34, 150, 7300)]
    ['1.23 ms', '26.0 ms', '12.3 s', '2 min 30 s', '2 h 1 min']
    >>> format_duration(-2.4e-13), format_duration(0.99999)
    ('0 s', '1.00 s')
    """
    if seconds < 5e-10:
        return "0 s"
    for scale, unit, limit in ((1e6, "us", 999.5), (1e3, "ms", 999.5), (1.0, "s", 99.5)):
        if seconds * scale < limit:
            return f"{seconds * scale:#.3g}".rstrip(".") + f" {unit}"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def shorten(value: object) -> str:
    """Return the repr of a value, shortened if it is long.

    Examples
    --------
    >>> shorten("two"), shorten(range(3)), len(shorten("x" * 1000))
    ("'two'", 'range(0, 3)', 80)
    """
    return _repr.repr(value)


def suggest(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """Return a hint with the most similar candidate, or '' if none is similar.

    Parameters
    ----------
    word : str
    candidates : iterable of str
    prefix : str
        Text before the suggestion, such as ``--``.

    Examples
    --------
    >>> suggest("machine", ["memory", "machines"], "--")
    ' (did you mean --machines?)'
    >>> suggest("nothing", ["like", "it"])
    ''
    """
    match = closest_match(word, candidates)
    return f" (did you mean {prefix}{match}?)" if match else ""


def closest_match(word: str, candidates: Iterable[str]) -> str:
    """Return the most similar candidate, or '' if none is similar."""
    import difflib  # rarely needed

    return next(iter(difflib.get_close_matches(word, list(candidates), n=1)), "")


def format_message(text: object) -> str:
    r"""Return a message with escaped control characters and indented continuation lines.

    Examples
    --------
    >>> print(format_message("a\x1b[2J is not a file\ncec-mpi: done"))
    a\x1b[2J is not a file
      cec-mpi: done
    """
    return printable(text, keep="\n").replace("\n", "\n  ")


def printable(text: object, keep: str = "") -> str:
    r"""Return a text with escapes for all characters that a terminal would interpret.

    Parameters
    ----------
    text : object
    keep : str
        Control characters that are not escaped, such as the line breaks of a table.

    Examples
    --------
    >>> printable("Größe\x1b[2J") == r"Größe\x1b[2J", printable("\t", keep="\t") == "\t"
    (True, True)
    """
    return "".join(
        character
        if character.isprintable() or character in _HARMLESS or character in keep
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in str(text)
    )


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the line of the program that called this package, directly or through SciPy."""
    frame, level = sys._getframe(1), 2
    while (
        frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _SKIPPED_PACKAGES
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
