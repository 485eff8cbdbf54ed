# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Imported once by the server that forks the ranks."""

import warnings

from energon_pack.bridge.without_gpu import prepare_import

prepare_import()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import integration.jobs  # noqa: F401
    import megatron.bridge.recipes.qwen_vl  # noqa: F401
