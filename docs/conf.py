"""Sphinx settings of the site. scripts/docs builds it; reading it needs no network."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from numpydoc.xref import DEFAULT_LINKS  # noqa: E402

from cec_mpi._version import __version__  # noqa: E402

_project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
_source = _project.get("urls", {}).get("Source", "")  # the only place with this address

project = "cec_mpi"
author = _project["authors"][0]["name"]
copyright = author
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
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
nb_execution_mode = "force"  # pages of the gallery show the current output of their code
nb_execution_excludepatterns = ["tutorial/*"]  # a test runs it, and compares its output
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds for each cell
nb_output_stderr = "remove"  # warnings that depend on the number of cores

# --- docstrings ---------------------------------------------------------------------------

autodoc_typehints = "none"  # docstrings contain types, with shapes
autodoc_member_order = "bysource"
autosummary_generate = False  # pages of reference/python list their contents
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"  # in types, only the words below are links
numpydoc_xref_aliases = {word: word for word in DEFAULT_LINKS} | {
    "array_like": "numpy.typing.ArrayLike",
    "ndarray": "numpy.ndarray",
    "RandomState": "numpy.random.RandomState",
    "LinearOperator": "scipy.sparse.linalg.LinearOperator",
    **{
        name: f":obj:`{name}`"
        for name in (
            *("numpy.dtype", "mpi4py.MPI.Intracomm", "distributed.Client", "contextlib.ExitStack"),
            *("CodedOperator", "OperatorContext", "Recorder", "Checkpoint", "Availability"),
            *("Manifest", "MDSCode", "Plan", "Assignment", "Block"),
        )
    },
}
numpydoc_use_plots = False

# --- links to other projects --------------------------------------------------------------

# An inventory that cannot be read, for example without a network, is replaced by an empty one.
intersphinx_mapping = {
    project: (address, (None, str(HERE / "_ext" / "empty.inv")))
    for project, address in {
        "python": "https://docs.python.org/3",
        "numpy": "https://numpy.org/doc/stable",
        "scipy": "https://docs.scipy.org/doc/scipy",
        "mpi4py": "https://mpi4py.readthedocs.io/en/stable",
        "sklearn": "https://scikit-learn.org/stable",
        "dask": "https://docs.dask.org/en/stable",
        "distributed": "https://distributed.dask.org/en/stable",
    }.items()
}
intersphinx_timeout = 10  # seconds
intersphinx_cache_limit = 0  # days; with a network, the next build has links again

# --- pages --------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "cec_mpi"
html_static_path = ["_static"]
html_css_files = ["cec.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # a page opened from disk cannot fetch it
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
html_context = {"default_mode": "auto"}  # light or dark like the system, until readers choose
html_sidebars = {"index": []}
