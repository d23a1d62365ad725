"""Pages of docs as what can be run: programs, modules, commands, and what they print."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Block", "blocks_of"]


@dataclass
class Block:
    """A program, a module or commands, and what they print."""

    kind: str  # program, module or sh
    text: str
    line: int
    printed: str = ""

    @property
    def name(self) -> str:
        """The file that its first line names."""
        return self.text.split("\n", 1)[0].removeprefix("# ")


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page; refuses one that would not be run."""
    found: list[Block] = []
    inside: list[str] | None = None
    for number, line in enumerate(page.splitlines(), start=1):
        if not re.match(r"\s*(```|~~~)", line):
            if inside is not None:
                inside.append(line)
            continue
        if inside is None:
            assert line in ("```python", "```sh", "```text"), f"line {number}: {line} is not run"
            language, start, inside = line[3:], number, []
            continue
        assert line == "```", f"line {number}: {line} within a block"
        text, inside = "\n".join(inside) + "\n", None
        if language == "text":
            assert found, f"line {start}: nothing has printed this"
            assert found[-1].kind != "module", f"line {start}: a module prints nothing"
            assert not found[-1].printed, f"line {start}: printed twice"
            found[-1].printed = text
            continue
        kind = "sh"
        if language == "python":
            tests = text.startswith("# test_")
            kind = "program" if "open_operator(" in text and not tests else "module"
        found.append(Block(kind, text, start))
        if language == "python":
            named = re.fullmatch(r"\w+\.py", found[-1].name)
            assert named, f"line {start}: expected a line # name.py at first"
    assert inside is None, "the last block does not end"
    for index, block in enumerate(found):
        if block.kind == "program":
            assert block.printed, f"line {block.line}: what does this program print?"
        if block.kind == "module":
            later = "".join(b.text for b in found[index:] if b.kind == "sh")
            used = rf" {block.name.removesuffix('.py')}(:|\.py)"
            assert re.search(used, later), f"line {block.line}: no command uses this module"
    return found
