# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of ``window``: what waits, which pack is next, what was lost."""
