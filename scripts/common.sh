# shellcheck shell=bash
# Sourced by the other scripts: the workspace root as working directory, cargo
# on PATH where rustup put it, one target directory, and a way to give up.
# Sets $root.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit
PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin
export PATH
# The tests and the docs name target/release/libsluice.so: a target directory
# from the caller's environment would put the module elsewhere.
export CARGO_TARGET_DIR=$root/target

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}
