"""The site of `make site`: Sphinx reads notebooks with myst-nb, and runs none of them."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import pages  # noqa: E402
import reference  # noqa: E402

project = "tinydist"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["**/.ipynb_checkpoints", "**/*.csv"]

nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "text/markdown", 1)]
myst_enable_extensions = []  # a $ is money
myst_heading_anchors = 3
myst_url_schemes = {"http": None, "https": None, "page": {"url": "{{path}}"}}
suppress_warnings = ["mystnb.mime_priority", "myst.header"]

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "none"
autodoc_preserve_defaults = True
add_module_names = False

html_theme = "furo"
html_title = "tinydist"
html_theme_options = {  # JupyterLab's names, which outputs use
    "light_css_variables": {"jp-error-color1": "#b71c1c", "jp-success-color1": "#1b5e20"},
    "dark_css_variables": {"jp-error-color1": "#ff8a80", "jp-success-color1": "#81c784"},
}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
html_show_search_summary = False  # a page that is a file may not fetch others
highlight_language = "none"  # of a block that does not say it: commands, mostly
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"


def setup(app):
    app.connect("builder-inited", reference.write)
    app.connect("autodoc-process-docstring", reference.as_rst)
    app.connect("autodoc-skip-member", reference.is_of_others)
    app.connect("source-read", pages.prepare)
    app.connect("html-page-context", pages.finish, priority=900)  # after the theme
