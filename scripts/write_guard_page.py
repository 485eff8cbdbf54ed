# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""Write ``docs/guard.md`` from the rules: each with the facts that break it and what it then says.

python scripts/write_guard_page.py
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from energon_pack.facts import RunFacts
from energon_pack.guard import Finding, run_rules
from energon_pack.rules import RULES
from energon_pack.rules.base import Rule
from energon_pack.strict import parse_dataclass

PAGE: Final = Path(__file__).parents[1] / "docs" / "guard.md"

Facts = Mapping[str, Any]

SOUND: Final[Facts] = {
    "model": {
        "family": "qwen3_vl",
        "kind": "Qwen3VLModelProvider",
        "seq_length": 8192,
        "kv_heads": 8,
        "vision_trained": True,
    },
    "parallel": {"tensor": 2, "context": 2, "world_size": 16},
    "batch": {"global_batch": 32, "eval_global": 32, "step": "vlm_step"},
    "software": {"bridge": "0.6.2", "core": "0.19.2", "transformer_engine": "2.20.2"},
    "machine": {"memory_bytes": 64 << 30, "shared_bytes": 16 << 30, "sample_bytes": 200_000},
    "packing": {"path": "data", "model": "Qwen/Qwen3-VL-8B-Instruct", "alignment": 4},
}

_EXPERTS: Final[Facts] = {"count": 128, "dispatcher": "alltoall"}
_HYBRIDEP: Final[Facts] = {**_EXPERTS, "dispatcher": "flex", "flex_backend": "hybridep"}
_HIERARCHY: Final[Facts] = {"context_comm": ["a2a+p2p"], "hierarchical_sizes": [2, 1]}

BROKEN: Final[dict[str, Facts]] = {
    "model-family": {"model": {"family": "other", "kind": "LlamaModelProvider"}},
    "mtp": {"model": {"mtp": ["model.mtp_num_layers=1"]}},
    "cuda-graphs": {"model": {"graphs": ["model.vision_cuda_graph_impl=transformer_engine"]}},
    "idle-graph-settings": {"model": {"idle_graphs": ["model.vision_cuda_graph_scope=attn"]}},
    "dist-train": {"model": {"dist_train": ["model.dist_train.use_dist_train=True"]}},
    "qwen2-5-context-parallel": {"model": {"family": "qwen2_5_vl"}},
    "qwen2-5-video-time": {"model": {"family": "qwen2_5_vl"}, "packing": {"video_fps": 4.0}},
    "text-only-packs": {"batch": {"overlap_grad_reduce": True}},
    "text-only-packs-fsdp": {"batch": {"megatron_fsdp": True}},
    "linear-attention-kernels": {
        "model": {"family": "qwen3_5_vl"},
        "software": {"linear_attention_kernels": False},
    },
    "pipeline": {"parallel": {"pipeline_switches": ["model.pipeline_model_parallel_size=2"]}},
    "alignment": {"parallel": {"context": 4}},
    "eval-alignment": {"parallel": {"eval_context": 8}},
    "eval-context": {"parallel": {"eval_context": 4}},
    "sequence-length": {
        "model": {"seq_length": 1234},
        "packing": {"seq_length": 1234, "alignment": 1},
    },
    "equal-lengths": {"packing": {"seq_length": 4096}},
    "micro-batch": {"batch": {"micro": 2}},
    "global-batch": {"batch": {"global_batch": 30}},
    "per-token-loss": {"batch": {"per_token_loss": False}},
    "average-in-collective": {"batch": {"average_in_collective": True}},
    "packing-owners": {"other_packing": {"owners": ["dataset.enable_in_batch_packing=True"]}},
    "forward-step": {"batch": {"step": "gpt_step"}},
    "test-split": {"test_split": True},
    "offline-lengths": {"other_packing": {"offline_size": 4096, "offline_multiple": 4}},
    "expert-overlap": {
        "experts": {**_EXPERTS, "overlap": ["model.overlap_moe_expert_parallel_comm=True"]}
    },
    "expert-sequence-parallel": {"experts": _EXPERTS},
    "expert-dispatcher": {"parallel": {"expert": 8}, "experts": _HYBRIDEP},
    "hybridep-uneven-inputs": {"experts": _HYBRIDEP, "packing": {"fixed_width": "never"}},
    "expert-padding": {"experts": _EXPERTS, "packing": {"fixed_width": "always"}},
    "expert-sequence-loss": {"experts": {**_EXPERTS, "balancing": ["seq_aux_loss"]}},
    "expert-capacity": {
        "experts": {**_EXPERTS, "capacity": ["model.moe_expert_capacity_factor=1.0"]}
    },
    "kernel-multiple": {"model": {"fp8": "mxfp8"}, "packing": {"fixed_width": "never"}},
    "hierarchy-sizes-missing": {"parallel": {"context_comm": ["a2a+p2p"]}},
    "hierarchy-sizes-unused": {"parallel": {"hierarchical_sizes": [2, 1]}},
    "hierarchy-product": {"parallel": {**_HIERARCHY, "hierarchical_sizes": [2, 2]}},
    "hierarchy-heads": {"parallel": _HIERARCHY, "model": {"kv_heads": 6}},
    "hierarchy-groups": {"parallel": {**_HIERARCHY, "decentralized_groups": True}},
    "hierarchy-engine": {"parallel": _HIERARCHY, "software": {"transformer_engine": "2.18.0"}},
    "buffer-of-one": {"packing": {"packing_buffer_size": 1}},
    "inexact-resume": {"packing": {"resume_mismatch": "warn"}},
    "shared-memory": {"machine": {"shared_bytes": 64 << 20}, "packing": {"num_workers": 32}},
    "worker-memory": {
        "machine": {"pack_bytes": 192 << 20},
        "packing": {"shuffle_buffer_size": 100_000},
    },
}
"""Facts that break each rule, by its code; what is not named is as in ``SOUND``."""

_HEAD: Final = """\
<!-- Generated by scripts/write_guard_page.py; do not edit. -->
# The guard

The guard reads a run's settings and says, before a cluster is booked, what in them would fail,
train wrongly or waste time: all of it in one report, each finding with its setting, its value, what
follows, the way out and the releases it was read in. Rules change nothing.

It runs at three points: in `use_packing`, again in Megatron-Bridge's own `validate` after every
override on the command line, and on its own:

```bash
energon-pack check --recipe recipes/qwen3_vl.py:qwen3_vl_8b_sft --data data.yaml \\
    --world-size 16 model.context_parallel_size=2
energon-pack check --facts facts.yaml --format json
energon-pack check --list
```

Exit status: 0 no error (warnings and notes may stand), 1 at least one error, 2 not checked, as when
the recipe cannot be built.

A recipe is checked without a GPU and without Transformer Engine. What cannot be known there is
listed under *not checked*, with the reason; it neither passes nor fails. Where Megatron-Bridge is
missing too, describe the run in YAML; what is left out takes the value of a plain run, and
versions, sizes and counts that are left out are unknown:

```yaml
{facts}```

A rule can be skipped with a reason, which the report repeats:

```bash
energon-pack check --facts facts.yaml --skip "text-only-packs=every sample has an image"
```

```python
use_packing(cfg, "data.yaml", skip_rules={{"text-only-packs": "every sample has an image"}})
```

Expert-parallel overlap and delayed weight gradients are the one thing that `use_packing` switches
off after the rules have run: on the model, on `ddp`, on `comm_overlap` and on its user config.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page."""
    facts = yaml.safe_dump(dict(SOUND), sort_keys=False)
    sections = {"error": "Errors", "warning": "Warnings", "note": "Notes"}
    parts = [_HEAD.format(facts=facts)]
    for severity, title in sections.items():
        parts.append(f"## {title}\n")
        parts += [_entry(rule) for rule in RULES if rule.severity == severity]
    return "\n".join(parts)


def _entry(rule: Rule) -> str:
    finding = finding_of(rule.code)
    scope = "" if not rule.any_packing else " Also for runs that Megatron-Bridge packs itself."
    return "\n".join(
        (
            f"### {rule.code}\n",
            f"{rule.wish}{scope}\n",
            f"For example `{finding.setting}` = `{finding.value}`: {finding.consequence}\n",
            f"*Way out:* {finding.fix}\n",
            f"*Read in:* {rule.versions}.\n",
        )
    )


def finding_of(code: str) -> Finding:
    """Return the first finding of a rule on the facts that break it."""
    report = run_rules(facts_of(BROKEN[code]), {})
    return next(finding for finding in report.findings if finding.code == code)


def facts_of(changes: Facts) -> RunFacts:
    """Return the sound facts with changes."""
    return parse_dataclass(RunFacts, dict(_merged(SOUND, changes)))


def _merged(base: Facts, changes: Facts) -> Iterator[tuple[str, Any]]:
    for name in dict.fromkeys((*base, *changes)):
        old, new = base.get(name), changes.get(name)
        if isinstance(new, Mapping):
            yield name, {**(old or {}), **new}
        else:
            yield name, old if name not in changes else new


if __name__ == "__main__":
    main()
