# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
"""A prepared dataset, looked at before Energon opens it: is it there, and has the split shards?"""

from typing import Any

import yaml
from megatron.energon.epathlib import EPath

from energon_pack.errors import UserError


class DatasetError(UserError):
    """A dataset that cannot be opened: wrong path, not prepared, or a split without samples."""


def check_prepared(path: str, split: str) -> None:
    """Raise ``DatasetError`` unless ``path`` is a prepared dataset whose ``split`` has shards.

    ``path`` is a folder or a MetadatasetV2 file, local or as ``msc://PROFILE/PATH``.
    """
    try:
        _check(EPath(path), path, split)
    except DatasetError:
        raise
    except Exception as error:  # whatever a storage client raises
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DatasetError(f"path {path} cannot be reached: {reason}") from error


def _check(folder: EPath, path: str, split: str) -> None:
    if folder.is_file():
        return
    meta = folder / ".nv-meta"
    if not (meta / ".info.json").is_file() and not (meta / ".info.yaml").is_file():
        if not folder.is_dir():
            kind = " (object stores are msc://PROFILE/PATH)" if "://" in path else ""
            raise DatasetError(
                f"path {path} does not exist; set it to a prepared Energon dataset{kind}"
            )
        raise DatasetError(f"{path} is not prepared; run: energon prepare {path}")
    parts = _split_parts(meta / "split.yaml", path)
    if not parts.get(split):
        has = ", ".join(
            f"{name} ({len(shards)} shards)" for name, shards in parts.items() if shards
        )
        raise DatasetError(
            f"{path} has no shards in its {split} split; it has {has or 'none at all'}; "
            f"run energon prepare again with a share for {split}"
        )


def _split_parts(file: EPath, path: str) -> dict[str, Any]:
    try:
        text = file.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        raise DatasetError(
            f"{path} has no .nv-meta/split.yaml; run: energon prepare {path}"
        ) from None
    try:
        parts = yaml.safe_load(text)["split_parts"]
        return {name: shards or [] for name, shards in parts.items()}
    except (
        yaml.YAMLError,
        RecursionError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise DatasetError(
            f"{file} cannot be read: it does not say which shards are in which split; "
            f"run: energon prepare {path}"
        ) from error
