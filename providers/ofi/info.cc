// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/info.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "providers/ofi/address.h"
#include "src/base/log.h"
#include "src/base/name_filter.h"
#include "src/base/net/address.h"
#include "src/base/process.h"
#include "src/topo/nic_facts.h"

// From fi_getinfo's list to cards: hints, filters, and the reason of each card that is left out.
namespace weft::ofi {

namespace {

using topo::NicFacts;

constexpr uint64_t kModes = FI_CONTEXT | FI_CONTEXT2;
constexpr int kMemoryModes =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
constexpr size_t kMaxWriteBytes = size_t{1} << 30;
constexpr int kDefaultSpeedMbps = 10000;

// The way in which libfabric is asked for offers.
struct Ask {
  uint32_t api = kApiVersion;
  std::string provider;         // empty: all
  bool receivesPosted = false;  // we would keep receives posted for notifications (FI_RX_CQ_DATA)
};

// The hints ask for nothing optional, since that would hide providers. They offer the mode bits that we can
// serve; the provider clears those that it does not need, but for FI_RX_CQ_DATA: with that EFA gives up
// notifications that need no receive. FI_PROGRESS_MANUAL avoids the progress threads
// that tcp would start. AUTO in the answer is not reliable: such a provider's writes land only while the
// target polls.
InfoPtr makeHints(const Library& library, const Ask& ask) {
  InfoPtr hints = library.allocateInfo();
  if (!hints) return hints;
  hints->caps = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  hints->mode = kModes | (ask.receivesPosted ? FI_RX_CQ_DATA : 0);
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = kMemoryModes;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  if (!ask.provider.empty())
    hints->fabric_attr->prov_name = ::strdup(ask.provider.c_str());  // freed with the hints
  return hints;
}

std::string nicName(const fi_info& info) {
  if (info.nic && info.nic->device_attr && info.nic->device_attr->name) return info.nic->device_attr->name;
  return info.domain_attr->name ? info.domain_attr->name : "?";
}

// Why a provider's offer cannot carry the protocol; empty: it can.
std::string unusable(const Traits& traits, const fi_info& info) {
  const fi_domain_attr& domain = *info.domain_attr;
  if (traits.unfit) return traits.unfit;
  if (domain.cq_data_size < 4)
    return format("a write can carry %zu bytes of notification, 4 are needed", domain.cq_data_size);
  if (domain.cq_data_size < 8 && !traits.reportsLength)
    return "a notification does not tell how long its write was, and has no room for it";
  if (info.mode & ~(kModes | FI_RX_CQ_DATA))
    return format("it needs mode bits we do not serve (0x%llx)", static_cast<unsigned long long>(info.mode));
  if (domain.mr_mode & FI_MR_ENDPOINT) return "it wants memory registered per endpoint (FI_MR_ENDPOINT)";
  if (domain.mr_key_size > 8) return format("its memory keys have %zu bytes, 8 fit", domain.mr_key_size);
  if (traits.software && (domain.mr_mode & (FI_MR_LOCAL | FI_MR_PROV_KEY)))
    return "it chooses memory keys itself, but each Queue has a domain of its own";
  if (traits.software && domain.mr_key_size < 8)
    return format("its memory keys have %zu bytes, 8 are needed", domain.mr_key_size);
  return {};
}

// Why no GPU memory is tried; empty: it may be tried.
std::string withoutGpu(const Library& library, const Traits& traits) {
  if (traits.software) return "libfabric's " + traits.name + " moves data by this machine's processors";
  if (!traits.cardMoves)
    return "libfabric's " + traits.name +
           " may copy by this machine's processors; ofi:efa-direct and verbs leave everything to the card";
  if (library.version() < kDmabufSince)
    return library.versionText() + " registers no dma-buf; 1.20 and later do";
  return {};
}

// What the provider says of the card. Whether it emulates reads and writes is asked in the trial (lines.h).
std::string abilitiesOf(const Traits& traits, const fi_info& info) {
  if (!traits.cardMoves) return {};
  return format("notifications %s; injects up to %zu bytes",
                info.mode & FI_RX_CQ_DATA ? "take posted receives" : "need no receives",
                info.tx_attr->inject_size);
}

Nic makeNic(const Library& library, const Traits& traits, const fi_info& info) {
  Nic nic;
  nic.fabricInfo = library.duplicate(&info);
  // A gate of ours serialises all use of a Queue's domain, so libfabric need not lock.
  if (traits.software) nic.fabricInfo->domain_attr->threading = FI_THREAD_DOMAIN;
  // A Queue has a completion queue and an endpoint of its own, which one thread at a time uses; the domain is
  // every Queue's. So the direct fabric need not lock for each post and poll. The plain one has more in
  // common below its endpoints.
  if (traits.cardMoves) nic.fabricInfo->domain_attr->threading = FI_THREAD_COMPLETION;
  if (traits.mostPackets > 0) {
    nic.fabricInfo->tx_attr->size = std::min(nic.fabricInfo->tx_attr->size, traits.mostPackets);
    nic.fabricInfo->rx_attr->size = std::min(nic.fabricInfo->rx_attr->size, traits.mostPackets);
  }
  if (traits.reportsSource) {  // libfabric 2 leaves it off unless it is asked for
    nic.fabricInfo->caps |= FI_SOURCE;
    nic.fabricInfo->rx_attr->caps |= FI_SOURCE;
  }
  nic.info.name = nicName(info);
  nic.info.provider = "ofi:" + traits.name;
  nic.info.address = addressText(info.addr_format, info.src_addr, info.src_addrlen);
  const NicFacts facts =
      traits.networkCards ? topo::netdevFacts(nic.info.name) : topo::rdmaFacts(nic.info.name, nic.info.port);
  nic.info.pciPath = facts.pciPath;
  nic.info.guid = facts.guid ? facts.guid : topo::madeUpGuid(hostName(), nic.info.name);
  nic.info.numaNode = facts.numaNode;
  nic.info.mtu = facts.mtu;
  nic.info.speedMbps = facts.speedMbps ? facts.speedMbps : kDefaultSpeedMbps;
  nic.info.linkLayer = facts.linkLayer;
  nic.info.virtualFunction = facts.virtualFunction;
  nic.info.targetMustKnow = traits.targetMustKnow;
  nic.info.offload = !traits.software && !traits.networkCards;
  nic.info.withoutGpu = withoutGpu(library, traits);
  nic.info.dmabufMemory = nic.info.cudaMemory = nic.info.withoutGpu.empty();
  nic.info.pcieMapping = true;
  nic.info.abilities = abilitiesOf(traits, info);
  nic.info.latencyUs = traits.latencyUs;
  nic.info.delivery = traits.delivery;
  nic.info.maxWriteBytes = std::min(kMaxWriteBytes, info.ep_attr->max_msg_size);
  return nic;
}

int rankOf(const fi_info& info) {
  return addressRank(info.addr_format, info.src_addr, info.src_addrlen);
}

// Keeps a single Nic for each card: the best of several addresses or duplicate offers, and the first among
// equals.
void addNic(const Library& library, const fi_info& info, Catalogue* catalogue) {
  const auto same = [&](const Nic& nic) { return nic.info.name == nicName(info); };
  const auto known = std::find_if(catalogue->nics.begin(), catalogue->nics.end(), same);
  if (known == catalogue->nics.end()) {
    catalogue->nics.push_back(makeNic(library, catalogue->traits, info));
  } else if (rankOf(info) < rankOf(*known->fabricInfo)) {
    *known = makeNic(library, catalogue->traits, info);
  }
}

void refuse(Catalogue* catalogue, const std::string& what, const std::string& why, bool byUser = false) {
  const auto same = [&](const Refusal& seen) { return seen.what == what && seen.why == why; };
  if (std::none_of(catalogue->refusals.begin(), catalogue->refusals.end(), same))
    catalogue->refusals.push_back({what, why, false, byUser});
}

struct Filter {
  const char* settings;
  std::string value;
};

// The filter that is about this provider's devices. NCCL_IB_HCA is often set to RDMA names; for network cards
// and shared memory it counts only where it names one of them.
Filter filterFor(const Catalogue& catalogue, const Config& config) {
  const Traits& traits = catalogue.traits;
  const bool rdma = !traits.networkCards && !traits.software;
  const NameFilter hca(config.hca);
  const auto named = [&](const Nic& nic) { return hca.names(nic.info.name, nic.info.port); };
  if (rdma || std::any_of(catalogue.nics.begin(), catalogue.nics.end(), named))
    return {"WEFT_HCA (or NCCL_IB_HCA)", config.hca};
  return {"WEFT_SOCKET_IFNAME (or NCCL_SOCKET_IFNAME)", traits.networkCards ? config.socketIfname : ""};
}

// Interfaces that reach no other host. They are used when they are named, or when there is nothing else.
bool staysOnHost(const std::string& name) {
  return name == "lo" || isContainerBridge(name);
}

// libfabric shows the loopback interface also where it is down.
bool isAmong(const std::vector<Interface>& up, const std::string& name) {
  return std::any_of(up.begin(), up.end(), [&](const Interface& one) { return one.name == name; });
}

void keepWanted(Catalogue* catalogue, const Config& config) {
  auto& nics = catalogue->nics;
  const Filter wanted = filterFor(*catalogue, config);
  const NameFilter filter(wanted.value);
  const auto drop = [&](auto unwanted, const std::string& why, bool byUser) {
    for (const Nic& nic : nics)
      if (unwanted(nic)) refuse(catalogue, nic.info.provider + " " + nic.info.name, why, byUser);
    nics.erase(std::remove_if(nics.begin(), nics.end(), unwanted), nics.end());
  };
  drop([&](const Nic& nic) { return !filter.accepts(nic.info.name, nic.info.port); },
       leftOutBy(wanted.settings, wanted.value), true);
  if (!catalogue->traits.networkCards) return;
  if (const auto up = localInterfaces())
    drop([&](const Nic& nic) { return !isAmong(*up, nic.info.name); }, "it is down: ip link set DEVICE up",
         false);
  const auto local = [&](const Nic& nic) {
    return staysOnHost(nic.info.name) && (filter.excludes() || !filter.names(nic.info.name));
  };
  if (!std::all_of(nics.begin(), nics.end(), local))
    drop(local, "it reaches no other host; name it in WEFT_SOCKET_IFNAME to use it", false);
}

// Takes from the list the offers of the provider that the traits describe, card by card.
void collect(const Library& library, const fi_info* list, const Config& config, Catalogue* catalogue) {
  const Traits& traits = catalogue->traits;
  bool seen = false;
  for (const fi_info* info = list; info; info = info->next) {
    const char* fabric = info->fabric_attr->name ? info->fabric_attr->name : "";
    if (!matches(traits, info->fabric_attr->prov_name, fabric)) continue;
    seen = true;
    const std::string why = unusable(traits, *info);
    if (why.empty()) {
      addNic(library, *info, catalogue);
    } else {
      refuse(catalogue, "ofi:" + traits.name + " " + nicName(*info), why);
    }
  }
  if (!seen) {
    refuse(catalogue, "ofi:" + traits.name,
           library.versionText() + " shows no \"" + traits.provider + "\" with reliable datagrams and RMA");
  }
  keepWanted(catalogue, config);
}

Error nothingFound(const Library& library, const std::string& name, int code) {
  const std::string wanted = name.empty() ? "any provider" : "\"" + name + "\"";
  return Error(
      Code::unavailable, "asking libfabric for providers",
      library.versionText() + " has nothing for " + wanted + " (" + library.errorText(code) +
          "): it was built without, the card or its driver is missing, or FI_PROVIDER leaves it out; "
          "fi_info -l shows the providers it has, ls /sys/class/infiniband the RDMA cards");
}

int asking(const Library& library, const Ask& ask, InfoPtr* list) {
  const InfoPtr hints = makeHints(library, ask);
  return hints ? library.getInfo(ask.api, hints.get(), list) : -FI_ENOMEM;
}

// EFA: the newest API that the library has, and first without receives: a card that needs some for
// notifications, or a library that has no other way, is only shown when they are offered. The plain fabric
// wants none in any case.
int askEfa(const Library& library, const Config& config, Catalogue* catalogue) {
  const std::string name = catalogue->traits.name;
  int code = -FI_ENODATA;
  for (const bool receivesPosted : {false, true}) {
    Catalogue found{traitsOf(name), {}, {}};
    InfoPtr list;
    const Ask ask{std::min(library.version(), kNewestApi), "efa", receivesPosted && found.traits.cardMoves};
    code = asking(library, ask, &list);
    if (code == 0) collect(library, list.get(), config, &found);
    *catalogue = std::move(found);
    if (!catalogue->nics.empty() || !catalogue->traits.cardMoves) break;
  }
  return code;
}

bool isEfa(const Traits& traits) {
  return traits.provider == "efa";
}

}  // namespace

Result<Catalogue> discoverNics(const Library& library, const std::string& name, const Config& config) {
  Catalogue catalogue;
  std::vector<Refusal> refusals;
  InfoPtr list;
  int code = -FI_ENODATA;
  const std::string only = name.empty() ? "" : traitsOf(name).provider;
  const bool named = !name.empty();
  const auto candidates = named ? std::vector{name.c_str()}
                                : std::vector<const char*>(preferredNames().begin(), preferredNames().end());
  bool any = false, asked = false;
  for (const char* candidate : candidates) {
    catalogue = {traitsOf(candidate), {}, {}};
    if (isEfa(catalogue.traits)) {
      code = askEfa(library, config, &catalogue);
    } else {
      if (!std::exchange(asked, true)) code = asking(library, {kApiVersion, only, false}, &list);
      if (code == 0) collect(library, list.get(), config, &catalogue);
    }
    any = any || code == 0;
    refusals.insert(refusals.end(), catalogue.refusals.begin(), catalogue.refusals.end());
    if (!catalogue.nics.empty()) break;
  }
  if (!any) return nothingFound(library, name, code);
  catalogue.refusals = std::move(refusals);
  return catalogue;
}

}  // namespace weft::ofi
