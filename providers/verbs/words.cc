// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/words.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <sys/resource.h>

#include "src/base/log.h"

// The table of statuses, and the next step for each errno.
namespace weft::verbs {

namespace {

struct Meaning {
  ibv_wc_status status;
  int error;
  const char* words;
};

constexpr Meaning kMeanings[] = {
    {IBV_WC_RETRY_EXC_ERR, ETIMEDOUT,
     "the peer's card did not acknowledge within all retries (transport retries exceeded): its process or "
     "host may be gone; else check the cable, the switch, that both GIDs can reach each other, and PFC or "
     "ECN; WEFT_IB_TIMEOUT and WEFT_IB_RETRY_CNT set how long it is tried"},
    {IBV_WC_RNR_RETRY_EXC_ERR, ENOBUFS,
     "the peer had no receive work for a notification (receiver not ready): it ran out of its budget, which "
     "is an error of weft's"},
    {IBV_WC_WR_FLUSH_ERR, ECANCELED,
     "it was thrown away because the queue pair had failed or was closed before; the first error of this "
     "lane tells why"},
    {IBV_WC_REM_ACCESS_ERR, EACCES,
     "the peer's card refused the memory key or range (remote access error): the memory was deregistered or "
     "is another process's"},
    {IBV_WC_REM_INV_REQ_ERR, EPROTO,
     "the peer's card refused the request as invalid: the two queue pairs do not fit together"},
    {IBV_WC_REM_OP_ERR, EREMOTEIO,
     "the peer's card failed at carrying it out (remote operation error): look at its kernel log"},
    {IBV_WC_LOC_PROT_ERR, EFAULT,
     "this card refused the local memory (local protection error): it was deregistered, or the registration "
     "does not cover it"},
    {IBV_WC_LOC_LEN_ERR, EMSGSIZE, "it is longer than the port's largest message (local length error)"},
    {IBV_WC_LOC_QP_OP_ERR, EIO,
     "this card could not process the queue pair's work (local queue pair operation error): look at the "
     "kernel log"},
    {IBV_WC_LOC_ACCESS_ERR, EACCES, "a peer reached for memory that it may not use (local access error)"},
    {IBV_WC_BAD_RESP_ERR, EPROTO, "the peer's card answered with nonsense (bad response)"},
    {IBV_WC_REM_ABORT_ERR, ECONNABORTED, "the peer's card aborted it"},
    {IBV_WC_FATAL_ERR, EIO, "the card failed (fatal error): look at the kernel log, it may need a reset"},
    {IBV_WC_RESP_TIMEOUT_ERR, ETIMEDOUT, "the peer did not respond in time"},
};

const Meaning* meaningOf(ibv_wc_status status) {
  const auto* found = std::find_if(std::begin(kMeanings), std::end(kMeanings),
                                   [&](const Meaning& meaning) { return meaning.status == status; });
  return found == std::end(kMeanings) ? nullptr : found;
}

// The kernel first refuses to pin memory, so the limit is part of the message.
std::string memlockText() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return format("%llu KiB", static_cast<unsigned long long>(limit.rlim_cur >> 10));
}

std::string nextStep(int code) {
  switch (code) {
    case EPERM:
    case EACCES:
      return "; no permission: this user needs to read and write /dev/infiniband/uverbs* (containers: pass "
             "the devices in, and CAP_IPC_LOCK)";
    case ENOMEM:
      return "; the limit of locked memory (ulimit -l) is " + memlockText() +
             ": raise it to unlimited, or this host or card has no memory left";
    case ENODEV:
      return "; the device is gone, or belongs to another network namespace";
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ETIMEDOUT:
      return "; no route from this rail to the peer's: check that both are in one subnet, or set WEFT_HCA or "
             "WEFT_IB_GID_INDEX on both ends";
    case EINVAL:
      return "; the driver takes none of this: WEFT_IB_GID_INDEX, WEFT_IB_PKEY and WEFT_IB_SL must exist "
             "there";
    case EMFILE:
      return "; raise ulimit -n";
    default:
      return "";
  }
}

}  // namespace

std::string statusWords(ibv_wc_status status, uint32_t vendorCode) {
  const Meaning* meaning = meaningOf(status);
  std::string words = meaning ? meaning->words : format("unknown failure, ibv_wc_status %d", status);
  if (vendorCode != 0) words += format(" (the driver's own code: 0x%x)", vendorCode);
  return words;
}

int statusErrno(ibv_wc_status status) {
  const Meaning* meaning = meaningOf(status);
  return meaning ? meaning->error : EIO;
}

Error verbsError(const char* operation, const std::string& object, int code) {
  const bool limit = code == ENOMEM || code == EMFILE || code == EPERM || code == EACCES;
  return Error(limit ? Code::resources : Code::system, operation, object + nextStep(code), code);
}

std::string eventWords(ibv_event_type type, const std::string& device, int port) {
  switch (type) {
    case IBV_EVENT_PORT_ERR:
      return format(
          "port %d of %s went down: check its cable and switch (ibv_devinfo shows the port's state)", port,
          device.c_str());
    case IBV_EVENT_DEVICE_FATAL:
      return device + " failed as a whole: look at the kernel log, it may need a reset";
    case IBV_EVENT_CQ_ERR:
      return "the completion queue of " + device + " overran, which is an error of weft's";
    case IBV_EVENT_SRQ_ERR:
      return "the shared receive queue of " + device + " failed";
    case IBV_EVENT_QP_FATAL:
      return device + " could not go on with the queue pair: look at the kernel log";
    case IBV_EVENT_QP_REQ_ERR:
      return device + " got a request from the peer that is not valid";
    case IBV_EVENT_QP_ACCESS_ERR:
      return device + " refused the peer's access to memory here: its key or range was wrong";
    default:
      return format("%s reported event %d", device.c_str(), static_cast<int>(type));
  }
}

}  // namespace weft::verbs
