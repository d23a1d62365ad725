"""An assignment as lines of text, for a terminal: a lane of letters for each machine."""

from __future__ import annotations

from collections.abc import Sequence

from cec_mpi.drawing.shares import Shares, letter
from cec_mpi.text import plural

LEAST, MOST = 8, 120  # columns of a lane
_PLAIN, _FINE = (".", "/"), ("\u00b7", "\u2571")  # stored and not computed, preempted
# Background colours of blocks in the 256 of a terminal, as near as they are to those of a figure;
# the letters on them are black.
_BACKGROUNDS = (110, 209, 222, 79, 217, 149, 153, 142)
_ONE_LETTER = 26


def typed(shares: Shares, width: int, *, fine: bool = True, coloured: bool = False) -> list[str]:
    r"""Return the lane of each machine, from the first row of its shard to the last.

    Parameters
    ----------
    shares : Shares
    width : int
        Columns that there are for a lane; it takes at least `LEAST` and at most `MOST`.
    fine : bool
        The terminal shows Unicode.
    coloured : bool
        It shows colours.

    Examples
    --------
    >>> from cec_mpi.core.plan.schemes import heterogeneous
    >>> plan = heterogeneous((1, 2, 4), [4, 4, 8], 2)
    >>> shares = Shares(4, 8, plan.available, plan.blocks, "", "", ["1", "2", "3", "4"])
    >>> print(*typed(shares, 16, fine=False), sep="\n")
    aaaaaaaa........
    ........bbbbbbbb
    ////////////////
    aaaaaaaabbbbbbbb
    """
    at = _blocks_at(shares, _columns(shares, width))
    members = [set(block.machines) for block in shares.blocks]
    stored, away = _FINE if fine else _PLAIN
    gone = set(shares.away)
    return [
        away * len(at)
        if n in gone
        else _cells([f if n in members[f - 1] else 0 for f in at], stored, coloured)
        for n in range(1, shares.machines + 1)
    ]


def left_out(shares: Shares, width: int) -> list[str]:
    """Return what lanes of this width do not show, in words."""
    unseen = len(shares.blocks) - len(set(_blocks_at(shares, _columns(shares, width))))
    lines = []
    if unseen:
        whole = plural(len(shares.blocks), "block")
        lines.append(f"{unseen} of {whole} {'is' if unseen == 1 else 'are'} too narrow to be drawn")
    if len(shares.blocks) > _ONE_LETTER:
        lines.append("the letters of blocks begin again after z")
    return lines


def _columns(shares: Shares, width: int) -> int:
    """Return the columns of a lane: a whole number for each row if there are fewer rows."""
    columns = min(max(width, LEAST), MOST)
    return columns - columns % shares.rows if shares.rows < columns else columns


def _blocks_at(shares: Shares, lane: int) -> list[int]:
    """Return the block of each column: that of the row in its middle."""
    along = sorted((block.start, block.stop, f) for f, block in enumerate(shares.blocks, start=1))
    found = []
    k = 0
    for column in range(lane):
        row = (2 * column + 1) * shares.rows // (2 * lane)
        while along[k][1] <= row:
            k += 1
        found.append(along[k][2])
    return found


def _cells(blocks: Sequence[int], stored: str, coloured: bool) -> str:
    """Return the letters of a lane, with one colour for each block."""
    text = ""
    last = 0
    for f in blocks:
        if coloured and f != last:
            colour = _BACKGROUNDS[(f - 1) % len(_BACKGROUNDS)]
            text += f"\x1b[38;5;16;48;5;{colour}m" if f else "\x1b[0m"
        text += letter((f - 1) % _ONE_LETTER + 1) if f else stored
        last = f
    return text + ("\x1b[0m" if coloured and last else "")
