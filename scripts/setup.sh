#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
# Make .venv with the interpreter that .python-version names and the pinned packages in it.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=$(cat .python-version)

fail() { echo "energon-pack: $1" >&2; exit 1; }

is_wanted() {
  [[ $("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) == "$wanted" ]]
}

find_python() {
  local candidate
  for candidate in "python$wanted" python3 "$HOME/.pyenv/versions/$wanted".*/bin/python; do
    if is_wanted "$candidate"; then echo "$candidate"; return; fi
  done
  candidate=$(uv python find "$wanted" 2>/dev/null) && is_wanted "$candidate" && echo "$candidate"
}

if ! is_wanted .venv/bin/python; then
  python=$(find_python) ||
    fail "Python $wanted is missing; install it as python$wanted, with pyenv or with uv."
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "the venv module of Python $wanted is missing; install it (Debian: python$wanted-venv)."
  rm -rf .venv
  "$python" -m venv .venv
fi

uv=$(grep '^uv==' constraints.txt)
[[ $(.venv/bin/uv --version 2>/dev/null) == "uv ${uv#uv==}"* ]] ||
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$uv" ||
  fail "$uv could not be installed; the package index must be reachable."

# Everything is pinned, so nothing is resolved.
.venv/bin/uv pip install --python .venv/bin/python --no-deps --requirement constraints.txt ||
  fail "the packages of constraints.txt could not be installed; see the lines above."
.venv/bin/uv pip install --python .venv/bin/python --no-deps --no-build-isolation --editable . ||
  fail "energon-pack itself could not be installed; see the lines above."
