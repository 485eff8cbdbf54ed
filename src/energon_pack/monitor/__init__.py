# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The worker-memory monitor: shows a memory death coming, says who and why, and stops in order."""

from energon_pack.monitor.monitor import MemoryMonitor, WorkerMemoryError

__all__ = ["MemoryMonitor", "WorkerMemoryError"]
