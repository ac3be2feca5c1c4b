"""How Sphinx builds the documentation: `make docs`."""

project = "hitbound"
author = "the hitbound authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "hitbound"
html_copy_source = False
html_show_sourcelink = False
myst_heading_anchors = 4
myst_links_external_new_tab = False
exclude_patterns = ["README.md"]
suppress_warnings = ["myst.header"]
