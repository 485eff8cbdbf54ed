# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Rules about hierarchical context parallelism, ``cp_comm_type`` ``a2a+p2p``."""

import math
from collections.abc import Iterator
from typing import Final

from energon_pack.facts import RunFacts
from energon_pack.rules.base import Fault, Rule, Unknown, release_of, rule

HIERARCHICAL: Final = "a2a+p2p"
_SIZES: Final = "model.hierarchical_context_parallel_sizes"
_UNPACKED_SINCE: Final = (1, 12)
# TransformerEngine PR #3290 is in its release branch 2.19; 2.18 still asserts qkv_format != "thd".
_PACKED_SINCE: Final = (2, 19)


@rule("hierarchy-sizes-missing", "error", any_packing=True)
def sizes_missing(facts: RunFacts) -> Iterator[Fault]:
    """Layers with a2a+p2p have its sizes."""
    shape = facts.parallel
    if HIERARCHICAL in shape.context_comm and not shape.hierarchical_sizes:
        yield Fault(
            setting=_SIZES,
            value=None,
            consequence="Megatron-Bridge 0.6.2 refuses it; older releases trained with context "
            "communication silently off, each rank seeing its own slice only.",
            fix=f"Set it to the a2a and the p2p size, product {shape.context}; energon-pack plan "
            "names the recommended pair.",
        )


@rule("hierarchy-sizes-unused", "error", any_packing=True)
def sizes_unused(facts: RunFacts) -> Iterator[Fault]:
    """Sizes stand only beside a2a+p2p."""
    shape = facts.parallel
    if shape.hierarchical_sizes and HIERARCHICAL not in shape.context_comm:
        yield Fault(
            setting=_SIZES,
            value=list(shape.hierarchical_sizes),
            consequence="The groups are made but no layer uses them: attention runs flat.",
            fix=f"Set model.cp_comm_type={HIERARCHICAL}, or unset the sizes.",
        )


@rule("hierarchy-product", "error", any_packing=True)
def product(facts: RunFacts) -> Iterator[Fault]:
    """Two levels, their product the context size."""
    shape = facts.parallel
    sizes = shape.hierarchical_sizes
    if sizes and (math.prod(sizes) != shape.context or len(sizes) != 2):
        yield Fault(
            setting=_SIZES,
            value=list(sizes),
            consequence=f"The product is {math.prod(sizes)}, context_parallel_size is "
            f"{shape.context}, and Transformer Engine takes exactly two levels; groups cannot be "
            "made, or attention stops at the first step.",
            fix="Set two sizes, a2a first, whose product is model.context_parallel_size.",
        )


@rule("hierarchy-heads", "error", any_packing=True)
def heads(facts: RunFacts) -> Iterator[Fault | Unknown]:
    """The a2a level divides the KV heads of a rank."""
    sizes = facts.parallel.hierarchical_sizes
    if not sizes:
        return
    if facts.model.kv_heads is None:
        yield Unknown("the number of KV heads, which the a2a level must divide")
        return
    per_rank = max(facts.model.kv_heads // facts.parallel.tensor, 1)
    if per_rank % sizes[0]:
        yield Fault(
            setting=_SIZES,
            value=list(sizes),
            consequence=f"a2a scatters heads over {sizes[0]} ranks, but a rank has {per_rank} KV "
            f"heads ({facts.model.kv_heads} over TP {facts.parallel.tensor}).",
            fix=f"Choose an a2a level that divides {per_rank}.",
        )


@rule("hierarchy-groups", "error", any_packing=True)
def mpu_groups(facts: RunFacts) -> Iterator[Fault]:
    """Hierarchical groups come from MPU."""
    shape = facts.parallel
    if shape.decentralized_groups and (
        shape.hierarchical_sizes or HIERARCHICAL in shape.context_comm
    ):
        yield Fault(
            setting="dist.use_decentralized_pg",
            value=True,
            consequence="Decentralised groups are flat: the hierarchy is refused or left unset.",
            fix="Set dist.use_decentralized_pg=False.",
        )


@rule("hierarchy-engine", "error", any_packing=True)
def engine(facts: RunFacts) -> Iterator[Fault | Unknown]:
    """Transformer Engine supports a2a+p2p."""
    if HIERARCHICAL not in facts.parallel.context_comm:
        return
    installed = facts.software.transformer_engine
    packs = facts.packing is not None or bool(facts.other_packing.owners)
    since = _PACKED_SINCE if packs else _UNPACKED_SINCE
    wanted = ".".join(map(str, since))
    if installed is None:
        yield Unknown(f"the Transformer Engine that will train; a2a+p2p needs {wanted}")
    elif release_of(installed) < since:
        yield Fault(
            setting="transformer-engine",
            value=installed or "not installed",
            consequence="Attention asserts at the first step: older releases refuse packed rows "
            "with a2a+p2p (TransformerEngine #2208)."
            if packs
            else "Attention asserts at the first step.",
            fix=f"Install Transformer Engine {wanted} or newer, or set model.cp_comm_type=p2p.",
        )


RULES: Final[tuple[Rule, ...]] = (
    sizes_missing,
    sizes_unused,
    product,
    heads,
    mpu_groups,
    engine,
)
