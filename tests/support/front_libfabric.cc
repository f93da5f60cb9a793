// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/front_libfabric.h"

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

using weft::test::real;

#pragma GCC visibility push(default)
extern "C" {

void fi_freeinfo(fi_info* info) {
  real<decltype(fi_freeinfo)>("fi_freeinfo")(info);
}

fi_info* fi_dupinfo(const fi_info* info) {
  return real<decltype(fi_dupinfo)>("fi_dupinfo")(info);
}

const char* fi_strerror(int code) {
  return real<decltype(fi_strerror)>("fi_strerror")(code);
}
}
