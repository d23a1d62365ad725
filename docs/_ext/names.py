"""Names in backquotes of docstrings: links where there is such a name, code elsewhere.

numpydoc has parameters in single backquotes as well as names of functions, so that not each of
them is something to link to. What begins with ``cec_mpi.`` has to be there.
"""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode


def _resolved(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """What is documented under this name in any module, or the name as code."""
    if node.get("refdomain") != "py" or node.get("reftype") != "obj":
        return None
    name = node["reftarget"]
    last = name.rpartition(".")[2]
    entries = env.domains.python_domain.objects
    found = [full for full in entries if full.rpartition(".")[2] == last]
    if len(found) == 1:
        entry = entries[found[0]]
        place = node["refdoc"], entry.docname, entry.node_id
        return make_refnode(app.builder, *place, content, found[0])
    return content if not name.startswith("cec_mpi.") or _is_there(name) else None


def _is_there(name: str) -> bool:
    """Whether a program can import this name, which is of the inside."""
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False


def setup(app: Sphinx) -> dict[str, Any]:
    """Have single backquotes mean names of Python."""
    app.connect("missing-reference", _resolved)
    app.config.default_role = "py:obj"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
