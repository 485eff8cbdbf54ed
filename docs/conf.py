# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings; `make docs` builds with warnings as errors."""

import energon_pack

project = "energon-pack"
author = "The energon-pack authors"
copyright = "2026, The energon-pack authors"  # noqa: A001 - Sphinx reads this name
version = release = energon_pack.__version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "energon-pack"
