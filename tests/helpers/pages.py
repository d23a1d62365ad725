"""Find the programs, modules, commands and examples in pages of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from helpers import ROOT


@dataclass
class Block:
    """A program, a module that commands use, commands, or an example, with its output.

    Ranks run a program; one process runs a program that opens an operator with None.
    """

    kind: str  # program, serial program, module, sh or pycon
    text: str
    line: int
    output: str = ""

    @property
    def name(self) -> str:
        """The file name in the first line."""
        return self.text.split("\n", 1)[0].removeprefix("# ")


def find_pages(*suffixes: str) -> list[Path]:
    """Return all source pages with these suffixes, by default those in Markdown."""
    suffixes = suffixes or (".md",)
    sources = [path for path in (ROOT / "docs").iterdir() if path.name != "_build"]
    paths = (path for top in sources for path in (top, *top.rglob("*")))
    return sorted(path for path in paths if path.suffix in suffixes)


def find_blocks(page: str) -> list[Block]:
    """Return all fenced blocks of a page; fail if a block cannot be run.

    Commands are ``sh``. Programs are ``python``, with their file name in the first line. A program
    whose name occurs in later commands is a module. All others open an operator: they run under
    mpirun, or in one process if they open it with None. ``pycon`` is an example for doctest; the
    examples of a page share one namespace. Blocks with a fence of colons are for Sphinx.
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
            assert line in languages, f"line {number}: {line} cannot be run"
            language, start, block_lines = line[3:], number, []
            continue
        assert line == "```", f"line {number}: {line} within a block"
        text, block_lines = "\n".join(block_lines) + "\n", None
        if language == "text":
            has_source = bool(blocks) and blocks[-1].kind != "pycon"
            assert has_source, f"line {start}: no block above prints this"
            assert not blocks[-1].output, f"line {start}: the block above already has an output"
            blocks[-1].output = text
            continue
        blocks.append(Block("program" if language == "python" else language, text, start))
        if language == "pycon":
            assert text.startswith(">>> "), f"line {start}: expected an example for doctest"
        if language == "python":
            has_name = re.fullmatch(r"\w+\.py", blocks[-1].name)
            assert has_name, f"line {start}: expected # name.py in the first line"
    assert block_lines is None, "the last block is not closed"
    for index, block in enumerate(blocks):
        if block.kind == "program":
            commands = "".join(b.text for b in blocks[index:] if b.kind == "sh")
            if re.search(rf"[ /]{block.name.removesuffix('.py')}(:|\.py)", commands):
                block.kind = "module"
                assert not block.output, f"line {block.line}: a module has no output"
                continue
            call = re.search(r"open_operator\([^()]*", block.text)
            assert call, f"line {block.line}: no command uses this module"
            if re.search(r", None\b", call[0]):
                block.kind = "serial program"
            assert block.output, f"line {block.line}: expected the output of this program"
    return blocks
