// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/place.h"

#include <cstdlib>
#include <map>

#include "tests/support/catch.h"

using namespace weft;
using perf::findPlace;
using perf::firstHost;

namespace {

const char* const kNames[] = {"RANK",
                              "WORLD_SIZE",
                              "MASTER_ADDR",
                              "MASTER_PORT",
                              "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE",
                              "PMIX_RANK",
                              "PMI_RANK",
                              "PMI_SIZE",
                              "SLURM_PROCID",
                              "SLURM_NTASKS",
                              "OMPI_COMM_WORLD_LOCAL_SIZE",
                              "SLURM_STEP_NODELIST",
                              "SLURM_JOB_NODELIST",
                              "TORCHELASTIC_USE_AGENT_STORE"};

Result<netdriver::Place> placeWith(const std::map<std::string, std::string>& environment) {
  for (const char* name : kNames) ::unsetenv(name);
  ::setenv("WEFT_TOKEN", "0123456789abcdef", 1);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  auto place = findPlace({});
  ::unsetenv("WEFT_TOKEN");
  for (const char* name : kNames) ::unsetenv(name);
  return place;
}

}  // namespace

TEST_CASE("the first host of a Slurm node list") {
  CHECK(firstHost("node1") == "node1");
  CHECK(firstHost("node1,node2") == "node1");
  CHECK(firstHost("node[07-10]") == "node07");
  CHECK(firstHost("node[007,009-012],login1") == "node007");
  CHECK(firstHost("rack[1-2]node[03-04]") == "rack1node03");
  CHECK(firstHost("node[1-2]-ib,x") == "node1-ib");
  CHECK(firstHost("node[1-2") == "");
  CHECK(firstHost("") == "");
}

TEST_CASE("a rank finds rank 0 by what its launcher says") {
  // Expect: nobody started us.
  CHECK(placeWith({})->size == 0);
  // Expect: Slurm's step is looked at before its job.
  const auto slurm = placeWith({{"SLURM_PROCID", "3"},
                                {"SLURM_NTASKS", "4"},
                                {"SLURM_STEP_NODELIST", "gpu[12-13]"},
                                {"SLURM_JOB_NODELIST", "gpu[01-13]"}});
  REQUIRE(slurm);
  CHECK(slurm->rank == 3);
  CHECK(slurm->size == 4);
  CHECK(slurm->host == "gpu12");
  // Expect: MASTER_ADDR wins, as a user sets it.
  CHECK(
      placeWith(
          {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NODELIST", "a,b"}, {"MASTER_ADDR", "c"}})
          ->host == "c");
  // Expect: all of Open MPI's ranks on this machine need no address, several machines do, also inside Slurm:
  // mpirun may use other nodes than the list's first.
  CHECK(
      placeWith(
          {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
          ->host == "127.0.0.1");
  const auto apart = placeWith({{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                {"SLURM_JOB_NODELIST", "a,b"}});
  REQUIRE_FALSE(apart);
  CHECK(apart.error().message().find("MASTER_ADDR") != std::string::npos);
  // Expect: torchrun's agent holds its port.
  CHECK(placeWith({{"RANK", "0"},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "a"},
                   {"MASTER_PORT", "4000"},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}})
            ->port == 4001);
}

TEST_CASE("a rank outside its run is an error that names the variable") {
  const auto complaint = [](const std::map<std::string, std::string>& environment) {
    auto all = environment;
    all.emplace("MASTER_ADDR", "a");
    const auto place = placeWith(all);
    REQUIRE_FALSE(place);
    return place.error().message();
  };
  const auto names = [&](const std::map<std::string, std::string>& environment, const std::string& words) {
    INFO(complaint(environment));
    return complaint(environment).find(words) != std::string::npos;
  };
  CHECK(names({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is 2, but by WORLD_SIZE there are ranks 0 to 1"));
  CHECK(names({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is \"-1\""));
  CHECK(names({{"RANK", "0"}, {"WORLD_SIZE", "two"}}, "WORLD_SIZE is \"two\""));
  CHECK(names({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE is \"0\""));
  CHECK(names({{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set but none of RANK"));
  CHECK(names({{"SLURM_PROCID", "0"}}, "SLURM_PROCID is set but none of WORLD_SIZE"));
  // Expect: a port that is none is not replaced by another one.
  for (const char* port : {"99999", "abc", "0", "80x"})
    CHECK(names({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", port}}, "MASTER_PORT is"));
  CHECK(names({{"RANK", "0"},
               {"WORLD_SIZE", "2"},
               {"MASTER_PORT", "65535"},
               {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
              "MASTER_PORT leaves no port"));
}

TEST_CASE("ranks on several hosts have a token, and those of one host need none") {
  const std::map<std::string, std::string> apart{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  CHECK(placeWith(apart)->token == "0123456789abcdef");
  for (const char* none : {"", "short"}) {
    auto environment = apart;
    environment["WEFT_TOKEN"] = none;
    const auto refused = placeWith(environment);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("WEFT_TOKEN") != std::string::npos);
  }
  CHECK(placeWith({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"WEFT_TOKEN", ""}}));
  CHECK(placeWith({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}, {"WEFT_TOKEN", ""}}));
}
