# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A raw sample to a conversation with its media in their places, and the headers of clips."""
