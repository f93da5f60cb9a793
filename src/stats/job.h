// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

// The job that this process belongs to. Any thread.
namespace weft::stats {

// Its name by the launcher's variables: the same in all processes of a job, and another one for each job of a
// cluster. Empty: none says.
std::string jobName();

}  // namespace weft::stats
