// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "src/base/config_file.h"
#include "weft/result.h"

// Every setting of weft, in one struct filled from one table. Read once, then passed as `const Config&`;
// nothing else in the project reads the environment. A new setting is a member here and a row in config.cc.
namespace weft {

using Milliseconds = std::chrono::milliseconds;

struct Config {
  std::string provider;  // empty: choose
  bool fallback = true;
  std::string local = "auto";
  bool localGpu = false;
  std::string libfabric;
  std::string socketIfname;
  std::string hca;
  std::string mergeNics = "auto";
  std::string libibverbs;
  int ibGidIndex = -1;      // -1: choose
  int ibTrafficClass = -1;  // -1: the communicator's, else 0
  int ibServiceLevel = 0;
  int ibTimeout = 18;
  int ibRetryCount = 6;
  int ibPkeyIndex = 0;
  bool ibEce = true;
  int ibAdaptiveRouting = -2;
  int ibAdaptiveMinBytes = 8192;
  int qpsPerConnection = 1;
  int tcpStreams = 4;
  std::string logLevel = "WARN";
  int eagerMaxBytes = -1;  // -1: what suits the network
  int eagerSlots = 64;
  int eagerPoolMib = 2048;
  int windowKib = 4096;
  int windowPoolMib = 64;
  int stripeMinBytes = 65536;
  int maxRails = 16;
  int loopRails = 1;
  int sequenceBits = 32;
  bool alwaysFlush = false;
  std::string gdr = "auto";
  std::string libcuda;
  int mrCacheCount = 256;
  int mrCacheMib = 4096;
  bool tuner = true;
  std::string tunerTable;
  std::string collnet = "off";
  std::string aggd;
  std::string aggdSecret;
  std::string libsharp;
  int collnetChunkBytes = 65536;
  int collnetOneStepBytes = 2048;
  int collnetSpareRanks = 64;
  Milliseconds collnetTimeout{20000};
  Milliseconds connectTimeout{20000};
  Milliseconds acceptTimeout{1800000};
  Milliseconds closeTimeout{2000};
  int idlePeers = 256;
  Milliseconds idleTime{300000};
  Milliseconds laneTimeout{10000};
  Milliseconds railTimeout{1000};
  Milliseconds railRetry{100};
  Milliseconds peerSilentWarn{5000};
  Milliseconds peerTimeout{60000};
  Milliseconds kernelTimeout{30000};
  Milliseconds waitWarn{10000};
  std::string stateDir;
};

using ConfigMember =
    std::variant<std::string Config::*, bool Config::*, int Config::*, Milliseconds Config::*>;

struct ConfigField {
  const char* env;
  ConfigMember member;
  const char* doc;    // one sentence: what it does, unit, why one would change it
  const char* alias;  // a variable of NCCL, read as NCCL reads it when ours is unset; nullptr: there is none
  int min = 0;        // numbers only
  int max = 1 << 30;
};

std::span<const ConfigField> configFields();

// Where values come from: the environment, or a test's map. Returns nullptr when unset.
using Lookup = std::function<const char*(const char* name)>;

// Reads every row. A bad value of ours is an error naming variable, value and what is allowed; one of NCCL's
// counts for nothing (unusedAliases). The file may set whatever the environment leaves unset.
Result<Config> readConfig(const Lookup& environment, const ConfigFile& file = {});

// Of this process, with the file that loadConfigFile finds.
Result<Config> readConfigFromEnvironment();

// Where a value in effect came from, in the order in which they count, the last first.
struct Origin {
  enum class Kind { byDefault, nccl, file, environment };
  Kind kind = Kind::byDefault;
  std::string where;  // the variable, or FILE:LINE; empty for a default
};

Origin originOf(const ConfigField& field, const Lookup& environment, const ConfigFile& file);

// A line for each WEFT_* variable in `environment` ("NAME=value" strings) that no row knows, with the nearest
// name.
std::vector<std::string> unknownVariables(std::span<const char* const> environment);

// A line for each name in the file that no row knows, with the nearest one, and for each that stands there
// twice.
std::vector<std::string> fileWarnings(const ConfigFile& file);

// A line for each variable of NCCL that would be honoured and has a value that does not fit.
std::vector<std::string> unusedAliases(const Lookup& lookup);

// All three, of this process and its file.
std::vector<std::string> environmentWarnings();

// A member's value as text, and the allowed form in words ("0 or 1", "milliseconds, 1 to 3600000").
std::string valueText(const Config& config, const ConfigField& field);
std::string allowedText(const ConfigField& field);

// True where the word is one of NCCL_NET_MERGE_LEVEL's, in upper or lower case. NCCL passes over any other.
bool isMergeLevel(const std::string& word);

// Variables of other software we look at but do not own (launchers' ranks and the like).
const char* environmentValue(const char* name);

}  // namespace weft
