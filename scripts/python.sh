#!/usr/bin/env bash
# The Python side of `make test`: builds the wheel, installs it into a fresh environment (target/venv) with what the tests
# need, and runs ruff, mypy and the tests. Words that follow go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

python=""
for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
  if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$name
    break
  fi
done
if [ -z "$python" ]; then
  echo "SKIPPED: the Python package, which needs Python 3.11 or later with the module venv"
  [ -z "${CI:-}" ] || exit 1
  exit 0
fi

venv=target/venv
# An environment of another interpreter, or one that was not finished, is made anew.
if ! "$venv/bin/uv" --version >/dev/null 2>&1 || ! "$venv/bin/python" -c 'import sys' 2>/dev/null; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
fi
# Wheels of other builds would be installed beside the new one.
rm -rf target/wheels
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "maturin>=1.9.4,<2"
"$venv/bin/maturin" build --release --quiet --interpreter "$venv/bin/python" --out target/wheels
wheel=$(echo target/wheels/margay-*.whl)
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --reinstall-package margay "$wheel[dask,plots,advise,docs,test]"

# `scripts/python.sh install` ends here.
[ "${1:-}" != install ] || exit 0

"$venv/bin/ruff" check python site
"$venv/bin/ruff" format --check python site
# The installed package, its tests, and whether the stubs are those of the extension.
(
  cd python/tests
  "../../$venv/bin/mypy" --config-file ../../pyproject.toml -p margay
  "../../$venv/bin/mypy" --config-file ../../pyproject.toml .
  "../../$venv/bin/mypy" --config-file ../../pyproject.toml ../../site
  "../../$venv/bin/stubtest" --mypy-config-file ../../pyproject.toml --allowlist stubtest.txt margay._margay
)
cargo build --release --quiet -p margay
"$venv/bin/python" -m pytest "$@"
