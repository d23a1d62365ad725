"""Make the long description from the README; pyproject.toml cannot change its links."""

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def description(readme: str, source: str) -> str:
    """Return the README with absolute links, or without pictures if `source` is empty."""
    if not source:
        return re.sub(r"!\[[^]]*\]\([^)]*\)\n+", "", readme)
    relative_link = re.compile(r"(?<=\]\()(?![a-z]+:|#)")
    return relative_link.sub(f"{source.rstrip('/')}/raw/HEAD/", readme)


if __name__ == "__main__":
    from setuptools import setup

    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=description(readme, project.get("urls", {}).get("Source", "")),
        long_description_content_type="text/markdown",
    )
