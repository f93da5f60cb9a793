# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors

# shellcheck shell=bash
#
# Roots of other Debian releases: making one from packages, and running things in it. Sourced by scripts/test-in and
# scripts/in-debian, after packages.sh. Linux and root only.

weftRootPackages() {
  cat <<'LIST'
mmdebstrap          makes the root
mount               gives it /proc, /sys and /dev
LIST
}

weftNeedRoot() {
  [[ $(id -u) -eq 0 ]] || { echo "error: a root of another release is made and entered as root" >&2; return 1; }
}

# weftMakeRoot ROOT RELEASE PACKAGES: PACKAGES by commas. Nothing is left of a root that was not finished.
weftMakeRoot() {
  local root=$1 release=$2 packages=$3 unfinished=$1.unfinished from
  from=$(weftMirror) || return 1
  echo "== makes a root of $release in $root: some minutes, and a few hundred MiB of packages from $from"
  rm -rf "$unfinished"
  # Left of || set -e ends nothing.
  mmdebstrap --variant=apt --include="$packages" "$release" "$unfinished" "$from" || { rm -rf "$unfinished"; return 1; }
  mv "$unfinished" "$root"
}

# weftHaveRoot ROOT RELEASE PACKAGES: makes the root unless it is there. One caller at a time; others wait.
weftHaveRoot() {
  local folder=${1%/*}/.cache lock status=0
  mkdir -p "$folder"
  exec {lock}>"$folder/${1##*/}.lock"
  flock --nonblock "$lock" || { echo "another run is making $1; waiting for it"; flock "$lock"; }
  [[ -d $1 ]] || weftMakeRoot "$@" || status=1
  exec {lock}>&-
  return "$status"
}

# weftInRoot ROOT BOUND [NAME=VALUE...] COMMAND...: runs COMMAND in the root, with /proc, /sys, /dev and, unless it is
# empty, the folder BOUND at its own place, in mount and process namespaces that go with it. The environment is only
# what is given, and the proxies of this one. Should the caller be ended, so is all of that: the first process of a
# namespace does not hear a request. With weftShareProcesses set, there is no process namespace: COMMAND takes this process's
# place and group, and its numbers of processes are everyone's.
weftInRoot() {
  local root=$1 bound=$2 proxies processes=(--pid --fork --kill-child)
  [[ -z ${weftShareProcesses-} ]] || processes=()
  shift 2
  mapfile -t proxies < <(weftProxies)
  setpriv --pdeathsig KILL unshare --mount "${processes[@]}" bash -c '
    set -e
    mount --bind "$1" "$1"
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    if [[ -n $2 ]]; then mkdir -p "$1$2"; mount --bind "$2" "$1$2"; fi
    exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${@:3}"' \
    weftInRoot "$root" "$bound" "${proxies[@]}" "$@"
}

# weftRootHas ROOT PACKAGES: whether all of them, by commas, are installed there.
weftRootHas() {
  local package
  for package in ${2//,/ }; do
    [[ $(chroot "$1" dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || return 1
  done
}
