"""Programs, modules, commands and examples of pages of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from helpers import ROOT


@dataclass
class Block:
    """A program, a module that commands use, commands or an example, and their output.

    Ranks run a program; one process runs a program that opens an operator with None.
    """

    kind: str  # program, serial program, module, sh or pycon
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
    block_lines: list[str] | None = None
    for number, line in enumerate(page.splitlines(), start=1):
        if not re.match(r"\s*(```|~~~)", line):
            if block_lines is not None:
                block_lines.append(line)
            continue
        if block_lines is None:
            languages = ("```python", "```sh", "```text", "```pycon")
            assert line in languages, f"line {number}: {line} is not run"
            language, start, block_lines = line[3:], number, []
            continue
        assert line == "```", f"line {number}: {line} within a block"
        text, block_lines = "\n".join(block_lines) + "\n", None
        if language == "text":
            prints = bool(blocks) and blocks[-1].kind != "pycon"
            assert prints, f"line {start}: nothing prints this"
            assert not blocks[-1].printed, f"line {start}: printed twice"
            blocks[-1].printed = text
            continue
        blocks.append(Block("program" if language == "python" else language, text, start))
        if language == "pycon":
            assert text.startswith(">>> "), f"line {start}: expected an example of doctest"
        if language == "python":
            has_name = re.fullmatch(r"\w+\.py", blocks[-1].name)
            assert has_name, f"line {start}: expected # name.py in the first line"
    assert block_lines is None, "the last block does not end"
    for index, block in enumerate(blocks):
        if block.kind == "program":
            commands = "".join(b.text for b in blocks[index:] if b.kind == "sh")
            if re.search(rf"[ /]{block.name.removesuffix('.py')}(:|\.py)", commands):
                block.kind = "module"
                assert not block.printed, f"line {block.line}: the command prints, not the module"
                continue
            call = re.search(r"open_operator\([^()]*", block.text)
            assert call, f"line {block.line}: no command uses this module"
            if re.search(r", None\b", call[0]):
                block.kind = "serial program"
            assert block.printed, f"line {block.line}: what does this program print?"
    return blocks
