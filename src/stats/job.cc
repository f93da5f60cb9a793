// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/stats/job.h"

#include <string_view>

#include "src/base/config.h"

namespace weft::stats {

// The scheduler's number comes first: it is what people look for. torchrun's is "none" where nobody chose
// one.
std::string jobName() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "TORCHELASTIC_RUN_ID",
                           "PMIX_NAMESPACE", "PMI_JOBID"}) {
    const char* value = environmentValue(name);
    if (value && *value != '\0' && std::string_view(value) != "none") return value;
  }
  return {};
}

}  // namespace weft::stats
