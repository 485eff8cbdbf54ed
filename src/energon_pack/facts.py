# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""What the guard's rules read: a training run as frozen values, from a config or from YAML.

``None`` always means *unknown here*, and a rule that needs the value then says so. A ``Switches``
value lists what is switched on and where, such as ``model.cuda_graph_impl=local``.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from energon_pack.alignment import ParallelShape, required_multiple
from energon_pack.config import PackingConfig
from energon_pack.strict import ConfigError, load_yaml, parse_dataclass

Switches = tuple[str, ...]
FamilyName = Literal["qwen2_5_vl", "qwen3_vl", "qwen3_5_vl", "other"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """What is installed where the facts were read."""

    bridge: str | None = None
    core: str | None = None
    transformer_engine: str | None = None
    """Version; empty when it is known to be absent where the run will be."""
    linear_attention_kernels: bool | None = None
    """Whether flash-linear-attention is there; None where there is no GPU that would need it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """The model as it will be once Megatron-Bridge has finalised it."""

    family: FamilyName
    kind: str = ""
    """Class of ``cfg.model``."""
    seq_length: int
    kv_heads: int | None = None
    vision_trained: bool | None = None
    """Whether any vision weight, projection and adapters included, gets a gradient."""
    mtp: Switches = ()
    graphs: Switches = ()
    """Language, vision, optimizer and FSDP graphs that are on, deprecated fields resolved."""
    idle_graphs: Switches = ()
    """Graph settings that stand without an implementation that would use them."""
    dist_train: Switches = ()
    fp8: str = ""
    """Recipe of low precision, such as ``mxfp8``; empty when there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelFacts:
    """Parallel sizes and how context parallelism talks."""

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    """As resolved: Qwen3-VL's mixtures of experts with tensor parallelism have it."""
    eval_context: int | None = None
    """Context size of evaluation; None when it is that of training."""
    world_size: int | None = None
    ranks_per_node: int = 1
    pipeline_switches: Switches = ()
    context_comm: tuple[str, ...] = ()
    """Distinct ``cp_comm_type`` of the layers; empty when unset."""
    hierarchical_sizes: tuple[int, ...] = ()
    decentralized_groups: bool = False

    @property
    def shape(self) -> ParallelShape:
        """The sizes that a packed row has to divide by."""
        return ParallelShape(
            tensor=self.tensor,
            context=self.context,
            sequence_parallel=self.sequence_parallel,
            eval_context=self.eval_context,
        )

    @property
    def multiple(self) -> int:
        """Alignment in tokens, evaluation included."""
        return required_multiple(self.shape)

    @property
    def data(self) -> int | None:
        """Data-parallel size; None where the world size is unknown or does not divide."""
        replica = self.tensor * self.pipeline * self.context
        if self.world_size is None or self.world_size % replica:
            return None
        return self.world_size // replica


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchFacts:
    """Batch sizes, in packs, and how losses and gradients are reduced."""

    micro: int = 1
    eval_micro: int = 1
    dataset_micro: int | None = None
    """Where the dataset config has a size of its own."""
    global_batch: int | None = None
    eval_global: int | None = None
    per_token_loss: bool = True
    average_in_collective: bool = False
    overlap_grad_reduce: bool = False
    """As resolved: ``comm_overlap`` switches it on where data parallelism is above 1 or unknown."""
    megatron_fsdp: bool = False
    step: str | None = None
    """Forward step of the launcher, such as ``vlm_step``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertFacts:
    """Mixture of experts; ``count`` is 0 in a dense model."""

    count: int = 0
    dispatcher: str = ""
    flex_backend: str = ""
    pads_uneven_inputs: bool = False
    balancing: tuple[str, ...] = ()
    capacity: Switches = ()
    overlap: Switches = ()
    """Communication overlap and delayed weight gradients, wherever they are asked for."""

    @property
    def hybridep(self) -> bool:
        """Whether tokens travel through HybridEP."""
        return self.count > 0 and self.dispatcher == "flex" and self.flex_backend == "hybridep"


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherPacking:
    """Packing that Megatron-Bridge itself is asked to do."""

    owners: Switches = ()
    offline_size: int | None = None
    offline_multiple: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFacts:
    """Memory of the machine the facts were read on, and what a worker needs of it."""

    memory_source: str = "machine"
    """``machine`` or ``cgroup``, whichever binds."""
    memory_bytes: int | None = None
    shared_bytes: int | None = None
    """Size of /dev/shm."""
    sample_bytes: int | None = None
    """Mean compressed bytes of a sample, from the shards' sizes."""
    pack_bytes: int | None = None
    """A pack full of visual tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """One run. Filled once; rules read it and change nothing."""

    model: ModelFacts
    parallel: ParallelFacts = field(default_factory=ParallelFacts)
    batch: BatchFacts = field(default_factory=BatchFacts)
    experts: ExpertFacts = field(default_factory=ExpertFacts)
    other_packing: OtherPacking = field(default_factory=OtherPacking)
    software: Software = field(default_factory=Software)
    machine: MachineFacts = field(default_factory=MachineFacts)
    test_split: bool = False
    packing: PackingConfig | None = None
    """Our dataset; None for a config that Megatron-Bridge packs itself, or does not pack."""

    @property
    def token_multiple(self) -> int:
        """Multiple of a whole row's length that kernels want on every rank; 1 for none."""
        ranks = self.parallel.context
        if self.parallel.sequence_parallel:
            ranks *= self.parallel.tensor
        return kernel_multiple(self) * ranks if kernel_multiple(self) > 1 else 1

    @property
    def fixed_width(self) -> bool:
        """Whether every pack is filled up to seq_length, ``auto`` resolved."""
        if self.packing is None or self.packing.fixed_width == "never":
            return False
        return self.packing.fixed_width == "always" or self.token_multiple > 1


def kernel_multiple(facts: RunFacts) -> int:
    """Return the tokens a rank's kernels want a multiple of.

    HybridEP without padding of uneven inputs 128; block-scaled FP8 128, MXFP8 and FP4 32, other FP8
    16 (Transformer Engine needs the token dimension of the weight gradient to be one).
    """
    wanted = 128 if facts.experts.hybridep and not facts.experts.pads_uneven_inputs else 1
    if not facts.model.fp8:
        return wanted
    low = {"blockwise": 128, "mxfp8": 32, "nvfp4": 32}.get(facts.model.fp8, 16)
    return max(wanted, low)


def load_facts(source: str | Path) -> RunFacts:
    """Read the facts of a run from YAML, for machines without Megatron-Bridge.

    Raises ``ConfigError`` with every problem at once.
    """
    source = Path(source)
    try:
        return parse_dataclass(RunFacts, load_yaml(source))
    except ConfigError as error:
        raise ConfigError(error.problems, str(source)) from None
