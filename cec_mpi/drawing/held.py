"""A plan of machines that hold several shards, as tables of text: machines, then shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cec_mpi.core.plan.assignment import Block
from cec_mpi.drawing.shares import Shares, letter


def held_table(plan: Mapping[str, Any], speeds: Sequence[Any]) -> list[str]:
    r"""What each machine computes, and below its name what of each of its shards.

    Parameters
    ----------
    plan : mapping
        As of `explain_plan`, with shards.
    speeds : sequence of number

    Returns
    -------
    list of str
        A head, and a line for each shard in the order of the machines.

    Examples
    --------
    >>> from cec_mpi.core.plan.explain import explain_plan
    >>> plan = explain_plan((1, 3), [1, 1, 2], 2, 6, shards=(1, 2, 3))
    >>> print(*held_table(plan, [1, 1, 2]), sep="\n")
    machine  speed  rows       shard  of it
          1      1  4              1  4
          2      1  preempted      2
                                   3
          3      2  8              4  6
                                   5  2
                                   6  0
    """
    available = set(plan["available"])
    cells = [["machine", "speed", "rows", "shard", "of it"]]
    for n, (mine, speed) in enumerate(zip(plan["shards"], speeds, strict=True), start=1):
        there = n in available
        name = [f"{n}", f"{float(speed):g}", str(plan["loads"][n - 1]) if there else "preempted"]
        for shard in mine:
            cells.append([*name, str(shard), str(plan["shard_loads"][shard - 1]) if there else ""])
            name = ["", "", ""]
    widths = [max(len(each[k]) for each in cells) for k in range(4)]
    return [
        f"{machine:>{widths[0]}}  {speed:>{widths[1]}}  {rows:{widths[2]}}  {shard:>{widths[3]}}  "
        f"{part}".rstrip()
        for machine, speed, rows, shard, part in cells
    ]


def held_blocks(plan: Mapping[str, Any], lettered: bool) -> list[str]:
    r"""The blocks in the order of the rows: their shards, and the machines that compute these.

    Examples
    --------
    >>> from cec_mpi.core.plan.explain import explain_plan
    >>> plan = explain_plan((1, 2, 3), [1, 1, 2], 3, 6, shards=(1, 1, 2))
    >>> print(*held_blocks(plan, lettered=False), sep="\n")
    rows  shards  machines
    0..1  1 3 4   1 3 3
    2..2  2 3 4   2 3 3
    3..5  1 2 3   1 2 3
    """
    found = sorted(enumerate(plan["blocks"], start=1), key=lambda each: int(each[1]["start"]))
    cells = [["block", "rows", "shards", "machines"]]
    cells += [
        [
            letter(f),
            f"{block['start']}..{block['stop'] - 1}",
            " ".join(map(str, block["shards"])),
            " ".join(map(str, block["machines"])),
        ]
        for f, block in found
    ]
    first = 0 if lettered else 1
    widths = [max(len(each[k]) for each in cells) for k in range(4)]
    return ["  ".join(f"{each[k]:{widths[k]}}" for k in range(first, 4)).rstrip() for each in cells]


def held_shares(plan: Mapping[str, Any]) -> Shares:
    """What a picture in letters shows of it: a lane for each shard."""
    shards = max(shard for mine in plan["shards"] for shard in mine)
    there = tuple(shard for n in plan["available"] for shard in plan["shards"][n - 1])
    blocks = [Block(b["start"], b["stop"], tuple(b["shards"])) for b in plan["blocks"]]
    return Shares(shards, plan["rows"], there, blocks, "", "", [])
