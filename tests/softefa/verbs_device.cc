// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Finding, opening and asking devices.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include <infiniband/verbs.h>

#include "tests/softefa/efa_abi.h"
#include "tests/softefa/softefa.h"
#include "tests/softefa/sysfs.h"
#include "tests/softefa/verbs_objects.h"

#undef ibv_get_device_list
#undef ibv_query_port

namespace softefa {

namespace {

// What exists in this process. Never destroyed: applications leave devices open at exit.
struct Registry {
  std::mutex mutex;
  std::map<const ibv_device*, std::shared_ptr<Device>> listed;
  std::vector<OpenedDevice*> opened;
  std::string sysfs;  // what SYSFS_PATH was set to by us
};

Registry& registry() {
  static Registry* const kRegistry = std::make_unique<Registry>().release();
  return *kRegistry;
}

std::vector<Identity> identities(const Settings& settings) {
  std::vector<Identity> all;
  for (unsigned nic = 0; nic < settings.nics; ++nic) all.push_back(identityOf(settings, nic));
  return all;
}

// Programs look for cards below $SYSFS_PATH, /sys when it is unset; somebody else's choice is left alone.
std::string preparedSysfs(const Settings& settings) {
  std::string root = makeSysfs(settings, identities(settings));
  const std::lock_guard lock(registry().mutex);
  const char* chosen = environment("SYSFS_PATH");
  if (!root.empty() && (!chosen || registry().sysfs == chosen)) {
    ::setenv("SYSFS_PATH", root.c_str(), 1);
    registry().sysfs = root;
  }
  return root;
}

std::shared_ptr<Device> makeDevice(const Settings& settings, unsigned number, const std::string& sysfs) {
  auto device = std::make_shared<Device>();
  device->settings = settings;
  device->identity = identityOf(settings, number);
  device->number = number;
  ibv_device& verbs = device->verbs;
  verbs.node_type = IBV_NODE_UNSPECIFIED;
  verbs.transport_type = IBV_TRANSPORT_UNSPECIFIED;
  std::snprintf(verbs.name, sizeof verbs.name, "%s", device->identity.name.c_str());
  std::snprintf(verbs.dev_name, sizeof verbs.dev_name, "uverbs%u", number);
  std::snprintf(verbs.dev_path, sizeof verbs.dev_path, "%s/class/infiniband_verbs/uverbs%u", sysfs.c_str(),
                number);
  std::snprintf(verbs.ibdev_path, sizeof verbs.ibdev_path, "%s", devicePath(sysfs, device->identity).c_str());
  return device;
}

int queryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size) {
  if (port != 1) return EINVAL;
  Nic& nic = nicOf(context);
  ibv_port_attr full{};
  full.state = nic.dead() ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  full.max_mtu = full.active_mtu = IBV_MTU_4096;
  full.gid_tbl_len = full.pkey_tbl_len = 1;
  full.max_msg_sz = kMtu;
  full.active_width = 2;   // 4 lanes
  full.active_speed = 32;  // of 25 Gbit/s each
  full.phys_state = nic.dead() ? 3 : 5;
  full.link_layer = IBV_LINK_LAYER_UNSPECIFIED;
  std::memcpy(attr, &full, std::min(size, sizeof full));
  return 0;
}

std::unique_ptr<OpenedDevice> openedDevice(std::shared_ptr<Device> device) {
  auto opened = std::make_unique<OpenedDevice>();
  opened->nic = Nic::open(device->settings, device->identity, device->number);
  if (!opened->nic) return nullptr;
  opened->verbs.sz = sizeof(verbs_context);
  opened->verbs.query_port = queryPort;
  opened->verbs.create_cq_ex = createCq;
  opened->verbs.create_qp_ex = createQp;
  ibv_context& context = opened->verbs.context;
  context.device = &device->verbs;
  context.cmd_fd = context.async_fd = -1;
  context.num_comp_vectors = 4;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.ops.post_send = postSends;
  context.ops.post_recv = postReceives;
  context.ops.req_notify_cq = requestNotify;
  opened->device = std::move(device);
  return opened;
}

// The tree must stand before the first look, which may come before the first device list.
const bool kPrepared = [] {
  Settings settings;
  return readSettings(settings) && !preparedSysfs(settings).empty();
}();

}  // namespace

}  // namespace softefa

using namespace softefa;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  Settings settings;
  std::vector<std::shared_ptr<Device>> devices;
  if (readSettings(settings)) {
    const std::string sysfs = preparedSysfs(settings);
    for (unsigned nic = 0; nic < settings.nics && !sysfs.empty(); ++nic) {
      devices.push_back(makeDevice(settings, nic, sysfs));
    }
  }
  auto list = std::make_unique<ibv_device*[]>(devices.size() + 1);
  const std::lock_guard lock(registry().mutex);
  for (size_t i = 0; i < devices.size(); ++i) {
    list[i] = &devices[i]->verbs;
    registry().listed[list[i]] = devices[i];
  }
  if (count) *count = static_cast<int>(devices.size());
  return list.release();
}

void ibv_free_device_list(ibv_device** list) {
  const std::unique_ptr<ibv_device*[]> owned(list);
  const std::lock_guard lock(registry().mutex);
  for (ibv_device** device = list; *device; ++device) registry().listed.erase(*device);
}

const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

__be64 ibv_get_device_guid(ibv_device* device) {
  uint64_t guid = 0;
  std::memcpy(&guid, objectOf<Device>(device)->identity.gid.bytes.data() + 8, sizeof guid);
  return guid;
}

int ibv_get_device_index(ibv_device* device) {
  return static_cast<int>(objectOf<Device>(device)->number);
}

ibv_context* ibv_open_device(ibv_device* device) {
  std::shared_ptr<Device> known;
  {
    const std::lock_guard lock(registry().mutex);
    const auto listed = registry().listed.find(device);
    if (listed == registry().listed.end()) {
      errno = ENODEV;
      return nullptr;
    }
    known = listed->second;
  }
  auto opened = openedDevice(std::move(known));
  if (!opened) {
    errno = EIO;
    return nullptr;
  }
  const std::lock_guard lock(registry().mutex);
  registry().opened.push_back(opened.get());
  return &opened.release()->verbs.context;
}

int ibv_close_device(ibv_context* context) {
  const auto opened = adopt<OpenedDevice>(verbs_get_ctx(context));
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().opened, opened.get());
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  const Settings& settings = nicOf(context).settings();
  *attr = {};
  std::snprintf(attr->fw_ver, sizeof attr->fw_ver, "softefa");
  attr->node_guid = attr->sys_image_guid = ibv_get_device_guid(context->device);
  attr->max_mr_size = 1ULL << 40;
  attr->page_size_cap = 4096;
  attr->vendor_id = 0x1d0f;
  // Cards without RDMA were the first ones; libfabric 2.1 aborts where a later one has none.
  attr->vendor_part_id = settings.generation == Generation::send ? 0xefa0 : 0xefa2;
  attr->max_qp = kQueuePairs;  // users size tables by it and find a queue pair by its number modulo that
  attr->max_qp_wr = static_cast<int>(kMaxSends);
  attr->max_sge = static_cast<int>(kMaxSendSges);
  attr->max_sge_rd = 1;
  attr->max_cq = 1024;
  attr->max_cqe = 1 << 16;
  attr->max_mr = static_cast<int>(settings.maxRegions);
  attr->max_pd = 1024;
  attr->max_ah = static_cast<int>(settings.maxAddressHandles);
  attr->max_pkeys = 1;
  attr->phys_port_cnt = 1;
  return 0;
}

// The structure of callers that know no extended one ends before `flags`.
int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return queryPort(context, port, reinterpret_cast<ibv_port_attr*>(attr), offsetof(ibv_port_attr, flags));
}

int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  std::memcpy(gid->raw, nicOf(context).identity().gid.bytes.data(), sizeof gid->raw);
  return 0;
}

int ibv_query_pkey(ibv_context*, uint8_t, int index, __be16* pkey) {
  *pkey = 0xffff;
  return index == 0 ? 0 : -1;
}

// Nothing of the stand-in minds a fork: it has no hardware that writes into pages.
int ibv_fork_init() {
  return 0;
}
ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}

const char* ibv_get_sysfs_path() {
  const char* chosen = environment("SYSFS_PATH");
  return chosen ? chosen : "/sys";
}

int softefa_query_device(ibv_context* context, EfaDeviceAttr* attr, uint32_t size) {
  const Generation generation = nicOf(context).settings().generation;
  EfaDeviceAttr full{};
  full.maxSqWr = kMaxSends;
  full.maxRqWr = kMaxReceives;
  full.maxSqSge = kMaxSendSges;
  full.maxRqSge = kMaxReceiveSges;
  full.inlineBufSize = kMaxInline;
  full.deviceCaps = kCapRnrRetry | kCapCqWithSgid;
  if (generation >= Generation::read) full.deviceCaps |= kCapRdmaRead;
  if (generation >= Generation::write) full.deviceCaps |= kCapRdmaWrite;
  if (generation >= Generation::unsolicited) full.deviceCaps |= kCapUnsolicitedWriteReceive;
  full.maxRdmaSize = generation >= Generation::read ? static_cast<uint32_t>(kMaxRdma) : 0;
  copyKnown(attr, full, size);
  return 0;
}

int softefa_set_faults(ibv_context* context, const char* assignments) {
  const std::lock_guard lock(registry().mutex);
  std::string wrong;
  for (OpenedDevice* opened : registry().opened) {
    if (context && &opened->verbs.context != context) continue;
    if (opened->nic->apply(assignments, wrong)) continue;
    std::fprintf(stderr, "softefa: fault '%s' is not understood\n", wrong.c_str());
    return EINVAL;
  }
  return 0;
}

ibv_context* softefa_opened(unsigned n) {
  const std::lock_guard lock(registry().mutex);
  std::map<std::string, ibv_context*> byName;
  for (OpenedDevice* opened : registry().opened)
    byName.emplace(opened->verbs.context.device->name, &opened->verbs.context);
  return n < byName.size() ? std::next(byName.begin(), static_cast<std::ptrdiff_t>(n))->second : nullptr;
}

int softefa_counter(ibv_context* context, const char* name, uint64_t* value) {
  Counters& counters = nicOf(context).counters();
  const std::map<std::string, const std::atomic<uint64_t>*> known{
      {"packetsSent", &counters.packetsSent},
      {"packetsReceived", &counters.packetsReceived},
      {"bytesReceived", &counters.bytesReceived},
      {"workFlushed", &counters.workFlushed},
      {"bytesWritten", &counters.bytesWritten},
      {"packetsHeld", &counters.packetsHeld},
      {"packetsLost", &counters.packetsLost},
      {"datagramsDropped", &counters.datagramsDropped},
      {"notReady", &counters.notReady},
      {"outOfOrder", &counters.outOfOrder},
      {"completionsOverrun", &counters.completionsOverrun}};
  const auto found = known.find(name);
  if (found == known.end()) return EINVAL;
  *value = *found->second;
  return 0;
}
}
