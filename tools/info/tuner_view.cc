// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/tuner_view.h"

#include <fmt/format.h>

namespace weft::info {

namespace {

using tuner::Algorithm;
using tuner::Collective;
using tuner::Protocol;

constexpr size_t kSmallest = 1 << 10;
constexpr size_t kLargest = size_t{8} << 30;
constexpr size_t kGrowth = 8;

struct Named {
  std::string what;
  const char* unit;
  const tuner::Number* number;
};

std::vector<Named> numbersOf(const tuner::Platform& platform) {
  std::vector<Named> numbers;
  for (int p = 0; p < tuner::kProtocols; p++)
    numbers.push_back({fmt::format("step between nodes, {}", nameOf(Protocol{p})), "us",
                       &platform.hopUs[static_cast<size_t>(p)]});
  numbers.push_back({"rate of a node", "GB/s", &platform.nodeGBps});
  numbers.push_back({"NVLSTree at most", "GB/s", &platform.nvlsTreeGBps});
  numbers.push_back({"LL at most, two nodes", "GB/s", &platform.llGBps[0]});
  numbers.push_back({"LL at most, more nodes", "GB/s", &platform.llGBps[1]});
  std::erase_if(numbers, [](const Named& named) { return !named.number->known(); });
  return numbers;
}

struct Choice {
  Collective collective;
  size_t bytes;
  Algorithm algorithm;
  Protocol protocol;
  tuner::Estimate estimate;
};

// The cheapest of what the tuner would write; LL128 only where it is not priced out.
std::optional<Choice> choose(const tuner::Tuner& tuner, Collective collective, size_t bytes) {
  std::optional<Choice> best;
  for (int a = 0; a < tuner::kAlgorithms; a++) {
    for (int p = 0; p < tuner::kProtocols; p++) {
      if (Protocol{p} == Protocol::ll128 && tuner.policy().priceOutLl128) continue;
      const auto cost = tuner.costOf({collective, Algorithm{a}, Protocol{p}, static_cast<double>(bytes), 1});
      if (cost && (!best || cost->us() < best->estimate.us()))
        best = Choice{collective, bytes, Algorithm{a}, Protocol{p}, *cost};
    }
  }
  return best;
}

std::vector<Choice> choicesOf(const TunerQuestion& question, const tuner::Policy& policy) {
  const tuner::Tuner tuner(policy, tuner::defaultGpuLatencies(), question.shape);
  std::vector<Choice> choices;
  for (const Collective collective :
       {Collective::allReduce, Collective::allGather, Collective::reduceScatter})
    for (size_t bytes = kSmallest; bytes <= kLargest; bytes *= kGrowth)
      if (const auto choice = choose(tuner, collective, bytes)) choices.push_back(*choice);
  return choices;
}

std::string sizeText(size_t bytes) {
  for (const auto& [shift, unit] : {std::pair{30, "G"}, std::pair{20, "M"}, std::pair{10, "K"}})
    if (bytes >> shift != 0) return fmt::format("{}{}", bytes >> shift, unit);
  return std::to_string(bytes);
}

std::string orUnknown(const std::string& text) {
  return text.empty() ? "not known" : text;
}

std::string numbersText(const tuner::Platform& platform) {
  std::string text = fmt::format("numbers of {}\n", platform.name);
  for (const Named& named : numbersOf(platform))
    text += fmt::format("  {:<28} {:>8.5g} {:<4}  {}\n", named.what, named.number->value, named.unit,
                        named.number->source);
  return text + fmt::format("  {:<28} {:>8} {:<4}  {}\n", "steps within a node", "", "us",
                            tuner::gpuLatencySource());
}

std::string choicesText(const std::vector<Choice>& choices) {
  std::string text = fmt::format("  {:<14} {:>6}  {:<9} {:<7} {:>12} {:>12} {:>12}\n", "collective", "bytes",
                                 "algorithm", "proto", "latency us", "transfer us", "together us");
  for (const Choice& choice : choices)
    text +=
        fmt::format("  {:<14} {:>6}  {:<9} {:<7} {:>12.1f} {:>12.1f} {:>12.1f}\n", nameOf(choice.collective),
                    sizeText(choice.bytes), nameOf(choice.algorithm), nameOf(choice.protocol),
                    choice.estimate.latencyUs, choice.estimate.transferUs, choice.estimate.us());
  return text;
}

Json numberJson(const Named& named) {
  return {{"what", named.what},
          {"value", named.number->value},
          {"unit", named.unit},
          {"source", named.number->source}};
}

Json choiceJson(const Choice& choice) {
  return {{"collective", nameOf(choice.collective)}, {"bytes", choice.bytes},
          {"algorithm", nameOf(choice.algorithm)},   {"protocol", nameOf(choice.protocol)},
          {"latencyUs", choice.estimate.latencyUs},  {"transferUs", choice.estimate.transferUs}};
}

}  // namespace

std::string tunerText(const TunerQuestion& question, const tuner::Policy& policy) {
  std::string text = fmt::format("fabric   {}\nmachine  {}\n", orUnknown(question.around.fabric),
                                 orUnknown(question.around.machine));
  for (const std::string& reason : policy.reasons) text += fmt::format("tuner    {}\n", reason);
  if (!policy.platform) return text;
  text += "\n" + numbersText(*policy.platform);
  text += fmt::format("\ncheapest by these numbers, {} nodes with {} ranks\n", question.shape.nodes,
                      question.shape.ranks);
  text += choicesText(choicesOf(question, policy));
  return text + "NCCL compares these costs with its own for what is not in this table.\n";
}

Json tunerJson(const TunerQuestion& question, const tuner::Policy& policy) {
  Json document = {{"fabric", question.around.fabric},
                   {"machine", question.around.machine},
                   {"nodes", question.shape.nodes},
                   {"ranks", question.shape.ranks},
                   {"aside", policy.aside},
                   {"ll128PricedOut", policy.priceOutLl128},
                   {"reasons", policy.reasons},
                   {"platform", policy.platform ? Json(policy.platform->name) : Json()}};
  Json numbers = Json::array();
  Json choices = Json::array();
  if (policy.platform) {
    for (const Named& named : numbersOf(*policy.platform)) numbers.append(numberJson(named));
    for (const Choice& choice : choicesOf(question, policy)) choices.append(choiceJson(choice));
  }
  document.set("numbers", std::move(numbers));
  document.set("choices", std::move(choices));
  return document;
}

}  // namespace weft::info
