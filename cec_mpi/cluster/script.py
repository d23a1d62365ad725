"""Scripts that sbatch reads: their options, and templates that are filled in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from cec_mpi.errors import InputError
from cec_mpi.text import plural

# The number of a job, which is that of the whole array in its last task, would requeue all tasks.
TASK_OF_ARRAY = '"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"'

_LONGEST_WARNING = 65535  # that sbatch takes


def directives(
    given: Mapping[str, object], bare: Mapping[str, bool], more: Mapping[str, str | None]
) -> str:
    """The lines of a script with options of sbatch.

    Parameters
    ----------
    given : mapping
        Options with a value; without one they are left out.
    bare : mapping
        Options that have no value, and whether they are there.
    more : mapping
        What a user adds, as `given` or None for an option that has no value.

    Raises
    ------
    InputError
        One is there twice, or is none.
    """
    found: dict[str, str | None] = {key: str(value) for key, value in given.items() if value}
    found |= dict.fromkeys(key for key, is_there in bare.items() if is_there)
    for key, value in more.items():
        if key in found:
            raise InputError(f"--sbatch {key}: this script has --{key} already")
        found[key] = value
    return "\n".join(_directive(key, value) for key, value in found.items())


def check_warning(warning: int, time: str | None) -> None:
    """Refuse to be warned before a job's time begins, or earlier than sbatch can say.

    Raises
    ------
    InputError
        Says what is expected.
    """
    limit = _LONGEST_WARNING if time is None else min(seconds_of(time) - 1, _LONGEST_WARNING)
    if warning > limit:
        raise InputError(
            f"--warning {warning}: expected at most {plural(limit, 'second')} before the end"
        )


def filled(template: str, flags: Mapping[str, bool], texts: Mapping[str, object]) -> str:
    """A template of this folder, with its lines for these flags, and texts in place of names.

    A line of it that begins with ``%`` says which flags the lines below are for, ``!`` which not.
    """
    from importlib.resources import files

    lines, kept = [], True
    for line in files(__package__).joinpath(template).read_text().splitlines(keepends=True):
        if line.startswith("%"):
            kept = all(flags[word.strip("!")] != word.startswith("!") for word in line[1:].split())
        elif kept:
            lines.append(line)
    return re.sub(r"@\{(\w+)\}", lambda found: str(texts[found[1]]), "".join(lines))


def _directive(key: str, value: str | None) -> str:
    if not re.fullmatch("[a-z][a-z0-9-]+", key):
        raise InputError(f"--sbatch {key!r}: expected a long option of sbatch, as mem=4G")
    if value is None:
        return f"#SBATCH --{key}"
    check_printable(value)
    value = value.replace("\\", "\\\\")  # which sbatch takes as special within quotes too
    return f"#SBATCH --{key}={shlex.quote(value)}"


def check_printable(text: str) -> None:
    """Refuse what does not fit on a line of a script.

    Raises
    ------
    InputError
        Shows it.
    """
    if not text.isprintable():
        raise InputError(f"{text!r}: expected text of one line in a batch script")


_TIME = re.compile(r"(?:(?P<d>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?")


def seconds_of(time: str) -> int:
    """The seconds of a time limit in one of Slurm's forms.

    Raises
    ------
    InputError
        It has none of them, or is no time.

    Examples
    --------
    >>> [seconds_of(text) for text in ("30", "30:15", "1:30:15", "1-2", "1-02:30")]
    [1800, 1815, 5415, 93600, 95400]
    """
    found = _TIME.fullmatch(time)
    if found:
        a, b, c = (int(found[name] or 0) for name in "abc")
        if found["d"]:
            hours, minutes, seconds = 24 * int(found["d"]) + a, b, c
        elif found["c"]:
            hours, minutes, seconds = a, b, c
        else:
            hours, minutes, seconds = 0, a, b
        if total := 3600 * hours + 60 * minutes + seconds:
            return total
    raise InputError(f"--time {time!r}: expected minutes, 30:00, 1:30:00 or 1-12:00:00")
