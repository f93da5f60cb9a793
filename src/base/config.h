// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "src/base/config_file.h"
#include "weft/result.h"

// Every setting of weft, in a struct that is filled from one table. It is read once and then passed as `const
// Config&`; nothing else in the project reads the environment. A new setting is a member here and a row in
// config.cc. The documentation of each member is in its row. Values; any thread.
namespace weft {

using Milliseconds = std::chrono::milliseconds;

struct Config {
  std::string provider;  // empty: the best one
  bool fallback = true;
  std::string local = "auto";
  bool localGpu = false;
  std::string libfabric;
  std::string socketIfname;
  std::string portRange;
  std::string jobSecret;
  std::string encrypt = "control";
  std::string hca;
  std::string mergeNics = "auto";
  std::string libibverbs;
  int ibGidIndex = -1;      // -1: chosen (verbs)
  int ibTrafficClass = -1;  // -1: the communicator's, else 0
  int ibServiceLevel = 0;
  int ibTimeout = 18;
  int ibRetryCount = 6;
  int ibPkeyIndex = 0;
  bool ibEce = true;
  int ibRelaxedOrdering = 2;
  int ibAdaptiveRouting = -2;
  int ibAdaptiveMinBytes = 8192;
  int qpsPerConnection = 1;
  int tcpStreams = 0;  // 0: as many as are needed
  int tcpSpeedMbps = 0;
  std::string logLevel = "WARN";
  int eagerMaxBytes = -1;  // -1: the value that suits the network
  int eagerSlots = 64;
  int eagerPoolMib = 2048;
  int windowKib = 4096;
  int windowPoolMib = 64;
  int stripeMinBytes = 65536;
  int maxRails = 16;
  int loopRails = 1;
  int sequenceBits = 32;
  bool alwaysFlush = false;
  bool forceFlush = false;
  std::string gdr = "auto";
  bool dataDirect = true;
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
  Milliseconds collnetTimeout{20000};
  Milliseconds connectTimeout{20000};
  Milliseconds acceptTimeout{1800000};
  Milliseconds closeTimeout{2000};
  int idlePeers = 256;
  Milliseconds idleTime{300000};
  Milliseconds laneTimeout{10000};
  Milliseconds railTimeout{1000};
  Milliseconds railRetry{100};
  Milliseconds peerSilentWarn{4000};
  Milliseconds peerTimeout{60000};
  Milliseconds kernelTimeout{30000};
  Milliseconds waitWarn{-1};
  std::string stateDir;
  bool stats = true;
  std::string profile;
  std::string checksum = "sample";
};

using ConfigMember =
    std::variant<std::string Config::*, bool Config::*, int Config::*, Milliseconds Config::*>;

// Nothing prints the value of a secret: not the tools, not the log, not a report. Where it comes from, and
// the name of a file that holds it (@FILE), are none.
enum class Shown : uint8_t { value, secret };

// A row of the table.
struct ConfigField {
  const char* env;
  ConfigMember member;
  const char* doc;    // one sentence: the effect, the unit, the reason to change it
  const char* alias;  // NCCL's variable, read in NCCL's way when ours is unset; null: none
  int min = 0;        // for numbers and times
  int max = 1 << 30;
  int multipleOf = 1;
  Shown shown = Shown::value;
};

std::span<const ConfigField> configFields();

// The source of values: the environment, or a test's map. Null: unset.
using Lookup = std::function<const char*(const char* name)>;

// Reads every row. A bad value of ours is an error that names the variable, the value, and the allowed
// values. A bad value of NCCL's is ignored (unusedAliases). The file may set whatever the environment leaves
// unset.
Result<Config> readConfig(const Lookup& environment, const ConfigFile& file = {});

// The settings of this process, with the file that loadConfigFile() finds.
Result<Config> readConfigFromEnvironment();

// The origin of a value in effect. The kinds are in the order of precedence, the strongest last.
struct Origin {
  enum class Kind { byDefault, nccl, file, environment };
  Kind kind = Kind::byDefault;
  std::string where;  // the variable, or FILE:LINE; empty for a default
};

Origin originOf(const ConfigField& field, const Lookup& environment, const ConfigFile& file);

// A line for each variable WEFT_* in `environment` (strings "NAME=value") that no row has, with the nearest
// name.
std::vector<std::string> unknownVariables(std::span<const char* const> environment);

// A line for each name in the file that no row has, with the nearest name, and for each name that the file
// has twice.
std::vector<std::string> fileWarnings(const ConfigFile& file);

// A line for each variable of NCCL's that has a row here and a value that does not fit.
std::vector<std::string> unusedAliases(const Lookup& lookup);

// All three kinds of line, for this process and its file.
std::vector<std::string> environmentWarnings();

// The part of a setting's value that may be printed: the value itself, or of a secret only that it is set. By
// its row, or by the name of any variable: one that has no row and is called a secret or a token is one, too.
std::string shownValue(const ConfigField& field, const std::string& value);
std::string shownValue(const std::string& variable, const std::string& value);

// A member's value as text, as it may be printed; and the allowed form in words ("0 or 1", "milliseconds, 1
// to 3600000").
std::string valueText(const Config& config, const ConfigField& field);
std::string allowedText(const ConfigField& field);

// True where the word is one of NCCL_NET_MERGE_LEVEL, in upper or lower case. NCCL ignores any other word.
bool isMergeLevel(const std::string& word);

// A variable of other software that weft reads and does not own (a launcher's rank, for example).
const char* environmentValue(const char* name);

}  // namespace weft
