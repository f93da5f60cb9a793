# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors

# shellcheck shell=bash
#
# Gets a Debian kernel with SoftRoCE for scripts/rdma-vm, and makes the initramfs that brings the guest up. Nothing
# of this machine's package state changes: another suite is read with lists and caches of its own. Sourced, after
# packages.sh.

# Where SoftRoCE works best: in namespaces, and with the fixes of years.
weftGuestSuite=trixie-backports
weftGuestLib=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

# All that the guest needs before it sees this machine's files, and the devices; a kernel may have some built in.
weftGuestModules=(virtio_pci 9pnet_virtio 9p overlay crc32_generic veth sch_netem ib_uverbs rdma_rxe)

# weftGuestApt FOLDER SUITE TOOL ARGUMENTS...: apt over one suite of the mirror this machine uses.
weftGuestApt() {
  local folder=$1/apt-$2 suite=$2 tool=$3 mirror
  shift 3
  if [[ ! -s $folder/sources.list ]]; then
    mirror=$(weftMirror) || return 1
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    echo "deb $mirror $suite main" >"$folder/sources.list"
  fi
  "$tool" -q -o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$folder/lists" \
    -o Dir::Cache="$folder/cache" -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 "$@"
}

# The version that the suite's linux-image-amd64 stands for: "7.2.12+deb13".
weftGuestKernelVersion() {
  weftGuestApt "$1" "$2" apt-cache show linux-image-amd64 |
    sed -n '/^Depends:/{s/.*linux-image-\([0-9][^ ,]*\)-amd64.*/\1/p;q}'
}

# Later Debian kernels come in three packages, of which "image" is empty.
weftDownloadKernel() { # FOLDER SUITE VERSION WORK
  local kind names=()
  for kind in image binary modules; do
    ! weftGuestApt "$1" "$2" apt-cache show "linux-$kind-$3-amd64" >/dev/null 2>&1 || names+=("linux-$kind-$3-amd64")
  done
  [[ ${#names[@]} -gt 0 ]] || return 1
  (cd "$4" && weftGuestApt "$1" "$2" apt-get download "${names[@]}") >&2 || return 1
  for kind in "$4"/*.deb; do dpkg-deb -x "$kind" "$4/root" || return 1; done
}

# Copies the wanted modules and what they need, unpacked, numbered in the order to load them.
weftCopyModules() { # ROOT RELEASE TARGET
  local module file name n=100
  for module in "${weftGuestModules[@]}"; do
    modprobe -d "$1" -S "$2" --show-depends "$module" 2>/dev/null || true
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
    name=$(basename "$file")
    case $file in
      *.xz) xz -dc "$file" ;;
      *.zst) zstd -qdc "$file" ;;
      *) cat "$file" ;;
    esac >"$3/$n-${name%%.*}.ko"
    n=$((n + 1))
  done
}

# weftUnpackKernel WORK: WORK/root, a kernel's packages, becomes WORK/out with vmlinuz, initrd and release.
weftUnpackKernel() {
  local root=$1/root modules image release
  modules=$(find "$root" -type d -path '*/lib/modules/*' -prune -print -quit)
  image=$(find "$root" -name 'vmlinuz*' -type f -print -quit)
  [[ -n $modules && -n $image ]] || { echo "rdma-vm: there is no kernel in those packages" >&2; return 1; }
  release=${modules##*/}
  mkdir -p "$1/out" "$1/init"/{bin,dev,proc,sys,modules,root,talk,top}
  [[ -e $root/lib ]] || ln -s usr/lib "$root/lib"
  depmod -b "$root" "$release" 2>/dev/null || return 1
  weftCopyModules "$root" "$release" "$1/init/modules"
  [[ -n $(find "$1/init/modules" -name '*rdma_rxe.ko') ]] || { echo "rdma-vm: Linux $release has no SoftRoCE" >&2; return 1; }
  cp "$(command -v busybox)" "$1/init/bin/busybox" || return 1
  install -m 755 "$weftGuestLib/guest_init" "$1/init/init" || return 1
  (cd "$1/init" && find . | busybox cpio -o -H newc 2>/dev/null) >"$1/out/initrd" || return 1
  cp "$image" "$1/out/vmlinuz" && echo "$release" >"$1/out/release"
}

# weftBuildKernel FOLDER SUITE VERSION RESULT: RESULT is FOLDER/SUITE-something.
weftBuildKernel() {
  local work status=0
  work=$(mktemp -d "$1/work.XXXXXX")
  { weftDownloadKernel "$1" "$2" "$3" "$work" && weftUnpackKernel "$work"; } || status=1
  rm -rf "$1/$2"-* # those made by earlier versions of this script
  [[ $status -ne 0 ]] || mv "$work/out" "$4"
  rm -rf "$work"
  return "$status"
}

# weftGuestKernelOf FOLDER SUITE: prints where the suite's kernel lies, after fetching it if need be.
weftGuestKernelOf() {
  local folder=$1 suite=$2 version stamp result
  stamp=$(cat "$weftGuestLib/guest_init" "$weftGuestLib/guest_kernel.sh" | cksum | cut -d ' ' -f 1)
  result=$folder/$suite-$stamp
  if [[ ! -s $result/release ]]; then
    echo "rdma-vm: fetching the kernel of $suite" >&2
    weftGuestApt "$folder" "$suite" apt-get update >&2 || return 1
    version=$(weftGuestKernelVersion "$folder" "$suite")
    [[ -n $version ]] || { echo "rdma-vm: $suite has no linux-image-amd64" >&2; return 1; }
    weftBuildKernel "$folder" "$suite" "$version" "$result" || return 1
  fi
  echo "$result"
}

# weftGuestKernel FOLDER OWN: the newest kernel, or with OWN this release's; one caller a folder at a time.
weftGuestKernel() {
  local own lock
  own=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  exec {lock}>"$1/lock"
  flock "$lock"
  if [[ -z $2 ]]; then
    ! weftGuestKernelOf "$1" "$weftGuestSuite" || return 0
    echo "rdma-vm: the kernel of $weftGuestSuite cannot be had; taking $own's own, which knows RDMA in one namespace only" >&2
  fi
  weftGuestKernelOf "$1" "$own"
}
