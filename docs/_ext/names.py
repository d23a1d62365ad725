"""Names in single backquotes in docstrings: links if they are documented, code otherwise.

In numpydoc style, names of parameters are in single backquotes too, and these have no entry.
A name that begins with ``cec_mpi.`` must exist. Another dotted name, such as ``numpy.ndarray``,
is a link if the inventory of its project could be read.
"""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.intersphinx import missing_reference
from sphinx.util.nodes import make_refnode


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """Return a link to the documented object of this name, or the name as code."""
    if node.get("refdomain") != "py" or node.get("reftype") != "obj":
        return None
    name = node["reftarget"]
    is_ours = name.startswith("cec_mpi.")
    if "." in name and not is_ours:
        return missing_reference(app, env, node, content) or content
    last = name.rpartition(".")[2]
    entries = env.domains.python_domain.objects
    places = {
        (entry.docname, entry.node_id)  # equal for all aliases of an object
        for full, entry in entries.items()
        if full.rpartition(".")[2] == last
    }
    if len(places) == 1:
        return make_refnode(app.builder, node["refdoc"], *places.pop(), content, name)
    return content if not is_ours or _exists(name) else None


def _exists(name: str) -> bool:
    """Return whether a name without an entry can be imported."""
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False


def setup(app: Sphinx) -> dict[str, Any]:
    """Resolve names in single backquotes as Python objects."""
    app.connect("missing-reference", _resolve, priority=400)  # before intersphinx
    app.config.default_role = "py:obj"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
