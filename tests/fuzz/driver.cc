// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/random.h"
#include "tests/fuzz/target.h"

// usage: fuzz-TARGET CORPUS [SECONDS [SEED]]
//
// Feeds a target its seeds, its corpus and mutations of both for SECONDS (WEFT_FUZZ_SECONDS, 10 unless set).
// The inputs of a seed are always the same. They run in a forked child; an input that kills it is kept as
// CORPUS/crash-N, the run fails, and the next run tries it first. Targets also link with libFuzzer
// (clang++ -fsanitize=fuzzer) in place of this file.
using namespace weft;
using fuzz::Input;

namespace {

constexpr size_t kMostBytes = 4096;
constexpr unsigned kPatience = 10;  // seconds for one input
constexpr int kBatch = 1000;        // inputs between looks at the clock

// Outlives the child, so that its last input can be kept.
struct Shared {
  uint64_t inputs = 0;
  size_t size = 0;
  std::byte bytes[kMostBytes]{};
};

Shared* makeShared() {
  void* page = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::abort();
  return static_cast<Shared*>(page);
}

void feed(Shared* shared, const Input& input) {
  shared->size = std::min(input.size(), kMostBytes);
  if (shared->size > 0) std::memcpy(shared->bytes, input.data(), shared->size);
  shared->inputs++;
  // A copy of its own size on the heap: a sanitizer sees a read past its end.
  const std::vector<uint8_t> exact(reinterpret_cast<const uint8_t*>(shared->bytes),
                                   reinterpret_cast<const uint8_t*>(shared->bytes) + shared->size);
  (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::vector<Input> readCorpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // the same order everywhere, or a seed says nothing
  std::vector<Input> inputs;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto bytes = std::as_bytes(std::span(text));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}

class Mutator {
 public:
  Mutator(std::vector<Input> pool, uint64_t seed) : pool_(std::move(pool)), random_(seed) {}

  Input next() {
    Input input = pool_[random_.below(pool_.size())];
    for (uint64_t changes = 1 + random_.below(4); changes > 0; changes--) change(input);
    return input;
  }

 private:
  size_t at(const Input& input) { return random_.below(input.size()); }

  void change(Input& input) {
    if (input.empty()) return input.push_back(static_cast<std::byte>(random_.next()));
    switch (random_.below(7)) {
      case 0:
        input[at(input)] ^= std::byte{1} << random_.below(8);
        return;
      case 1:
        input[at(input)] = static_cast<std::byte>(random_.next());
        return;
      case 2:
        return overwrite(input);
      case 3:
        return input.resize(at(input));
      case 4:
        return insert(input);
      case 5:
        return splice(input);
      default:
        input.erase(input.begin() + static_cast<std::ptrdiff_t>(at(input)));
    }
  }

  // A number that lengths and counts are afraid of.
  void overwrite(Input& input) {
    constexpr uint64_t kEvil[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, UINT64_MAX};
    const uint64_t value = kEvil[random_.below(std::size(kEvil))];
    const size_t width = std::min<size_t>(size_t{1} << random_.below(4), input.size());
    std::memcpy(input.data() + random_.below(input.size() - width + 1), &value, width);
  }

  void insert(Input& input) {
    const size_t many = 1 + random_.below(16);
    if (input.size() + many > kMostBytes) return;
    input.insert(input.begin() + static_cast<std::ptrdiff_t>(at(input)), many,
                 static_cast<std::byte>(random_.next()));
  }

  // The beginning of this one and the end of another.
  void splice(Input& input) {
    const Input& other = pool_[random_.below(pool_.size())];
    if (other.empty()) return;
    input.resize(at(input));
    const size_t from = at(other);
    const size_t many = std::min(other.size() - from, kMostBytes - input.size());
    input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from),
                 other.begin() + static_cast<std::ptrdiff_t>(from + many));
  }

  std::vector<Input> pool_;
  SeededRandom random_;
};

[[noreturn]] void runChild(Shared* shared, std::vector<Input> pool, uint64_t seed,
                           std::chrono::seconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  ::alarm(kPatience);
  for (const Input& input : pool) feed(shared, input);
  Mutator mutator(std::move(pool), seed);
  while (std::chrono::steady_clock::now() < end) {
    ::alarm(kPatience);
    for (int i = 0; i < kBatch; i++) feed(shared, mutator.next());
  }
  ::_exit(0);
}

int keep(const Shared& shared, const std::filesystem::path& folder, int status) {
  std::filesystem::create_directories(folder);
  const auto path = folder / ("crash-" + std::to_string(shared.inputs));
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(shared.bytes), static_cast<std::streamsize>(shared.size));
  std::printf("FAILED: input %llu of %zu bytes ended the process (status %d); kept as %s\n",
              static_cast<unsigned long long>(shared.inputs), shared.size, status, path.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: %s CORPUS [SECONDS [SEED]]\n", argv[0]);
    return 2;
  }
  const char* wanted = environmentValue("WEFT_FUZZ_SECONDS");
  const std::chrono::seconds time(std::stoi(argc > 2 ? argv[2] : wanted ? wanted : "10"));
  const uint64_t seed = argc > 3 ? std::stoull(argv[3]) : 1;
  std::vector<Input> pool = readCorpus(argv[1]);
  const size_t kept = pool.size();
  for (Input& input : fuzz::seeds()) pool.push_back(std::move(input));
  Shared* shared = makeShared();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return 2;
  if (child == 0) runChild(shared, std::move(pool), seed, time);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) return keep(*shared, argv[1], status);
  std::printf("%llu inputs in %lld s, seed %llu, %zu from the corpus: nothing found\n",
              static_cast<unsigned long long>(shared->inputs), static_cast<long long>(time.count()),
              static_cast<unsigned long long>(seed), kept);
  return 0;
}
