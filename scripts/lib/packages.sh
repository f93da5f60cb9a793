# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors

# shellcheck shell=bash
#
# The one place that knows which Debian packages weft is built and tested with. Sourced by scripts/quickstart,
# scripts/test and scripts/rdma-vm. Needs nothing but dpkg and apt; without dpkg it only checks that the tools are there.

# What each package is for, so that nobody has to guess whether it may go.
weftPackages() {
  cat <<'LIST'
g++                 compiler and C++ library
meson               build description
ninja-build         build
pkgconf             finds the libraries below
python3             test runner and generators
binutils            reads symbols (ABI tests)
libfabric-dev       headers of the libfabric provider
libfabric1          the library it opens at run time
libfabric-bin       fi_info and fi_pingpong (efa tests)
libibverbs-dev      headers of the verbs provider and of the software EFA device
libsodium-dev       cryptography of control links, linked statically
catch2              tests
libcli11-dev        command line of the tools
libfmt-dev          output of the tools
nlohmann-json3-dev  --json of the tools
iproute2            network namespaces and links (system tests)
openmpi-bin         starts ranks on several hosts (perf tests)
cmark-gfm           the manual as one HTML page
mount               a /run of their own for tests that cut cables
procps              process tables (system tests)
python3-protobuf    reads Chakra traces (tools tests)
relacy-dev          checks orders of memory (unit tests)
LIST
}

# What scripts/rdma-vm needs besides, here and inside its guest.
weftGuestPackages() {
  cat <<'LIST'
qemu-system-x86     the guest
busybox-static      its first steps
kmod                finds its modules
xz-utils            unpacks them
zstd                likewise
iproute2            its links and SoftRoCE devices
ibverbs-providers   user space driver of SoftRoCE
libibverbs1         the library that the verbs provider opens at run time
ibverbs-utils       ibv_devinfo, for whoever looks at a failure
LIST
}

# What a build for arm64 needs besides, on a machine of another kind.
weftArm64Packages() {
  cat <<'LIST'
g++-aarch64-linux-gnu  compiler and C++ library
qemu-user              runs what it made
util-linux             namespaces in which the kernel knows of that
LIST
}

# The packages of arm64 that lie in a root of their own (scripts/lib/arm64.sh) and are never installed.
weftArm64Libraries() {
  cat <<'LIST'
libc6-dev           C library
libstdc++6          C++ library of the tests
libfabric-dev       headers of the libfabric provider
libfabric1          the library it opens at run time
libibverbs-dev      headers of the verbs provider
libsodium-dev       cryptography of control links
catch2              tests
libcli11-dev        command line of the tools
libfmt-dev          output of the tools
nlohmann-json3-dev  --json of the tools
LIST
}

# weftReleasePackages [KIND...]: what scripts/release needs for these kinds of packages, or for all.
weftReleasePackages() {
  local kinds=" ${*:-deb rpm} "
  weftPackages
  echo 'git                 archives of a commit'
  [[ $kinds != *" deb "* ]] || printf '%s\n' 'debhelper           .deb' 'dpkg-dev            likewise'
  [[ $kinds != *" rpm "* ]] || echo 'rpm                 .rpm'
}

# weftMissingPackages LIST...: each LIST is a function like the two above.
weftMissingPackages() {
  local list name rest state
  for list in "$@"; do
    while read -r name rest; do
      state=$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) || state=absent
      [[ $state == installed ]] || echo "$name"
    done < <("$list")
  done
}

# Runs its arguments as root: directly, or through sudo (which may ask for a password only at a terminal).
weftAsRoot() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif [[ -t 0 ]]; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

# The proxies that the environment names, NAME=VALUE one a line.
weftProxies() {
  env | grep -E '^(http_proxy|https_proxy|no_proxy)=.' || true
}

# weftApt COMMAND ARGUMENTS...: apt-get as root, who gets none of our proxies from sudo.
weftApt() {
  local proxies
  mapfile -t proxies < <(weftProxies)
  weftAsRoot env DEBIAN_FRONTEND=noninteractive "${proxies[@]}" apt-get "$@" -q
}

weftInstall() {
  weftApt install -y --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}

# Refreshes the package lists only when they do not know a wanted package.
weftKnowsPackages() {
  local name
  for name in "$@"; do
    apt-cache show "$name" >/dev/null 2>&1 || return 1
  done
}

weftFindMirror() {
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' | awk '$1 == "Debian" && $2 !~ /security/ && !found++ { print $2 }'
}

# The mirror this machine's own packages come from, which apt knows by its package lists: container images come without any.
weftMirror() {
  local mirror
  mirror=$(weftFindMirror)
  if [[ -z $mirror ]]; then
    echo "packages: refreshing the package lists (apt-get update)" >&2
    weftApt update >&2 || true
    mirror=$(weftFindMirror)
  fi
  [[ -n $mirror ]] || { echo "error: no Debian mirror in this machine's package sources" >&2; return 1; }
  echo "$mirror"
}

weftCheckToolsWithoutDpkg() {
  local tool missing=()
  for tool in g++ meson ninja pkg-config python3; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  if [[ ${#missing[@]} -gt 0 ]]; then
    echo "error: not found: ${missing[*]}; this is not a Debian system, so install the equivalents of:" >&2
    weftPackages >&2
    return 1
  fi
  echo "packages: no dpkg here; the tools are present, Meson will say which libraries are missing"
}

# weftEnsurePackages [LIST...]: installs what is missing of weftPackages, or of the lists named. Prints what it does;
# with nothing missing it needs neither root nor network.
weftEnsurePackages() {
  local missing
  [[ $# -gt 0 ]] || set -- weftPackages
  if ! command -v dpkg-query >/dev/null; then
    weftCheckToolsWithoutDpkg
    return
  fi
  mapfile -t missing < <(weftMissingPackages "$@")
  if [[ ${#missing[@]} -eq 0 ]]; then
    echo "packages: all installed"
    return 0
  fi
  echo "packages: missing: ${missing[*]}"
  if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
    echo "error: installing needs root or sudo; as root, run:  apt-get install ${missing[*]}" >&2
    return 1
  fi
  echo "packages: installing them with apt-get"
  if weftKnowsPackages "${missing[@]}" && weftInstall "${missing[@]}"; then return 0; fi
  echo "packages: refreshing the package lists (apt-get update)"
  if weftApt update && weftInstall "${missing[@]}"; then return 0; fi
  echo "error: apt-get failed, see above; as root, run:  apt-get update && apt-get install ${missing[*]}" >&2
  return 1
}
