// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/survey_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace weft::info {

namespace {

// The facts that NCCL is told about one device, name and value; both forms of the output come from here.
Json propertiesJson(const core::Properties& device) {
  std::vector<std::string> pointers = {"host"};
  if (device.cudaMemory) pointers.push_back("cuda");
  if (device.dmabufMemory) pointers.push_back("dmabuf");
  return {{"name", device.name},
          {"pciPath", device.pciPath},
          {"guid", fmt::format("{:#x}", device.guid)},
          {"pointers", pointers},
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
          {"grouping", device.grouping},
          {"sameHost", device.sameHost},
          {"gpuDirect", device.gpuDirect}};
}

Json gpuDirectJson(const Survey& survey) {
  Json pairs = Json::array();
  for (const mem::GdrVerdict& verdict : survey.gpuDirect) {
    Json rungs = Json::array();
    for (const mem::Rung& rung : verdict.rungs)
      rungs.append({{"way", rung.name}, {"works", rung.works}, {"why", rung.why}});
    pairs.append({{"device", verdict.device},
                  {"gpu", verdict.gpu},
                  {"gpuName", verdict.gpuName},
                  {"on", verdict.path.works()},
                  {"by", verdict.taken().name},
                  {"why", verdict.path.why},
                  {"slow", verdict.slow},
                  {"flush", verdict.path.works() && !verdict.ordersWrites},
                  {"ways", std::move(rungs)}});
  }
  return {{"mode", survey.gdrMode},
          {"driver", survey.gpuDriver},
          {"noDriver", survey.noGpuDriver},
          {"pairs", std::move(pairs)}};
}

std::string gpuDirectText(const Survey& survey) {
  if (survey.gpuDriver.empty()) return fmt::format("GPUDirect: {}\n", survey.noGpuDriver);
  std::string text = fmt::format("GPUDirect, with {}; WEFT_GDR is {}\n", survey.gpuDriver, survey.gdrMode);
  for (const mem::GdrVerdict& verdict : survey.gpuDirect) text += fmt::format("  {}\n", verdict.line());
  return text;
}

Json deviceJson(const DeviceInfo& device) {
  static constexpr const char* kDelivery[] = {"accepted", "selectable", "always"};
  return {{"name", device.name},
          {"address", device.address},
          {"pciPath", device.pciPath},
          {"numaNode", device.numaNode},
          {"port", device.port},
          {"speedMbps", device.speedMbps},
          {"connections", device.connections},
          {"abilities", device.abilities},
          {"mtu", device.mtu},
          {"delivery", kDelivery[static_cast<size_t>(device.delivery)]},
          {"maxWriteBytes", device.maxWriteBytes}};
}

Json providerJson(const ProviderSurvey& provider) {
  Json devices = Json::array();
  for (const DeviceInfo& device : provider.devices) devices.append(deviceJson(device));
  Json refusals = Json::array();
  for (const Refusal& refusal : provider.refusals)
    refusals.append({{"what", refusal.what}, {"why", refusal.why}});
  return {{"provider", provider.spec},
          {"version", provider.version},
          {"devices", std::move(devices)},
          {"refused", std::move(refusals)},
          {"failure", provider.failure}};
}

// "name: value" lines, indented; strings without quotes.
std::string fieldLines(const Json& fields, std::string_view indent) {
  std::string text;
  fields.forEachMember([&](const std::string& name, const std::string& value) {
    text += fmt::format("{}{:<20} {}\n", indent, name, value.empty() ? "(none)" : value);
  });
  return text;
}

std::string without(std::string text, const std::string& word) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at))
    text.erase(at, word.size());
  return text;
}

// Why a provider has no device, in words that do not name it: "ofi:efa" and "efa".
std::string reasonOf(const ProviderSurvey& provider) {
  const size_t colon = provider.spec.find(':');
  const std::string name = colon == std::string::npos ? provider.spec : provider.spec.substr(colon + 1);
  return without(without(provider.failure, provider.spec), name);
}

// True where the second has nothing to say but what the first has said: one library lacks, or one card does,
// and all that rest on it fail alike.
bool saysTheSame(const ProviderSurvey& one, const ProviderSurvey& next) {
  const auto onlyFails = [](const ProviderSurvey& of) { return of.devices.empty() && !of.failure.empty(); };
  const auto others = [](const ProviderSurvey& of) {
    return std::count_if(of.refusals.begin(), of.refusals.end(),
                         [&](const Refusal& refusal) { return refusal.why != of.failure; });
  };
  return onlyFails(one) && onlyFails(next) && others(one) + others(next) == 0 &&
         reasonOf(one) == reasonOf(next);
}

// The earlier provider that failed for the same reason, which is then not said again; else null.
const ProviderSurvey* saidBefore(const Survey& survey, size_t at) {
  for (size_t i = 0; i < at; i++)
    if (saysTheSame(survey.providers[i], survey.providers[at])) return &survey.providers[i];
  return nullptr;
}

std::string providerText(const ProviderSurvey& provider, const std::string& specs, bool taken) {
  std::string text = fmt::format("{} {}", taken ? '>' : ' ', specs);
  if (!provider.version.empty()) text += fmt::format(" ({})", provider.version);
  text += provider.failure.empty() ? std::string("\n") : fmt::format(": {}\n", provider.failure);
  for (const DeviceInfo& device : provider.devices) {
    text += fmt::format("      {}{}{}, {} Mb/s\n", device.name, device.address.empty() ? "" : ", ",
                        device.address, device.speedMbps);
    if (!device.abilities.empty()) text += fmt::format("        {}\n", device.abilities);
    if (!device.connections.empty()) text += fmt::format("        {}\n", device.connections);
  }
  for (const Refusal& refusal : provider.refusals)
    if (refusal.why != provider.failure)  // the whole provider was refused: said already
      text += fmt::format("      refused {}: {}\n", refusal.what, refusal.why);
  return text;
}

std::string takenText(const Survey& survey) {
  if (survey.taken.empty()) return "nothing for NCCL to use\n";
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
  std::string specs;
  for (size_t i = 0; i < survey.providers.size(); i++) {
    const ProviderSurvey& provider = survey.providers[i];
    specs += (specs.empty() ? "" : ", ") + provider.spec;
    if (i + 1 < survey.providers.size() && saysTheSame(provider, survey.providers[i + 1])) continue;
    const size_t first = i + 1 - static_cast<size_t>(std::count(specs.begin(), specs.end(), ',') + 1);
    const ProviderSurvey* before = saidBefore(survey, first);
    text += before ? fmt::format("  {}: as {}\n", specs, before->spec)
                   : providerText(provider, specs, provider.spec == survey.takenSpec);
    specs.clear();
  }
  return fmt::format("{}\n{}\n{}", text, takenText(survey), gpuDirectText(survey));
}

Json surveyJson(const Survey& survey) {
  const Versions& versions = survey.versions;
  Json providers = Json::array();
  for (const ProviderSurvey& provider : survey.providers) providers.append(providerJson(provider));
  Json devices = Json::array();
  for (const core::Properties& device : survey.properties) devices.append(propertiesJson(device));
  return {{"versions",
           {{"weft", versions.weft},
            {"libfabric", versions.fabric},
            {"kernel", versions.kernel},
            {"glibc", versions.glibc}}},
          {"providers", std::move(providers)},
          {"taken", survey.taken},
          {"failure", survey.failure},
          {"devices", std::move(devices)},
          {"gpuDirect", gpuDirectJson(survey)}};
}

}  // namespace weft::info
