# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of ``measure``: headers, sizes, frame counts, token ids, labels."""
