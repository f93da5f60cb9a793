// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/ports.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <net/if.h>
#include <sys/mman.h>
#include <tuple>
#include <utility>

#include "providers/verbs/memory.h"
#include "providers/verbs/trial.h"
#include "providers/verbs/words.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/base/name_filter.h"
#include "src/base/process.h"
#include "src/topo/nic_facts.h"

// Discovery: looks at every card and port, and keeps the ports that can carry the protocol.
namespace weft::verbs {

namespace {

constexpr uint32_t kSoftRoceVendor = 0xffffff;
constexpr int kSoftRoceWorks = 63;  // its slots have 512 bytes, so a lane's memory stays below 64 KiB
constexpr size_t kMaxWriteBytes = size_t{1} << 30;
constexpr int kDefaultSpeedMbps = 10000;
// Bytes that are locked for a trial: NCCL's default buffer for a connection.
constexpr size_t kTryBytes = 4 << 20;
constexpr float kLatencyUs = 2;
constexpr const char* kLooking = "looking at a port";

const char* stateWords(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "the port is down: check its cable, and that its interface is up";
    case IBV_PORT_INIT:
      return "the port waits for its subnet manager (state INIT): start one, such as opensm";
    case IBV_PORT_ARMED:
      return "the port is not active yet (state ARMED)";
    default:
      return "the port is not active";
  }
}

// A port that is looked at. It lives only during discovery.
struct Candidate {
  const std::shared_ptr<const Library>& library;
  const Config& config;
  std::shared_ptr<const CardList> owner;
  ibv_device* handle;
  std::string card;
  ibv_context* context;
  ibv_device_attr device;
  ibv_port_attr port;
  uint32_t speed;  // of a lane of the port
  uint8_t number;

  std::string name() const { return format("%s:%d", card.c_str(), number); }
  bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }
};

bool isSoftware(const Candidate& seen) {
  return seen.device.vendor_id == kSoftRoceVendor;
}

// Why the port cannot be used, whatever its addresses are; empty: it can.
std::string unusable(const Candidate& seen) {
  if (seen.handle->transport_type == IBV_TRANSPORT_IWARP)
    return "it speaks iWARP, whose writes carry no notification";
  if (seen.port.state != IBV_PORT_ACTIVE) return stateWords(seen.port.state);
  if (seen.port.link_layer == IBV_LINK_LAYER_UNSPECIFIED && seen.device.max_srq == 0)
    return "it is neither InfiniBand nor RoCE";
  if (seen.device.max_srq == 0) return "it has no shared receive queues";
  if (seen.port.pkey_tbl_len <= seen.config.ibPkeyIndex)
    return format("WEFT_IB_PKEY is %d, its partition key table has %d entries", seen.config.ibPkeyIndex,
                  seen.port.pkey_tbl_len);
  return {};
}

// Tries the first steps of every use of the card. A container may show a card and permit nothing, and a limit
// on locked memory shows only when memory is locked. A failure here still leaves time to take the next
// provider.
Status tryOut(const Candidate& seen) {
  errno = 0;
  const Handle<ibv_pd> domain(seen.library->allocPd(seen.context), seen.library->deallocPd);
  if (!domain) return verbsError("opening a protection domain", seen.card, errno ? errno : ENOMEM);
  const std::unique_ptr<void, void (*)(void*)> memory(
      ::mmap(nullptr, kTryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
      [](void* start) { ::munmap(start, kTryBytes); });
  if (memory.get() == MAP_FAILED) return {};
  TRY(VerbsMemory::create(*seen.library, domain.get(), {.address = memory.get(), .length = kTryBytes}));
  return {};
}

void describe(const Candidate& seen, Port* port) {
  const topo::NicFacts facts = topo::rdmaFacts(seen.card, seen.number);
  DeviceInfo& info = port->info;
  info.name = seen.name();
  info.provider = "verbs";
  info.address = gidText(port->address.gids.entries.front().gid);
  if (!port->ethernet) info.address = format("LID %u, %s", port->address.lid, info.address.c_str());
  info.pciPath = facts.pciPath;
  info.guid = facts.guid ? facts.guid : topo::madeUpGuid(hostName(), seen.card);
  info.port = seen.number;
  info.speedMbps = facts.speedMbps > 0 ? facts.speedMbps : speedOf(seen.port.active_width, seen.speed);
  info.latencyUs = kLatencyUs;
  info.linkLayer = port->ethernet ? "Ethernet" : "InfiniBand";
  info.virtualFunction = facts.virtualFunction;
  info.offload = !isSoftware(seen);
  info.numaNode = facts.numaNode;
  if (!info.offload) info.withoutGpu = "a card in software copies by this machine's processors";
  info.cudaMemory = info.offload;
  info.dmabufMemory = info.offload && seen.library->regDmabufMr;
  if (info.dmabufMemory && seen.config.dataDirect)
    info.directPath = seen.library->directPath(seen.handle, seen.context);
  info.mtu = 128 << port->address.mtu;
  info.delivery = Delivery::always;
  info.retries = retriesWith(port->settings);
  // A queue pair that is not ready to receive drops what comes, without a word (InfiniBand specification,
  // volume 1, 10.3.1); the sender would repeat it after a second or more.
  info.peerMustStand = true;
  // A connected queue pair writes in order, and a card puts an aligned line into one PCIe packet. NCCL's own
  // transport relies on both, with relaxed ordering too.
  info.lines128InOrder = true;
  info.maxWriteBytes = std::min<size_t>(kMaxWriteBytes, seen.port.max_msg_sz);
}

// True where our network namespace has the interface. The whole list is read, since a question for a single
// name that is not there makes the kernel look for a module of that name.
bool isOurs(const std::string& netdev) {
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> all(::if_nameindex(),
                                                                                 ::if_freenameindex);
  for (const struct if_nameindex* one = all.get(); one && one->if_name; one++)
    if (netdev == one->if_name) return true;
  return !all;
}

// Reads the address of a port, as often as it is asked. It outlives the Candidate.
struct AddressReader {
  std::shared_ptr<const Library> library;
  std::string card;
  uint8_t number;
  uint8_t ports;  // of the card
  GidWish wish;

  // The entries that hold an address, where the library can tell; else none, which stands for all.
  std::vector<int> gidIndexes(ibv_context* context, const ibv_port_attr& port) const {
    std::vector<int> indexes;
    if (!library->queryGidTable) return indexes;
    std::vector<ibv_gid_entry> entries(static_cast<size_t>(std::max(port.gid_tbl_len, 1)) * ports);
    const ssize_t count =
        library->queryGidTable(context, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
    for (ssize_t i = 0; i < count; i++) {
      const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
      if (entry.port_num == number) indexes.push_back(static_cast<int>(entry.gid_index));
    }
    return indexes;
  }

  Result<PortAddress> operator()(ibv_context* context) const {
    ibv_port_attr port{};
    uint32_t speed = 0;
    if (const int code = queryPort(context, number, &port, &speed))
      return verbsError("asking the port", format("%s:%d", card.c_str(), number), code);
    PortAddress address;
    address.table = readGidTable(card, number, gidIndexes(context, port));
    if (auto chosen = chooseGids(address.table, wish))
      address.gids = chosen.take();
    else
      address.none = chosen.error().detail();
    address.mtu = port.active_mtu;
    address.lid = port.lid;
    address.needsHeader = (port.flags & IBV_QPF_GRH_REQUIRED) != 0;
    return address;
  }
};

Result<Port> makePort(const Candidate& seen) {
  Port port;
  port.card = seen.card;
  port.device = seen.handle;
  port.owner = seen.owner;
  port.ethernet = seen.ethernet();
  port.settings = settingsFrom(seen.config, isSoftware(seen), port.ethernet);
  port.readAddress = AddressReader{seen.library,
                                   seen.card,
                                   seen.number,
                                   seen.device.phys_port_cnt,
                                   {port.ethernet, port.settings.gidIndex, isOurs}};
  TRY(port.address, port.readAddress(seen.context));
  if (!port.address.none.empty()) return Error(Code::unavailable, kLooking, port.address.none);
  port.maxCompletions = seen.device.max_cqe;
  port.maxReceives = seen.device.max_srq_wr;
  port.maxWorks = std::min(seen.device.max_qp_wr, isSoftware(seen) ? kSoftRoceWorks : INT_MAX);
  port.readsServed = static_cast<uint8_t>(std::clamp(seen.device.max_qp_rd_atom, 1, 16));
  port.readsAsked = static_cast<uint8_t>(std::clamp(seen.device.max_qp_init_rd_atom, 1, 16));
  describe(seen, &port);
  return port;
}

// What the driver does otherwise than most is met with the other way, and said. Why the port cannot be used;
// empty: it can. A card that does not talk to itself is believed.
std::string learnHabits(const Candidate& seen, Port* port) {
  const CardHabits habits = tryCard(seen.library, *port, Clock::system());
  if (!habits.untried.empty()) {
    WEFT_LOG(info, "verbs %s was not tried: %s", seen.name().c_str(), habits.untried.c_str());
    return {};
  }
  if (!habits.carriesEmpty) return "it does not carry a notification of a write without bytes";
  if (!habits.tellsLength) {
    port->settings.apart = Apart::always;
    port->info.abilities =
        "its driver does not tell the length of a write with a notification; it goes apart";
    WEFT_LOG(info, "verbs %s: %s", seen.name().c_str(), port->info.abilities.c_str());
  }
  return {};
}

// A port that is used, or a refusal with the reason.
void consider(const Candidate& seen, Catalogue* catalogue) {
  const auto refuse = [&](const std::string& why, bool failed = false) {
    catalogue->refusals.push_back({"verbs " + seen.name(), why, failed});
  };
  const std::string why = unusable(seen);
  if (!why.empty()) return refuse(why);
  if (const Status usable = tryOut(seen); !usable) return refuse(usable.error().message(), true);
  auto port = makePort(seen);
  if (!port) return refuse(port.error().detail());
  const std::string wrong = learnHabits(seen, &*port);
  if (!wrong.empty()) return refuse(wrong, true);
  catalogue->ports.push_back(port.take());
}

// True where the filter accepts the card or one of its ports. No card has as many ports as are tried here.
bool mayBeWanted(const NameFilter& filter, const std::string& card) {
  for (int port = 1; port <= 16; port++)
    if (filter.accepts(card, port)) return true;
  return false;
}

void lookAt(Candidate seen, Catalogue* catalogue) {
  const NameFilter filter(seen.config.hca);
  const auto refuse = [&](const std::string& what, const std::string& why, bool failed = false) {
    catalogue->refusals.push_back({"verbs " + what, why, failed});
  };
  const auto leaveOut = [&](const std::string& what) {
    const std::string why = leftOutBy("WEFT_HCA (or NCCL_IB_HCA)", seen.config.hca);
    catalogue->refusals.push_back({"verbs " + what, why, false, true});
  };
  if (!mayBeWanted(filter, seen.card)) return leaveOut(seen.card);
  auto context = openCard(*seen.library, seen.handle);
  if (!context) return refuse(seen.card, context.error().message(), true);
  seen.context = context->get();
  if (const int code = seen.library->queryDevice(seen.context, &seen.device))
    return refuse(seen.card, verbsError("asking the card", seen.card, code).message(), true);
  for (int number = 1; number <= seen.device.phys_port_cnt; number++) {
    seen.number = static_cast<uint8_t>(number);
    seen.port = {};
    if (!filter.accepts(seen.card, number)) {
      leaveOut(seen.name());
    } else if (const int code = queryPort(seen.context, seen.number, &seen.port, &seen.speed)) {
      refuse(seen.name(), verbsError("asking the port", seen.name(), code).message(), true);
    } else {
      consider(seen, catalogue);
    }
  }
}

// By PCI address and port, so that every node numbers its devices alike.
void sortByPlace(std::vector<Port>* ports) {
  const auto key = [](const Port& port) {
    return std::make_tuple(port.info.pciPath.empty(), std::cref(port.info.pciPath), port.info.port);
  };
  std::stable_sort(ports->begin(), ports->end(),
                   [&](const Port& a, const Port& b) { return key(a) < key(b); });
}

}  // namespace

// The numbers are of ibv_query_port(3), from SDR to XDR.
int speedOf(uint8_t width, uint32_t speed) {
  const int lanes = width == 1 ? 1 : width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : 2;
  constexpr std::pair<uint32_t, int> kLaneSpeeds[] = {{1, 2500},   {2, 5000},     {4, 10000},
                                                      {8, 10000},  {16, 14000},   {32, 25000},
                                                      {64, 50000}, {128, 100000}, {256, 200000}};
  for (const auto& [number, mbps] : kLaneSpeeds)
    if (number == speed) return mbps * lanes;
  return kDefaultSpeedMbps;
}

CardList::CardList(std::shared_ptr<const Library> library, ibv_device** list, int count)
    : library_(std::move(library)), list_(list, library_->freeDeviceList), count_(count) {}

Result<std::shared_ptr<const CardList>> CardList::read(std::shared_ptr<const Library> library) {
  int count = 0;
  errno = 0;
  if (ibv_device** list = library->getDeviceList(&count))
    return std::make_shared<const CardList>(std::move(library), list, count);
  if (errno == ENOSYS || errno == ENOENT)
    return Error(Code::unavailable, "listing RDMA devices",
                 "this kernel has no RDMA (modprobe ib_uverbs), or /sys is not mounted");
  return verbsError("listing RDMA devices", "ibv_get_device_list", errno);
}

std::string whyGone(const Gid& used, const PortAddress& now) {
  const auto same = [&](const GidEntry& entry) { return entry.gid == used; };
  if (std::any_of(now.table.begin(), now.table.end(), same)) return {};
  return format("its address %s is gone; look at the addresses of its interface", gidText(used).c_str());
}

// A node in /dev that may not be opened is noticed here. libibverbs would take it for a node that udev has
// yet to make, and would wait 5 seconds for it, for each card (rdma-core's util/open_cdev.c).
Result<Handle<ibv_context>> openCard(const Library& library, ibv_device* card) {
  const std::string node = std::string("/dev/infiniband/") + card->dev_name;
  if (const Fd mine(::open(node.c_str(), O_RDWR | O_CLOEXEC)); !mine && (errno == EACCES || errno == EPERM))
    return verbsError("opening a card", library.getDeviceName(card), errno);
  errno = 0;
  ibv_context* context = library.openDevice(card);
  if (!context) return verbsError("opening a card", library.getDeviceName(card), errno ? errno : EIO);
  return Handle<ibv_context>(context, library.closeDevice);
}

Result<Catalogue> discoverPorts(const std::shared_ptr<const Library>& library, const Config& config) {
  Catalogue catalogue;
  TRY(const auto list, CardList::read(library));
  for (ibv_device* card : list->cards())
    lookAt({library, config, list, card, library->getDeviceName(card), nullptr, {}, {}, 0, 1}, &catalogue);
  if (list->cards().empty()) {
    catalogue.refusals.push_back(
        {"verbs",
         "libibverbs shows no device: check that the card's kernel driver is loaded, that its user "
         "space driver is installed (ibverbs-providers), and in containers that /dev/infiniband is "
         "passed in"});
  }
  sortByPlace(&catalogue.ports);
  return catalogue;
}

}  // namespace weft::verbs
