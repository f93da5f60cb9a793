// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "tests/softefa/settings.h"
#include "tests/support/front_libfabric.h"

using namespace weft::test;

// A libfabric in front of the installed one, which may be too old to have the fabric "efa-direct" and the
// endpoint option for lines of 128 bytes in order: it calls EFA's reliable datagrams by that name, and takes
// the option or not, as NEWER_LINES says (1, 0). NEWER_LINES=once takes it the first time only. Writes that
// are to be kept for the next one (FI_MORE) it would lose when the card has no room for that one: it ends the
// process.
namespace {

constexpr int kLinesInOrder = -(0xefa << 16) + 6;
std::map<std::string, std::string> realNames;  // of fabrics, by domain

int setOption(fid*, int level, int option, const void* value, size_t length) {
  if (level != FI_OPT_ENDPOINT || option != kLinesInOrder) return -FI_ENOPROTOOPT;
  if (length != sizeof(bool) || !*static_cast<const bool*>(value)) return -FI_EINVAL;
  const char* lines = softefa::environment("NEWER_LINES");
  static int calls = 0;
  const bool taken =
      lines && (std::strcmp(lines, "1") == 0 || (std::strcmp(lines, "once") == 0 && calls++ == 0));
  return taken ? 0 : -FI_EOPNOTSUPP;
}

decltype(fi_ops_domain::endpoint) realEndpoint;
decltype(fi_ops_rma::writemsg) realWrite;
decltype(fi_ops_fabric::domain) realDomain;
decltype(fi_ops_ep::setopt) realSetOption;  // never asked

ssize_t writeMessage(fid_ep* endpoint, const fi_msg_rma* message, uint64_t flags) {
  if ((flags & FI_MORE) == 0) return realWrite(endpoint, message, flags);
  std::fprintf(stderr, "newer libfabric: a write was given with FI_MORE, and may be lost without a word\n");
  std::abort();
}

int openEndpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  static fi_ops_ep ops;
  static fi_ops_rma rma;
  const int code = realEndpoint(domain, info, endpoint, context);
  if (code != 0) return code;
  intercept(&(*endpoint)->ops, &ops, &fi_ops_ep::setopt, &setOption, &realSetOption);
  intercept(&(*endpoint)->rma, &rma, &fi_ops_rma::writemsg, &writeMessage, &realWrite);
  return 0;
}

int openDomain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  static fi_ops_domain ops;
  const int code = realDomain(fabric, info, domain, context);
  if (code != 0) return code;
  intercept(&(*domain)->ops, &ops, &fi_ops_domain::endpoint, &openEndpoint, &realEndpoint);
  return 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

uint32_t fi_version(void) {
  return FI_VERSION(2, 1);
}

int fi_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags, const fi_info* hints,
               fi_info** info) {
  const int code = real<decltype(fi_getinfo)>("fi_getinfo")(version, node, service, flags, hints, info);
  for (fi_info* one = code == 0 ? *info : nullptr; one; one = one->next) {
    if (std::strcmp(one->fabric_attr->prov_name, "efa") != 0) continue;
    realNames["efa-direct"] = one->fabric_attr->name;
    std::free(one->fabric_attr->name);
    one->fabric_attr->name = ::strdup("efa-direct");
  }
  return code;
}

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  static fi_ops_fabric ops;
  fi_fabric_attr attr = *attributes;
  if (const auto found = realNames.find(attr.name ? attr.name : ""); found != realNames.end())
    attr.name = found->second.data();
  const int code = real<decltype(fi_fabric)>("fi_fabric")(&attr, fabric, context);
  if (code != 0) return code;
  intercept(&(*fabric)->ops, &ops, &fi_ops_fabric::domain, &openDomain, &realDomain);
  return 0;
}
}
