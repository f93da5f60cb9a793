// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
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
//
// With NEWER_RECEIVES=1 its cards need a posted receive for each notification (FI_RX_CQ_DATA), so they are
// shown only to who offers to post some. The functions newer_* at the end are for the test.
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

// The receives that are posted, and what is to go wrong with them.
struct Receives {
  std::deque<void*> posted;
  size_t refuse = 0;    // so many of the next are
  size_t fail = 0;      // so many of those posted end in an error
  size_t notReady = 0;  // notifications that found none
};
Receives receives;

bool needReceives() {
  const char* value = softefa::environment("NEWER_RECEIVES");
  return value && *value == '1';
}

decltype(fi_ops_msg::recv) realReceive;  // never asked
decltype(fi_ops_cq::read) realRead;
decltype(fi_ops_cq::readerr) realReadError;
decltype(fi_ops_domain::cq_open) realOpenQueue;

ssize_t postReceive(fid_ep*, void*, size_t, void*, fi_addr_t, void* context) {
  if (receives.refuse > 0) return receives.refuse--, -FI_EAGAIN;
  receives.posted.push_back(context);
  return 0;
}

ssize_t readQueue(fid_cq* queue, void* out, size_t count) {
  if (receives.fail > 0 && !receives.posted.empty()) return -FI_EAVAIL;
  const ssize_t got = realRead(queue, out, count);
  auto* entries = static_cast<fi_cq_data_entry*>(out);
  for (ssize_t i = 0; i < got; i++) {
    if ((entries[i].flags & FI_REMOTE_CQ_DATA) == 0) continue;
    if (receives.posted.empty()) {
      receives.notReady++;
      entries[i].op_context = nullptr;
      continue;
    }
    entries[i].op_context = receives.posted.front();
    receives.posted.pop_front();
  }
  return got;
}

ssize_t readError(fid_cq* queue, fi_cq_err_entry* out, uint64_t flags) {
  if (receives.fail == 0 || receives.posted.empty()) return realReadError(queue, out, flags);
  receives.fail--;
  *out = {};
  out->op_context = receives.posted.front();
  out->err = FI_ETRUNC;
  receives.posted.pop_front();
  return 1;
}

int openQueue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  static fi_ops_cq ops;
  const int code = realOpenQueue(domain, attributes, queue, context);
  if (code != 0 || !needReceives()) return code;
  intercept(&(*queue)->ops, &ops, &fi_ops_cq::readerr, &readError, &realReadError);
  if (ops.read != &readQueue) {
    realRead = ops.read;
    ops.read = &readQueue;
  }
  return 0;
}

int openEndpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  static fi_ops_ep ops;
  static fi_ops_rma rma;
  const int code = realEndpoint(domain, info, endpoint, context);
  if (code != 0) return code;
  intercept(&(*endpoint)->ops, &ops, &fi_ops_ep::setopt, &setOption, &realSetOption);
  intercept(&(*endpoint)->rma, &rma, &fi_ops_rma::writemsg, &writeMessage, &realWrite);
  static fi_ops_msg message;
  if (needReceives()) intercept(&(*endpoint)->msg, &message, &fi_ops_msg::recv, &postReceive, &realReceive);
  return 0;
}

int openDomain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  static fi_ops_domain ops;
  const int code = realDomain(fabric, info, domain, context);
  if (code != 0) return code;
  intercept(&(*domain)->ops, &ops, &fi_ops_domain::endpoint, &openEndpoint, &realEndpoint);
  if (ops.cq_open != &openQueue) {
    realOpenQueue = ops.cq_open;
    ops.cq_open = &openQueue;
  }
  return 0;
}

void rename(fi_info* info, const char* name) {
  realNames[name] = info->fabric_attr->name;
  std::free(info->fabric_attr->name);
  info->fabric_attr->name = ::strdup(name);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

uint32_t fi_version(void) {
  return FI_VERSION(2, 1);
}

int fi_getinfo(uint32_t version, const char* node, const char* service, uint64_t flags, const fi_info* hints,
               fi_info** info) {
  version = std::min(version, real<decltype(fi_version)>("fi_version")());
  const bool offered = hints && (hints->mode & FI_RX_CQ_DATA) != 0;
  // The receives are this library's play: a provider that knew of the offer would want them of its card.
  fi_info asked = hints ? *hints : fi_info{};
  asked.mode &= ~FI_RX_CQ_DATA;
  const int code =
      real<decltype(fi_getinfo)>("fi_getinfo")(version, node, service, flags, hints ? &asked : nullptr, info);
  for (fi_info* one = code == 0 ? *info : nullptr; one; one = one->next) {
    if (std::strcmp(one->fabric_attr->prov_name, "efa") != 0) continue;
    if (needReceives() && !offered) {
      rename(one, "efa-plain");
      continue;
    }
    if (offered) one->mode |= FI_RX_CQ_DATA;
    if (needReceives()) one->rx_attr->size = 16;
    rename(one, "efa-direct");
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

void newer_refuse_receives(size_t count) {
  receives.refuse = count;
}
void newer_fail_receives(size_t count) {
  receives.fail = count;
}
size_t newer_receives_posted(void) {
  return receives.posted.size();
}
size_t newer_not_ready(void) {
  return receives.notReady;
}
}
