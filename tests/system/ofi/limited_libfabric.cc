// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstddef>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "tests/support/front_libfabric.h"

using namespace weft::test;

// The installed libfabric with completion queues that have a largest size, as a card's do, and fail as told.
#pragma GCC visibility push(default)
extern "C" {
size_t largestQueue = ~size_t{0};
bool queuesFail = false;
}
#pragma GCC visibility pop

namespace {

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
  intercept(&(*cq)->ops, &ops, &fi_ops_cq::readfrom, &readFrom, &realRead);
  return 0;
}

int openDomain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  static fi_ops_domain ops;
  const int code = realDomain(fabric, info, domain, context);
  if (code != 0) return code;
  intercept(&(*domain)->ops, &ops, &fi_ops_domain::cq_open, &openQueue, &realOpen);
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

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  static fi_ops_fabric ops;
  const int code = real<decltype(fi_fabric)>("fi_fabric")(attributes, fabric, context);
  if (code != 0) return code;
  intercept(&(*fabric)->ops, &ops, &fi_ops_fabric::domain, &openDomain, &realDomain);
  return 0;
}
}
