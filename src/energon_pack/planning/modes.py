# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""The exact settings of each packing mode of Megatron-Bridge for a topology.

The functions that end in ``_settings`` return values to print; those that begin with ``apply_`` put
them on a real ``ConfigContainer``, which is reached through ``getattr`` alone.
"""

import dataclasses
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

from energon_pack.errors import UserError
from energon_pack.plan import Topology
from energon_pack.planning.hcp import Factorisation
from energon_pack.settings import Change, Setting, apply_settings

_SPECS: Final = "dataset.offline_packing_specs"
_NO_IN_BATCH: Final = ("Qwen35VL",)


def _topology_settings(topology: Topology) -> list[Setting]:
    why = "the topology of the plan"
    sizes: dict[str, Any] = {
        "tensor_model_parallel_size": topology.tensor,
        "pipeline_model_parallel_size": topology.pipeline,
        "context_parallel_size": topology.context,
        "expert_model_parallel_size": topology.expert,
        "sequence_parallel": topology.scatters_sequence,
        "seq_length": topology.seq_length,
    }
    evaluation = "dist.eval_context_parallel_size"
    return [
        *(Setting(path=f"model.{name}", value=value, why=why) for name, value in sizes.items()),
        *(
            [Setting(path=evaluation, value=topology.eval_context, why=why)]
            if topology.eval_context
            else []
        ),
        Setting(path="dataset.seq_length", value=topology.seq_length, why="equals the model's"),
        Setting(
            path="train.global_batch_size",
            value=topology.global_batch,
            why=f"a multiple of {topology.data} data-parallel ranks",
        ),
    ]


def _token_loss_settings() -> list[Setting]:
    return [
        Setting(
            path="model.calculate_per_token_loss",
            value=True,
            why="rows hold different numbers of trained tokens",
        ),
        Setting(
            path="ddp.average_in_collective",
            value=False,
            why="per-token loss has divided by the tokens of all ranks already",
        ),
    ]


def _micro_settings(micro: int, why: str) -> list[Setting]:
    paths = ("train.micro_batch_size", "validation.eval_micro_batch_size")
    return [Setting(path=path, value=micro, why=why) for path in paths]


def online_settings(topology: Topology) -> list[Setting]:
    """Return what ``use_packing`` sets beside the dataset itself."""
    return [
        *_topology_settings(topology),
        *_micro_settings(1, "a pack is a whole micro batch"),
        *_token_loss_settings(),
        Setting(path="dataset.alignment", value=topology.alignment, why="segments divide"),
        Setting(path="model.mtp_num_layers", value=None, why="packed rows exclude it"),
    ]


def offline_settings(topology: Topology, *, cuda_graphs: bool = False) -> list[Setting]:
    """Return the settings of packs that are made before training, for text.

    Pack into a fresh output folder after any change. With CUDA graphs the packs need a fixed width,
    padded boundaries and the metadata file that the packing tool writes beside them.
    """
    settings = [
        *_topology_settings(topology),
        *_micro_settings(1, "a pack is a whole micro batch"),
        *(_token_loss_settings() if topology.context > 1 else []),
        Setting(path="dataset.enable_offline_packing", value=True, why="the mode"),
        Setting(
            path=f"{_SPECS}.packed_sequence_size",
            value=topology.seq_length,
            why="equals seq_length",
        ),
        Setting(path=f"{_SPECS}.pad_seq_to_mult", value=topology.alignment, why="segments divide"),
    ]
    if cuda_graphs:
        width = {"pad_to_max_length": True}
        settings += [
            Setting(path=f"{_SPECS}.pad_cu_seqlens", value=True, why="graphs replay fixed shapes"),
            Setting(path="dataset.dataset_kwargs", value=width, why="graphs replay fixed shapes"),
        ]
    return settings


def in_batch_settings(topology: Topology, *, micro_batch: int = 2) -> list[Setting]:
    """Return the settings of packing a micro batch of more than one sample into a row.

    Raises ``UserError`` when the global batch does not divide.
    """
    if micro_batch < 2 or topology.global_batch % (micro_batch * topology.data):
        raise UserError(
            f"in-batch packing takes a micro batch of 2 or more that divides the "
            f"{topology.global_batch // topology.data} samples of a rank; {micro_batch} does not"
        )
    return [
        *_topology_settings(topology),
        *_micro_settings(micro_batch, "its samples are packed into one row"),
        *(_token_loss_settings() if topology.context > 1 else []),
        Setting(path="dataset.enable_in_batch_packing", value=True, why="the mode"),
        Setting(
            path="dataset.defer_in_batch_packing_to_step",
            value=False,
            why="vlm_step takes rows that are packed already",
        ),
        Setting(
            path="dataset.in_batch_packing_pad_to_multiple_of",
            value=topology.alignment,
            why="segments divide",
        ),
    ]


def long_context_settings(topology: Topology) -> list[Setting]:
    """Return the settings of context parallelism, packed or not.

    Raises ``UserError`` when seq_length does not divide.
    """
    if topology.seq_length % topology.alignment:
        raise UserError(
            f"seq_length {topology.seq_length} is no multiple of {topology.alignment}, which "
            f"CP {topology.context} needs"
        )
    return [*_topology_settings(topology), *_token_loss_settings()]


def hierarchical_settings(topology: Topology, sizes: tuple[int, int]) -> list[Setting]:
    """Return the settings of context parallelism in two levels: a2a inside, p2p outside.

    Raises ``UserError`` when the sizes do not multiply to the context size.
    """
    if sizes[0] * sizes[1] != topology.context:
        raise UserError(f"sizes {sizes[0]},{sizes[1]} do not multiply to CP {topology.context}")
    return [
        *long_context_settings(topology),
        Setting(path="model.cp_comm_type", value="a2a+p2p", why="the mode"),
        Setting(
            path="model.hierarchical_context_parallel_sizes",
            value=list(sizes),
            why="without them no groups are made",
        ),
        Setting(path="dist.use_decentralized_pg", value=False, why="the groups come from MPU"),
    ]


def apply_offline_packing(
    cfg: Any, topology: Topology, *, cuda_graphs: bool = False
) -> list[Change]:
    """Set offline packing on a text SFT config; return what changed.

    Raises ``UserError`` when its dataset cannot be packed offline.
    """
    _need(cfg, "offline_packing_specs", "GPTSFTDatasetConfig")
    if cfg.dataset.offline_packing_specs is None:
        cfg.dataset.offline_packing_specs = _field_class(cfg.dataset, "offline_packing_specs")()
    return apply_settings(cfg, offline_settings(topology, cuda_graphs=cuda_graphs))


def apply_in_batch_packing(cfg: Any, topology: Topology, *, micro_batch: int = 2) -> list[Change]:
    """Set in-batch packing on a vision-language config; return what changed.

    Raises ``UserError`` when its dataset or its model refuses it.
    """
    _need(cfg, "enable_in_batch_packing", "DirectHFSFTDatasetConfig or EnergonDatasetConfig")
    kind = type(cfg.model).__name__
    if kind.startswith(_NO_IN_BATCH):
        raise UserError(f"{kind} refuses in-batch packing; use online packing for it")
    return apply_settings(cfg, in_batch_settings(topology, micro_batch=micro_batch))


def apply_long_context(cfg: Any, topology: Topology) -> list[Change]:
    """Set context parallelism on a config; return what changed."""
    return apply_settings(cfg, long_context_settings(topology))


def apply_hierarchical_cp(cfg: Any, topology: Topology, sizes: tuple[int, int]) -> list[Change]:
    """Set context parallelism in two levels on a config; return what changed."""
    return apply_settings(cfg, hierarchical_settings(topology, sizes))


def _need(cfg: Any, name: str, kinds: str) -> None:
    if not hasattr(cfg.dataset, name):
        raise UserError(f"{type(cfg.dataset).__name__} has no {name}; this mode is for {kinds}")


def _field_class(owner: Any, name: str) -> Any:
    """Return the class that a dataclass field is declared with, beside ``None``."""
    hint = typing.get_type_hints(type(owner))[name]
    found = [kind for kind in typing.get_args(hint) if dataclasses.is_dataclass(kind)]
    assert len(found) == 1, hint
    return found[0]


def _recommended(topology: Topology, splits: Sequence[Factorisation]) -> list[Setting]:
    split = next(split for split in splits if split.recommended)
    if split.comm_type != "a2a+p2p":
        raise UserError(
            f"CP {topology.context} is best without two levels, as {split.comm_type}: "
            f"{split.reason}"
        )
    return hierarchical_settings(topology, (split.a2a, split.p2p))


Mode = Callable[[Topology, Sequence[Factorisation]], list[Setting]]

MODES: Final[dict[str, Mode]] = {
    "online": lambda topology, _: online_settings(topology),
    "offline": lambda topology, _: offline_settings(topology),
    "in-batch": lambda topology, _: in_batch_settings(topology),
    "long-context": lambda topology, _: long_context_settings(topology),
    "hierarchical": _recommended,
}
"""Packing modes by name; the splits of the context size are for the last one."""
