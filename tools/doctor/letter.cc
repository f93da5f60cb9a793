// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/letter.h"

#include <algorithm>

#include "src/base/net/address.h"
#include "src/base/number.h"
#include "tools/doctor/mend.h"

namespace weft::doctor {

namespace {

constexpr char kEnd = '\x1f';  // of a field
constexpr const char* kForm = "weft doctor 2";

// More of each would be no host's. Texts are cut there.
constexpr size_t kMostText = 4096;
constexpr size_t kMostAddresses = 256;
constexpr size_t kMostProperties = 64;
constexpr size_t kMostFindings = 512;
constexpr size_t kMostArguments = 4;

class Fields {
 public:
  explicit Fields(const std::string& text) : rest_(text) {}
  bool more() const { return !rest_.empty(); }
  std::string take() {
    const size_t end = rest_.find(kEnd);
    std::string field(rest_.substr(0, std::min(end, kMostText)));
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return field;
  }
  size_t takeCount() { return parseNumber<size_t>(take()).value_or(0); }

 private:
  std::string_view rest_;
};

void put(std::string* letter, std::string field) {
  std::erase(field, kEnd);
  field.resize(std::min(field.size(), kMostText));
  *letter += field + kEnd;
}

template <class Number>
void putNumber(std::string* letter, Number number) {
  put(letter, std::to_string(number));
}

}  // namespace

std::string nodeLetter(const Node& node, uint16_t port) {
  std::string letter;
  put(&letter, kForm);
  put(&letter, node.host);
  putNumber(&letter, port);
  putNumber(&letter, node.addresses.size());
  for (const std::string& address : node.addresses) put(&letter, address);
  for (const auto& [name, value] : node.fingerprint) {
    put(&letter, name);
    put(&letter, value);
  }
  return letter;
}

bool readNode(const std::string& letter, Node* node, uint16_t* port) {
  Fields fields(letter);
  if (fields.take() != kForm) return false;
  node->host = fields.take();
  *port = parseNumber<uint16_t>(fields.take()).value_or(0);
  const size_t addresses = std::min(fields.takeCount(), kMostAddresses);
  for (size_t left = addresses; left > 0 && fields.more(); left--)
    if (std::string address = fields.take(); isIpText(address)) node->addresses.push_back(std::move(address));
  while (fields.more() && node->fingerprint.size() < kMostProperties) {
    const std::string name = fields.take();
    node->fingerprint[name] = fields.take();
  }
  return true;
}

namespace {

const char* wireWord(Mend::By by) {
  static constexpr const char* kWords[] = {"nobody", "root", "setting", "hand"};
  return kWords[static_cast<size_t>(by)];
}

void putMend(std::string* letter, const Mend& mend) {
  put(letter, wireWord(mend.by));
  put(letter, mend.by == Mend::By::root ? nameOf(mend.cure) : "");
  putNumber(letter, mend.arguments.size());
  for (const std::string& argument : mend.arguments) put(letter, argument);
}

// A cure of another version, or arguments that are none: the finding stays, and nobody mends it.
Mend takeMend(Fields* fields) {
  Mend mend;
  const std::string by = fields->take();
  for (const Mend::By one : {Mend::By::root, Mend::By::setting, Mend::By::hand})
    if (by == wireWord(one)) mend.by = one;
  const auto cure = cureOf(fields->take());
  for (size_t left = std::min(fields->takeCount(), kMostArguments); left > 0; left--)
    mend.arguments.push_back(fields->take());
  if (mend.by == Mend::By::root && !cure) return {};
  mend.cure = cure.value_or(Cure{});
  return isWhole(mend) ? mend : Mend{};
}

}  // namespace

std::string reportLetter(const HostReport& report) {
  std::string letter;
  put(&letter, report.host);
  for (const Finding& one : report.findings) {
    std::string part;
    putNumber(&part, static_cast<unsigned>(one.severity));
    for (const std::string& field : {one.topic, one.what, one.evidence}) put(&part, field);
    putMend(&part, one.mend);
    if (letter.size() + part.size() > kMostLetter) break;
    letter += part;
  }
  return letter;
}

HostReport readReport(const std::string& letter) {
  Fields fields(letter);
  HostReport report{fields.take(), {}, Where::elsewhere};
  while (fields.more() && report.findings.size() < kMostFindings) {
    Finding one;
    one.severity = static_cast<Severity>(fields.takeCount() % 5);
    one.topic = fields.take();
    one.what = fields.take();
    one.evidence = fields.take();
    one.mend = takeMend(&fields);
    report.findings.push_back(std::move(one));
  }
  return report;
}

}  // namespace weft::doctor
