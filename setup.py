"""What pyproject.toml cannot say: the README as it is shown where there are no files beside it."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def description(readme: str, source: str) -> str:
    """The README with whole addresses, or without pictures where the project has none yet."""
    if not source:
        return re.sub(r"!\[[^]]*\]\([^)]*\)\n+", "", readme)
    beside = re.compile(r"(?<=\]\()(?![a-z]+:|#)")
    return beside.sub(f"{source.rstrip('/')}/raw/HEAD/", readme)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=description(readme, project.get("urls", {}).get("Source", "")),
        long_description_content_type="text/markdown",
    )
