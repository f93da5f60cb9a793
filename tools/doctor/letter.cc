// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/letter.h"

#include "src/base/number.h"

namespace weft::doctor {

namespace {

constexpr char kEnd = '\x1f';  // of a field
constexpr const char* kForm = "weft doctor 1";

class Fields {
 public:
  explicit Fields(const std::string& text) : rest_(text) {}
  bool more() const { return !rest_.empty(); }
  std::string take() {
    const size_t end = rest_.find(kEnd);
    std::string field(rest_.substr(0, end));
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return field;
  }
  size_t takeCount() { return parseNumber<size_t>(take()).value_or(0); }

 private:
  std::string_view rest_;
};

void put(std::string* letter, std::string field) {
  std::erase(field, kEnd);
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
  *port = static_cast<uint16_t>(fields.takeCount());
  for (size_t left = fields.takeCount(); left > 0 && fields.more(); left--)
    node->addresses.push_back(fields.take());
  while (fields.more()) {
    const std::string name = fields.take();
    node->fingerprint[name] = fields.take();
  }
  return true;
}

std::string reportLetter(const HostReport& report) {
  std::string letter;
  put(&letter, report.host);
  for (const Finding& one : report.findings) {
    putNumber(&letter, static_cast<unsigned>(one.severity));
    for (const std::string& field : {one.topic, one.what, one.evidence}) put(&letter, field);
    putNumber(&letter, static_cast<unsigned>(one.mend.by));
    put(&letter, one.mend.text);
  }
  return letter;
}

HostReport readReport(const std::string& letter) {
  Fields fields(letter);
  HostReport report{fields.take(), {}};
  while (fields.more()) {
    Finding one;
    one.severity = static_cast<Severity>(fields.takeCount() % 5);
    one.topic = fields.take();
    one.what = fields.take();
    one.evidence = fields.take();
    one.mend.by = static_cast<Mend::By>(fields.takeCount() % 4);
    one.mend.text = fields.take();
    report.findings.push_back(std::move(one));
  }
  return report;
}

}  // namespace weft::doctor
