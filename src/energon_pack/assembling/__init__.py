# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of ``thd``: the visual half of a row, and its positions."""
