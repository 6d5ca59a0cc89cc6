# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts share. Sourced.

# The project's folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [[ -t 2 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' red='' plain=''
fi

# Progress goes to standard error: standard output is for results.
say() { printf '%s==>%s %s\n' "$bold" "$plain" "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
fail() {
  printf '%serror:%s %s\n' "$red" "$plain" "$*" >&2
  exit 1
}

# Wrong arguments: exit code 2, like the programs.
usage_error() {
  printf '%serror:%s %s\nTry %s --help.\n' "$red" "$plain" "$1" "$0" >&2
  exit 2
}

# as_root COMMAND...: runs it as root.
as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "this needs root: run the script as root, or install sudo"
  fi
}

# build PRESET [TARGET...]: configures and builds; without targets, everything.
build() {
  local preset=$1 targets=()
  shift
  if [[ $# -gt 0 ]]; then targets=(--target "$@"); fi
  # Paths relative to the clone, so that a second clone of the same sources finds the first one's objects in ccache.
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  say "configuring (preset $preset)"
  local log="$root/build/$preset-configure.log"
  mkdir -p "$root/build"
  if ! (cd "$root" && cmake --preset "$preset") >"$log" 2>&1; then
    cat "$log" >&2
    fail "cmake --preset $preset failed"
  fi
  say "building into build/$preset (the first time takes many minutes, later ones seconds)"
  (cd "$root" && cmake --build --preset "$preset" "${targets[@]}") >&2
}

# The folder for downloads, outside git.
cache_dir() {
  if [[ -n ${BATON_CACHE_DIR:-} ]]; then
    printf '%s\n' "$BATON_CACHE_DIR"
  elif [[ -n ${XDG_CACHE_HOME:-} ]]; then
    printf '%s\n' "$XDG_CACHE_HOME/baton"
  elif [[ -n ${HOME:-} ]]; then
    printf '%s\n' "$HOME/.cache/baton"
  else
    fail "set BATON_CACHE_DIR: there is no HOME to keep downloads in"
  fi
}
