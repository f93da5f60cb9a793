# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors

# shellcheck shell=bash
#
# Configuring and building one Meson build directory, tolerant of what an earlier run left. Sourced.

# Prints the comment block of a script as its help.
weftUsage() {
  sed -n '/^# usage:/,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$1"
}

# weftTracked TOP PATTERN...: paths of what git tracks; that there is none means that git does not work here.
weftTracked() {
  local top=$1 listed
  shift
  listed=$(git -C "$top" ls-files "$@") || listed=''
  [[ -n $listed ]] || { echo "error: git names no sources in $top" >&2; return 1; }
  mapfile -t listed <<<"$listed"
  printf '%s\n' "${listed[@]/#/$top/}"
}

# The checkout a build directory was configured for; empty when it is not one or is incomplete.
weftBuildSource() {
  [[ -f $1/build.ninja && -f $1/meson-info/meson-info.json ]] || return 0
  local info=$1/meson-info/meson-info.json
  python3 -c 'import json, os, sys
sys.stdout.buffer.write(os.fsencode(json.load(open(sys.argv[1]))["directories"]["source"]))' "$info" 2>/dev/null ||
    sed -n 's/.*"directories": *{"source": *"\([^"]*\)".*/\1/p' "$info"
}

# weftAlone TOP BUILD: until this process and what it starts have ended, others wait here before they touch BUILD.
weftAlone() {
  local file=$1/.cache/${2##*/}.lock
  mkdir -p "$1/.cache"
  exec {weftLock}> "$file"
  flock --nonblock "$weftLock" && return
  echo "build: another run is building $2; waiting for it"
  flock --timeout 3600 "$weftLock" && return
  echo "error: another run has been building $2 for an hour; end it; its lock is $file" >&2
  return 1
}

# weftCompiles BUILD LANGUAGE COMPILER: whether it is what the directory was set up with (Meson may put a cache in front). A
# language of which nothing is compiled has no rule there.
weftCompiles() {
  local command
  # shellcheck disable=SC2016 # Meson's own variable
  command=$(sed -n '/^rule '"$2"'_COMPILER$/{n;s/^ command = \(.*\) \$ARGS .*/\1/p;q}' "$1/build.ninja")
  [[ -z $command || " $command" == *" $3" ]]
}

# Why a build directory cannot be gone on with; nothing when it can. CC and CXX count where they are set.
weftStale() { # TOP BUILD
  if [[ $(weftBuildSource "$2") != "$1" ]]; then
    echo "incomplete or of another checkout"
  elif [[ -n ${CC-} ]] && ! weftCompiles "$2" c "$CC"; then
    echo "not by $CC"
  elif [[ -n ${CXX-} ]] && ! weftCompiles "$2" cpp "$CXX"; then
    echo "not by $CXX"
  fi
}

# weftConfigure TOP BUILD [meson options...]: sets BUILD up, or again when it belongs to another place or compiler.
weftConfigure() {
  local top=$1 build=$2 stale=
  shift 2
  [[ ! -d $build ]] || stale=$(weftStale "$top" "$build")
  if [[ -n $stale ]]; then
    echo "build: $build is $stale; starting it again"
    rm -rf "$build"
  fi
  if [[ -d $build ]]; then
    [[ $# -eq 0 ]] || meson configure "$build" "$@"
  else
    meson setup "$build" "$top" "$@"
  fi
}

# The options of build-release/ that a compiler sees, the same in every script, so that none compiles again what another did.
# Warnings are errors with the compilers of Debian 12 and 13, which are known to give none; another one may know more.
# shellcheck disable=SC2120 # a cross build names its compiler (arm64.sh)
weftReleaseOptions() { # [COMPILER]
  echo -Dbuildtype=release
  case ${CXX-}$("${1:-g++}" -dumpversion 2>/dev/null) in
    12 | 14) echo -Dwerror=true ;;
    *) echo -Dwerror=false ;;
  esac
}

# weftConfigureRelease TOP BUILD [meson options...]
weftConfigureRelease() {
  local options
  # shellcheck disable=SC2119
  mapfile -t options < <(weftReleaseOptions)
  weftConfigure "$@" "${options[@]}"
}

# weftNinja BUILD [targets...]
weftNinja() {
  local build=$1
  shift
  if ! ninja -C "$build" -k 0 "$@"; then # all errors, not only the first
    echo "error: the build in $build failed, see above; a clean start:  rm -rf $build" >&2
    return 1
  fi
}

# weftSaySkipped BUILD: what the build lacks and why, in one line.
weftSaySkipped() {
  local skipped=''
  [[ -d $1/providers/ofi/libweft-ofi.a.p ]] || skipped+="; the libfabric provider (no headers: libfabric-dev)"
  [[ -d $1/providers/verbs/libweft-verbs.a.p ]] || skipped+="; the verbs provider (no headers: libibverbs-dev)"
  skipped=${skipped#; }
  echo "skipped: ${skipped:-nothing}"
}
