"""Programs, modules, commands and examples of pages of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from helpers import ROOT

__all__ = ["Block", "blocks_of", "pages_of_docs"]


@dataclass
class Block:
    """A program, a module that commands use, commands or an example, and its output.

    Ranks run a program; one process runs a program that opens an operator with None.
    """

    kind: str  # program, alone, module, sh or pycon
    text: str
    line: int
    printed: str = ""

    @property
    def name(self) -> str:
        """The name of its file, in its first line."""
        return self.text.split("\n", 1)[0].removeprefix("# ")


def pages_of_docs(*suffixes: str) -> list[Path]:
    """Return all pages with these suffixes, by default Markdown, without built ones."""
    suffixes = suffixes or (".md",)
    written = [path for path in (ROOT / "docs").iterdir() if path.name != "_build"]
    paths = (path for top in written for path in (top, *top.rglob("*")))
    return sorted(path for path in paths if path.suffix in suffixes)


def blocks_of(page: str) -> list[Block]:
    """Return all fenced blocks of a page; a block that cannot be run is an error.

    Commands are ``sh``. Programs are ``python``, with the name of their file in the first line: if
    later commands contain it, it is a module; others open an operator and run under mpirun, or in
    one process if they open it with None. ``pycon`` is an example of doctest; the examples of a
    page share their names. Blocks with a fence of colons are for Sphinx.
    """
    blocks: list[Block] = []
    inside: list[str] | None = None
    for number, line in enumerate(page.splitlines(), start=1):
        if not re.match(r"\s*(```|~~~)", line):
            if inside is not None:
                inside.append(line)
            continue
        if inside is None:
            languages = ("```python", "```sh", "```text", "```pycon")
            assert line in languages, f"line {number}: {line} is not run"
            language, start, inside = line[3:], number, []
            continue
        assert line == "```", f"line {number}: {line} within a block"
        text, inside = "\n".join(inside) + "\n", None
        if language == "text":
            printer = blocks[-1].kind if blocks else "pycon"
            assert printer != "pycon", f"line {start}: nothing has printed this"
            assert not blocks[-1].printed, f"line {start}: printed twice"
            blocks[-1].printed = text
            continue
        blocks.append(Block("program" if language == "python" else language, text, start))
        if language == "pycon":
            assert text.startswith(">>> "), f"line {start}: expected an example of doctest"
        if language == "python":
            named = re.fullmatch(r"\w+\.py", blocks[-1].name)
            assert named, f"line {start}: expected a line # name.py at first"
    assert inside is None, "the last block does not end"
    for index, block in enumerate(blocks):
        if block.kind == "program":
            later = "".join(b.text for b in blocks[index:] if b.kind == "sh")
            if re.search(rf"[ /]{block.name.removesuffix('.py')}(:|\.py)", later):
                block.kind = "module"
                assert not block.printed, f"line {block.line}: the command prints, not the module"
                continue
            opens = re.search(r"open_operator\([^()]*", block.text)
            assert opens, f"line {block.line}: no command uses this module"
            if re.search(r", None\b", opens[0]):
                block.kind = "alone"
            assert block.printed, f"line {block.line}: what does this program print?"
    return blocks
