"""How the pages of this folder become a site that needs no network: scripts/docs builds it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from cec_mpi._version import __version__  # noqa: E402

_project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
_source = _project.get("urls", {}).get("Source", "")  # the one setting of where the project is

project = "cec_mpi"
author = _project["authors"][0]["name"]
copyright = author
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "mathml",
    "commands",
    "names",
]
exclude_patterns = ["_build", "_ext"]
nitpicky = True

# --- Markdown and notebooks ---------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_substitutions = {"version": version}
myst_heading_anchors = 4
nb_execution_mode = "force"  # the pages of the gallery show what their code prints now
nb_execution_excludepatterns = ["tutorial/*"]  # a test runs it, and compares what it prints
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120  # seconds of a cell
nb_output_stderr = "remove"  # warnings that depend on the cores of this computer

# --- docstrings ---------------------------------------------------------------------------

autodoc_typehints = "none"  # the docstrings have types, with shapes
autodoc_member_order = "bysource"
autosummary_generate = False  # pages of reference/python say what is on them
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_use_plots = False

# --- pages --------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "cec_mpi"
html_static_path = ["_static"]
html_css_files = ["cec.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it is fetched, and from disk nothing can be
html_theme_options = {
    "logo": {"text": "cec_mpi"},
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "icon_links": (
        [{"name": "Source", "url": _source, "icon": "fa-solid fa-code", "type": "fontawesome"}]
        if _source
        else []
    ),
}
html_context = {"default_mode": "auto"}  # light or dark as the system is, until one picks
html_sidebars = {"index": []}
