# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A dataset, a processor and a run that anyone can try without downloads from a model hub."""
