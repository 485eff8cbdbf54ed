# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m energon_pack``."""

from energon_pack.cli import main

main()
