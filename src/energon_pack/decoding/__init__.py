# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of ``pixels``: encoded media to frames, frames to patches in shared memory."""
