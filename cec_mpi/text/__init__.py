"""Format lists, counts, values and untrusted text for messages."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from numbers import Integral

_SIZES = "kMGTPE"
_ENDINGS = ("s", "x", "ch", "sh")  # of words with -es

# Blanks, and the joiners that some scripts need: str.isprintable is False, but they are harmless.
_HARMLESS = (
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f"
    "\u205f\u3000\u200c\u200d"
)

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 80
_repr.maxlist = _repr.maxtuple = _repr.maxdict = 8


def join_names(names: Iterable[object], most: int = 3) -> str:
    """Return the first few names, each once, as a list for a sentence.

    Examples
    --------
    >>> join_names(["n1", "n1", "n2"])
    'n1 and n2'
    >>> join_names(f"n{i}" for i in range(1, 21))
    'n1, n2, n3 and 17 more'
    """
    words = [str(name) for name in dict.fromkeys(names)]
    if len(words) > most + 1:
        words = [*words[:most], f"{len(words) - most} more"]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def as_text(value: object) -> str:
    """Decode text that some programs store as bytes.

    Examples
    --------
    >>> as_text(b"csr"), as_text("csr"), as_text(3)
    ('csr', 'csr', '3')
    """
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def truncate(names: Sequence[object], most: int) -> str:
    """Return the first few names, and the number of all if some are left out.

    Examples
    --------
    >>> truncate(range(9), 9), truncate(range(10), 3)
    ('0, 1, 2, 3, 4, 5, 6, 7, 8', '0, 1, 2, ... (10)')
    """
    more = f", ... ({len(names)})" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more or "none"


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
        noun = word + ("es" if word.endswith(_ENDINGS) else "s")
    number = count if isinstance(count, Integral) else f"{count:g}"
    return " ".join([f"{number} {noun}", *([verb[count != 1]] if verb else [])])


def format_bytes(count: float) -> str:
    """Return a number of bytes with three digits.

    Examples
    --------
    >>> format_bytes(0), format_bytes(999), format_bytes(1_043_776), format_bytes(1.2e11)
    ('0 bytes', '999 bytes', '1.04 MB', '120 GB')
    """
    if count < 1000:
        return plural(int(count), "byte")
    digits, _, power = f"{count:.2e}".partition("e")
    thousands, more = divmod(int(power), 3)
    return f"{float(digits) * 10**more:.{2 - more}f} {_SIZES[thousands - 1]}B"


def format_count(count: int, word: str) -> str:
    """Return what `plural` returns for a whole number, with commas between thousands.

    Examples
    --------
    >>> format_count(1, "step"), format_count(2000, "step")
    ('1 step', '2,000 steps')
    """
    return f"{count:,} {plural(count, word).partition(' ')[2]}"


def format_duration(seconds: float) -> str:
    """A time with three digits; one below a nanosecond, or below 0, is 0.

    Examples
    --------
    >>> [format_duration(seconds) for seconds in (0.00123, 0.026, 12.34, 150, 7300)]
    ['1.23 ms', '26.0 ms', '12.3 s', '2 min 30 s', '2 h 1 min']
    >>> format_duration(-2.4e-13), format_duration(0.99999)
    ('0 s', '1.00 s')
    """
    if seconds < 5e-10:
        return "0 s"
    for scale, unit, most in ((1e6, "us", 999.5), (1e3, "ms", 999.5), (1.0, "s", 99.5)):
        if seconds * scale < most:
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


def suggest(word: str, words: Iterable[str], before: str = "") -> str:
    """Return a hint that names the closest known word, or an empty text if none is similar.

    Parameters
    ----------
    word : str
    words : iterable of str
        Known words.
    before : str
        Text in front of the suggested word, such as ``--``.

    Examples
    --------
    >>> suggest("machine", ["memory", "machines"], "--")
    ' (did you mean --machines?)'
    >>> suggest("nothing", ["like", "it"])
    ''
    """
    found = closest_match(word, words)
    return f" (did you mean {before}{found}?)" if found else ""


def closest_match(word: str, words: Iterable[str]) -> str:
    """Return the most similar of these words, or an empty text if none is similar."""
    import difflib  # which few need

    return next(iter(difflib.get_close_matches(word, list(words), n=1)), "")


def one_message(text: object) -> str:
    r"""Escape control characters in a message, and indent all lines after the first.

    Examples
    --------
    >>> print(one_message("a\x1b[2J is no file\ncec-mpi: done"))
    a\x1b[2J is no file
      cec-mpi: done
    """
    return printable(text, kept="\n").replace("\n", "\n  ")


def printable(text: object, kept: str = "") -> str:
    r"""Escape the characters of a text that a terminal would interpret.

    Parameters
    ----------
    text : object
    kept : str
        Control characters that stay as they are, such as the line breaks of a table.

    Examples
    --------
    >>> printable("Größe\x1b[2J") == r"Größe\x1b[2J", printable("\t", kept="\t") == "\t"
    (True, True)
    """
    return "".join(
        letter
        if letter.isprintable() or letter in _HARMLESS or letter in kept
        else letter.encode("unicode_escape", "surrogatepass").decode("ascii")
        for letter in str(text)
    )
