# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of ``plan``: settings of each packing mode, hierarchical context parallelism."""
