#!/bin/sh
# Install pushscope and what it serves, tests and benches with into a virtual environment.
# usage: install.sh PYTHON VENV [LOCK]
# LOCK: pins of the serving environment, in place of cpu.lock.
set -eu
python=$1 venv=$2
here=$(dirname "$0")
lock=${3:-$here/cpu.lock}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "pushscope needs Python 3.11 or newer, found $("$python" --version 2>&1): make PYTHON=/path/to/python" >&2
    exit 1
}
if [ -f /etc/debian_version ] && ! "$python" -c 'import ensurepip' 2>/dev/null; then
    echo "$python has no venv module: apt-get install python3-venv, then make again" >&2
    exit 1
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
[ -x "$venv/bin/uv" ] || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv

# uv ignores pip's configuration; hand on where pip was told to look for wheels.
links=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-$("$python" -m pip config get global.find-links 2>/dev/null || true)}}
if [ -n "$links" ]; then
    UV_FIND_LINKS=$(echo "$links" | tr -s ' \n' ',,')
    export UV_FIND_LINKS
fi
index=${UV_EXTRA_INDEX_URL:-${PIP_EXTRA_INDEX_URL:-}}
[ -z "$index" ] || export UV_EXTRA_INDEX_URL="$index"
export UV_LINK_MODE=${UV_LINK_MODE:-copy} VIRTUAL_ENV="$PWD/$venv"
case $venv in /*) VIRTUAL_ENV=$venv ;; esac

torch=$(grep '^torch==' "$lock")
if ! "$venv/bin/uv" pip install --quiet --no-deps --dry-run "$torch" 2>/dev/null; then
    echo "PyTorch's CPU build ($torch) is not found: PyPI does not carry it; set UV_EXTRA_INDEX_URL to" \
         "PyTorch's CPU wheel index, or UV_FIND_LINKS to a folder with the wheel, and make again." >&2
    exit 1
fi
echo "installing the serving environment (about 3 GB, a minute or two) ..."
"$venv/bin/uv" pip install --quiet --no-deps --compile-bytecode -r "$lock" -r "$here/dev.lock"
"$venv/bin/uv" pip install --quiet --no-deps --editable .
