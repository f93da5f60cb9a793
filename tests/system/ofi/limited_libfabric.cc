// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstddef>
#include <dlfcn.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

// The installed libfabric with completion queues that have a largest size, as a card's do, and fail as told.
#pragma GCC visibility push(default)
extern "C" {
size_t largestQueue = ~size_t{0};
bool queuesFail = false;
}
#pragma GCC visibility pop

namespace {

template <class Function>
Function* real(const char* name) {
  static void* const library = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

template <class Ops>
void replace(Ops** table, Ops* copy) {
  if (*table == copy) return;
  *copy = **table;
  *table = copy;
}

decltype(fi_ops_cq::readfrom) realRead;
decltype(fi_ops_domain::cq_open) realOpen;
decltype(fi_ops_fabric::domain) realDomain;

ssize_t readFrom(fid_cq* cq, void* entries, size_t count, fi_addr_t* sources) {
  return queuesFail ? -FI_EOVERRUN : realRead(cq, entries, count, sources);
}

int openQueue(fid_domain* domain, fi_cq_attr* wanted, fid_cq** cq, void* context) {
  static fi_ops_cq ops;
  if (wanted->size > largestQueue) return -FI_EINVAL;
  const int code = realOpen(domain, wanted, cq, context);
  if (code != 0) return code;
  if ((*cq)->ops != &ops) realRead = (*cq)->ops->readfrom;
  replace(&(*cq)->ops, &ops);
  ops.readfrom = readFrom;
  return 0;
}

int openDomain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  static fi_ops_domain ops;
  const int code = realDomain(fabric, info, domain, context);
  if (code != 0) return code;
  if ((*domain)->ops != &ops) realOpen = (*domain)->ops->cq_open;
  replace(&(*domain)->ops, &ops);
  ops.cq_open = openQueue;
  return 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

uint32_t fi_version(void) {
  return real<decltype(fi_version)>("fi_version")();
}

int fi_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags, const fi_info* hints,
               fi_info** info) {
  return real<decltype(fi_getinfo)>("fi_getinfo")(version, node, service, flags, hints, info);
}

void fi_freeinfo(fi_info* info) {
  real<decltype(fi_freeinfo)>("fi_freeinfo")(info);
}

fi_info* fi_dupinfo(const fi_info* info) {
  return real<decltype(fi_dupinfo)>("fi_dupinfo")(info);
}

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  static fi_ops_fabric ops;
  const int code = real<decltype(fi_fabric)>("fi_fabric")(attributes, fabric, context);
  if (code != 0) return code;
  if ((*fabric)->ops != &ops) realDomain = (*fabric)->ops->domain;
  replace(&(*fabric)->ops, &ops);
  ops.domain = openDomain;
  return 0;
}

const char* fi_strerror(int code) {
  return real<decltype(fi_strerror)>("fi_strerror")(code);
}
}
