# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Hierarchical context parallelism: which two levels to take, and whether a run had them.

``a2a`` exchanges attention heads inside groups of neighbouring ranks, once before and once after
attention; ``p2p`` passes keys and values around a ring of such groups while attention computes.
``a2a`` wants fast links and whole heads: its level has to divide the KV heads of a rank and should
stay in a node. The rest of the context size goes to ``p2p``.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from energon_pack.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Factorisation:
    """One way to split the context size."""

    a2a: int
    p2p: int
    fits: bool
    """Whether it can run: the a2a level divides the KV heads of a rank."""
    recommended: bool
    reason: str

    @property
    def comm_type(self) -> str:
        """``cp_comm_type`` for it; a level of 1 is no level."""
        if self.a2a == 1:
            return "p2p"
        return "a2a" if self.p2p == 1 else "a2a+p2p"


def factorise(
    context: int, *, kv_heads: int, tensor: int = 1, gpus_per_node: int = 8
) -> tuple[Factorisation, ...]:
    """Return every split of the context size, smallest a2a level first; one is recommended.

    Raises ``UserError`` for sizes below 1.
    """
    if min(context, kv_heads, tensor, gpus_per_node) < 1:
        raise UserError("context, KV heads, TP and GPUs a node must each be at least 1")
    heads = max(kv_heads // tensor, 1)
    levels = [a2a for a2a in range(1, context + 1) if context % a2a == 0]
    fitting = [a2a for a2a in levels if heads % a2a == 0 and a2a * tensor <= gpus_per_node]
    best = max(fitting, default=1)
    return tuple(
        Factorisation(
            a2a=a2a,
            p2p=context // a2a,
            fits=heads % a2a == 0,
            recommended=a2a == best,
            reason=_reason(a2a, context // a2a, heads, a2a * tensor, gpus_per_node)
            + ("; the largest such a2a level" if a2a == best else ""),
        )
        for a2a in levels
    )


def _reason(a2a: int, p2p: int, heads: int, span: int, gpus_per_node: int) -> str:
    if heads % a2a:
        return f"cannot run: a2a {a2a} does not divide the {heads} KV heads of a rank"
    if a2a == 1:
        return f"flat ring of {p2p}: every step passes keys and values on, also between nodes"
    if span > gpus_per_node:
        return f"slow: a2a groups span {span} GPUs, a node has {gpus_per_node}"
    ring = f"a ring of {p2p} between them" if p2p > 1 else "no ring is left: cp_comm_type a2a"
    return f"a2a groups span {span} of a node's {gpus_per_node} GPUs, {ring}"


def level_groups(sizes: tuple[int, ...]) -> list[list[list[int]]]:
    """Return the groups that each level should have, over ranks 0 to the product of the sizes.

    For (2, 2): level 0 is [[0, 1], [2, 3]], level 1 is [[0, 2], [1, 3]].
    """
    levels = []
    inner = 1
    for size in sizes:
        starts = [rank for rank in range(math.prod(sizes)) if rank // inner % size == 0]
        levels.append([[start + inner * step for step in range(size)] for start in starts])
        inner *= size
    return levels


LogVerdict = Literal["hierarchical", "flat", "neither"]

# Group names of Megatron Core as torch logs them; other names end in the same words.
_HIERARCHICAL_LINE: Final = re.compile(r"(?<![A-Z_])HIERARCHICAL_CONTEXT_PARALLEL_GROUP")
_FLAT_LINE: Final = re.compile(
    r"(?<![A-Z_])CONTEXT_PARALLEL_GROUP(?![A-Z_])"
    r"|initialized HyperCommGrid with .*\bcp=(?:[2-9]|\d{2,})"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCheck:
    """What a training log says about context-parallel groups."""

    verdict: LogVerdict
    line_number: int | None
    """First line that shows it."""
    line: str = ""

    def __str__(self) -> str:
        """One sentence for a person."""
        shown = f" (line {self.line_number}: {self.line.strip()})" if self.line_number else ""
        return _VERDICTS[self.verdict] + shown


_VERDICTS: Final[dict[LogVerdict, str]] = {
    "hierarchical": "hierarchical context-parallel groups were made",
    "flat": "flat context-parallel groups only: no hierarchy was made",
    "neither": "no context-parallel groups appear; log with TORCH_CPP_LOG_LEVEL=INFO, with which "
    "NCCL groups name themselves",
}


def check_log(lines: Iterable[str]) -> LogCheck:
    """Tell from a training log which context-parallel groups were made."""
    flat: LogCheck | None = None
    for number, line in enumerate(lines, start=1):
        if _HIERARCHICAL_LINE.search(line):
            return LogCheck(verdict="hierarchical", line_number=number, line=line)
        if flat is None and _FLAT_LINE.search(line):
            flat = LogCheck(verdict="flat", line_number=number, line=line)
    return flat or LogCheck(verdict="neither", line_number=None)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read ``2,2``. Raises ``UserError`` for anything but two or more whole numbers above 0."""
    parts = text.split(",")
    if len(parts) < 2 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"{text!r} names no levels; write a2a and p2p sizes such as 2,2")
    return tuple(int(part) for part in parts)
