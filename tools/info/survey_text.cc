// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/survey_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace weft::info {

namespace {

// What NCCL is told about one device, name and value; both forms of the output come from here.
nlohmann::ordered_json propertiesJson(const core::Properties& device) {
  nlohmann::ordered_json pointers = {"host"};
  if (device.cudaMemory) pointers.push_back("cuda");
  if (device.dmabufMemory) pointers.push_back("dmabuf");
  return {{"name", device.name},
          {"pciPath", device.pciPath},
          {"guid", fmt::format("{:#x}", device.guid)},
          {"pointers", std::move(pointers)},
          {"regIsGlobal", device.regIsGlobal},
          {"forceFlush", device.forceFlush},
          {"speedMbps", device.speedMbps},
          {"port", device.port},
          {"latencyUs", device.latencyUs},
          {"maxComms", device.maxComms},
          {"maxRecvs", device.maxRecvs},
          {"maxP2pBytes", device.maxP2pBytes},
          {"maxCollBytes", device.maxCollBytes},
          {"maxMultiRequestSize", 1},
          {"netDeviceType", "host"},
          {"railId", device.railId},
          {"planeId", device.planeId},
          {"lines128InOrder", device.lines128InOrder},
          {"members", device.members},
          {"rails", device.rails},
          {"grouping", device.grouping}};
}

nlohmann::ordered_json deviceJson(const DeviceInfo& device) {
  static constexpr const char* kDelivery[] = {"accepted", "selectable", "always"};
  return {{"name", device.name},
          {"address", device.address},
          {"pciPath", device.pciPath},
          {"numaNode", device.numaNode},
          {"port", device.port},
          {"speedMbps", device.speedMbps},
          {"mtu", device.mtu},
          {"delivery", kDelivery[static_cast<size_t>(device.delivery)]},
          {"maxWriteBytes", device.maxWriteBytes}};
}

nlohmann::ordered_json providerJson(const ProviderSurvey& provider) {
  auto devices = nlohmann::ordered_json::array();
  for (const DeviceInfo& device : provider.devices) devices.push_back(deviceJson(device));
  auto refusals = nlohmann::ordered_json::array();
  for (const Refusal& refusal : provider.refusals)
    refusals.push_back({{"what", refusal.what}, {"why", refusal.why}});
  return {{"provider", provider.spec},
          {"version", provider.version},
          {"devices", std::move(devices)},
          {"refused", std::move(refusals)},
          {"failure", provider.failure}};
}

// "name: value" lines, indented; strings without quotes.
std::string fieldLines(const nlohmann::ordered_json& fields, std::string_view indent) {
  std::string text;
  for (const auto& [name, value] : fields.items()) {
    const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    text += fmt::format("{}{:<20} {}\n", indent, name, shown.empty() ? "(none)" : shown);
  }
  return text;
}

std::string providerText(const ProviderSurvey& provider, bool taken) {
  std::string text = fmt::format("{} {}", taken ? '>' : ' ', provider.spec);
  if (!provider.version.empty()) text += fmt::format(" ({})", provider.version);
  text += provider.failure.empty() ? std::string("\n") : fmt::format(": {}\n", provider.failure);
  for (const DeviceInfo& device : provider.devices) {
    text += fmt::format("      {}{}{}, {} Mb/s\n", device.name, device.address.empty() ? "" : ", ",
                        device.address, device.speedMbps);
  }
  for (const Refusal& refusal : provider.refusals)
    if (refusal.why != provider.failure)  // the whole provider was refused: said already
      text += fmt::format("      refused {}: {}\n", refusal.what, refusal.why);
  return text;
}

std::string takenText(const Survey& survey) {
  if (survey.taken.empty()) return fmt::format("nothing for NCCL to use: {}\n", survey.failure);
  std::string text = fmt::format("devices as NCCL is told, over {}\n", survey.taken);
  for (size_t device = 0; device < survey.properties.size(); device++)
    text += fmt::format("  device {}\n{}", device,
                        fieldLines(propertiesJson(survey.properties[device]), "      "));
  return text;
}

}  // namespace

std::string surveyText(const Survey& survey) {
  const Versions& versions = survey.versions;
  std::string text = fmt::format("weft {}, {}, {}, glibc {}\n\n", versions.weft,
                                 versions.fabric.empty() ? "no libfabric" : versions.fabric, versions.kernel,
                                 versions.glibc);
  text += survey.named ? "providers (WEFT_PROVIDER names the one to use)\n" : "providers, best first\n";
  for (const ProviderSurvey& provider : survey.providers)
    text += providerText(provider, provider.spec == survey.taken);
  return fmt::format("{}\n{}", text, takenText(survey));
}

nlohmann::ordered_json surveyJson(const Survey& survey) {
  const Versions& versions = survey.versions;
  auto providers = nlohmann::ordered_json::array();
  for (const ProviderSurvey& provider : survey.providers) providers.push_back(providerJson(provider));
  auto devices = nlohmann::ordered_json::array();
  for (const core::Properties& device : survey.properties) devices.push_back(propertiesJson(device));
  return {{"versions",
           {{"weft", versions.weft},
            {"libfabric", versions.fabric},
            {"kernel", versions.kernel},
            {"glibc", versions.glibc}}},
          {"providers", std::move(providers)},
          {"taken", survey.taken},
          {"failure", survey.failure},
          {"devices", std::move(devices)}};
}

}  // namespace weft::info
